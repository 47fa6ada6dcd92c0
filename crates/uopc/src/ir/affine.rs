//! Affine index arithmetic: integers as sums of constant multiples of a few values.
//!
//! `i * 37 + (16 * j + v)` is `37 i + 16 j + v`. From the coefficients follows what a loop does to an
//! index: whether neighbouring rounds read neighbours, the same element, or neither. Sums look
//! through LETs of arithmetic, so a name that two statements share hides nothing; a LET of a LOAD is
//! a value of its own, since memory may change after it.
//!
//! Integers wrap. A sum is right modulo the width of its dtype always, and as it stands if
//! [`is_exact`] says so.

use rustc_hash::{FxHashMap, FxHashSet};

use super::bounds::{Bounds, Interval};
use super::dtype::DType;
use super::op::Op;
use super::uop::UOp;
use super::visit::toposort;

/// A constant plus constant multiples of values that are no sums themselves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Linear {
    /// Values, each once, in the order in which the expression first names them, and their
    /// coefficients, which are not 0.
    pub terms: Vec<(UOp, i128)>,
    /// What is added.
    pub constant: i128,
}

impl Linear {
    /// The sum that an integer expression is.
    ///
    /// ```
    /// use uopc::ir::affine::Linear;
    /// use uopc::ir::{DType, UOp, op::Exec};
    ///
    /// # fn main() -> uopc::Result<()> {
    /// let i = UOp::range(&UOp::int(5, DType::I32), 0, Exec::Serial)?;
    /// let index = i.add(&UOp::int(-1, DType::I32))?.mul(&UOp::int(7, DType::I32))?;
    /// let sum = Linear::of(&index);
    /// assert_eq!((sum.coefficient(&i), sum.constant), (7, -7));
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(u: &UOp) -> Linear {
        let nodes = toposort(std::slice::from_ref(u));
        let mut factors: FxHashMap<&UOp, i128> = FxHashMap::default();
        factors.insert(u, 1);
        let mut sum = Linear::default();
        // Consumers come before their sources, so each factor is complete when it is used.
        for node in nodes.iter().rev() {
            let Some(factor) = factors.get(node).copied() else {
                continue;
            };
            if let Op::Const(value) = node.op() {
                let product = value.as_i128().wrapping_mul(factor);
                sum.constant = sum.constant.wrapping_add(product);
                continue;
            }
            match parts(node) {
                Some(parts) => {
                    for (part, times) in parts {
                        let more = factor.wrapping_mul(times);
                        let known = factors.entry(part).or_insert(0);
                        *known = known.wrapping_add(more);
                    }
                }
                None if factor != 0 => sum.terms.push((node.clone(), factor)),
                None => {}
            }
        }
        sum.terms.reverse();
        sum
    }

    /// The coefficient of a value; 0 if it is no term.
    pub fn coefficient(&self, value: &UOp) -> i128 {
        let found = self.terms.iter().find(|(term, _)| term == value);
        found.map_or(0, |(_, coefficient)| *coefficient)
    }

    /// The terms that `keep` accepts with the constant, and the others without one.
    pub fn split(&self, mut keep: impl FnMut(&UOp) -> bool) -> (Linear, Linear) {
        let (kept, others) = self.terms.iter().cloned().partition(|(u, _)| keep(u));
        let part = |terms, constant| Linear { terms, constant };
        (part(kept, self.constant), part(others, 0))
    }

    /// The other sum taken away from this one.
    pub fn minus(&self, other: &Linear) -> Linear {
        let mut difference = self.clone();
        difference.constant = difference.constant.wrapping_sub(other.constant);
        for (u, coefficient) in &other.terms {
            match difference.terms.iter_mut().find(|(term, _)| term == u) {
                Some((_, known)) => *known = known.wrapping_sub(*coefficient),
                None => {
                    let negated = coefficient.wrapping_neg();
                    difference.terms.push((u.clone(), negated));
                }
            }
        }
        difference
            .terms
            .retain(|(_, coefficient)| *coefficient != 0);
        difference
    }

    /// The bounds of the sum, if they can be said.
    pub fn bounds(&self, bounds: &mut Bounds) -> Option<Interval> {
        let mut all = Interval::point(self.constant);
        for (u, coefficient) in &self.terms {
            let term = bounds.of(u);
            let ends = [
                term.lo.checked_mul(*coefficient)?,
                term.hi.checked_mul(*coefficient)?,
            ];
            all = Interval {
                lo: all.lo.checked_add(ends[0].min(ends[1]))?,
                hi: all.hi.checked_add(ends[0].max(ends[1]))?,
            };
        }
        Some(all)
    }

    /// A number that divides every value of the sum, as long as nothing wraps; 0 for the sum that is
    /// always 0.
    pub fn divisor(&self) -> i128 {
        let of_term = |(u, coefficient): &(UOp, i128)| coefficient.saturating_mul(divisor(u));
        let terms = self.terms.iter().map(of_term);
        terms.fold(self.constant, gcd).saturating_abs()
    }
}

/// The sources of a sum or of a multiple, each with its factor; `None` for any other value.
fn parts(u: &UOp) -> Option<Vec<(&UOp, i128)>> {
    let constant = |s: &UOp| match s.op() {
        Op::Const(value) => Some(value.as_i128()),
        _ => None,
    };
    if u.dtype().int_range().is_none() || u.dtype() == DType::Bool {
        return None;
    }
    match (u.op(), u.src()) {
        (Op::Add, [a, b]) => Some(vec![(a, 1), (b, 1)]),
        (Op::Mul, [a, b]) => match (constant(a), constant(b)) {
            (_, Some(k)) => Some(vec![(a, k)]),
            (Some(k), None) => Some(vec![(b, k)]),
            (None, None) => None,
        },
        (Op::Let { .. }, [value]) if !matches!(value.op(), Op::Load) => Some(vec![(value, 1)]),
        _ => None,
    }
}

/// Whether no sum or multiple in the expression wraps, so that [`Linear::of`] is its value in
/// integers without bounds.
pub fn is_exact(u: &UOp, bounds: &mut Bounds) -> bool {
    // A sum over a LET that hides a load is not followed further, see `parts`.
    let mut pending = vec![u];
    let mut met: FxHashSet<&UOp> = FxHashSet::default();
    while let Some(u) = pending.pop() {
        let whole = Interval::whole(u.dtype());
        let Some(parts) = parts(u) else {
            // What is no sum is a value as it stands, in its dtype.
            continue;
        };
        let mut sum = Interval::point(0);
        for (part, times) in parts {
            let of_part = bounds.of(part);
            let ends = (of_part.lo.checked_mul(times), of_part.hi.checked_mul(times));
            let (Some(a), Some(b)) = ends else {
                return false;
            };
            sum = Interval {
                lo: sum.lo.saturating_add(a.min(b)),
                hi: sum.hi.saturating_add(a.max(b)),
            };
            if met.insert(part) {
                pending.push(part);
            }
        }
        if !sum.within(whole) {
            return false;
        }
    }
    true
}

/// By how much an index grows from each round of a loop to the next, if that is always the same:
/// 0 if the index does not change in the loop.
///
/// ```
/// use uopc::ir::affine::coefficient;
/// use uopc::ir::bounds::Bounds;
/// use uopc::ir::{DType, UOp, op::Exec};
///
/// # fn main() -> uopc::Result<()> {
/// let int = |n| UOp::int(n, DType::I32);
/// let i = UOp::range(&int(5), 0, Exec::Serial)?;
/// let v = UOp::range(&int(16), 1, Exec::Vector)?;
/// let at = i.mul(&int(16))?.add(&v)?;
/// let mut bounds = Bounds::new();
/// assert_eq!(coefficient(&at, &v, &mut bounds), Some(1));
/// assert_eq!(coefficient(&at.floordiv(&int(16))?, &v, &mut bounds), Some(0));
/// assert_eq!(coefficient(&at.floormod(&int(3))?, &v, &mut bounds), None);
/// # Ok(())
/// # }
/// ```
pub fn coefficient(index: &UOp, range: &UOp, bounds: &mut Bounds) -> Option<i128> {
    let nodes = toposort(std::slice::from_ref(index));
    let mut known: FxHashMap<&UOp, Option<i128>> = FxHashMap::default();
    for u in &nodes {
        let of = |k: usize| known.get(&u.src()[k]).copied().flatten();
        let found = match u.op() {
            Op::Range { .. } => Some((u == range) as i128),
            Op::Add if !u.dtype().is_float() => {
                of(0).zip(of(1)).and_then(|(a, b)| a.checked_add(b))
            }
            Op::Mul => match (of(0), of(1), constant(&u.src()[0]), constant(&u.src()[1])) {
                (Some(0), Some(0), ..) => Some(0),
                (Some(a), _, _, Some(k)) | (_, Some(a), Some(k), _) => a.checked_mul(k),
                _ => None,
            },
            Op::Let { .. } => of(0),
            Op::FloorDiv | Op::FloorMod => match (of(0), constant(&u.src()[1])) {
                (Some(a), Some(n)) if n > 0 && a != 0 => of_division(u, a, n, range, bounds),
                _ => unchanged(u, &known),
            },
            _ => unchanged(u, &known),
        };
        known.insert(u, found);
    }
    known.get(index).copied().flatten()
}

fn constant(u: &UOp) -> Option<i128> {
    match u.op() {
        Op::Const(value) => Some(value.as_i128()),
        _ => None,
    }
}

/// 0 for a value of which no source changes.
fn unchanged(u: &UOp, known: &FxHashMap<&UOp, Option<i128>>) -> Option<i128> {
    let same = |s: &UOp| known.get(s).copied().flatten() == Some(0);
    u.src().iter().all(same).then_some(0)
}

/// The coefficient of `x // n` or `x % n` where that of x is `a`, not 0, and n is positive.
fn of_division(u: &UOp, a: i128, n: i128, range: &UOp, bounds: &mut Bounds) -> Option<i128> {
    let x = &u.src()[0];
    if !is_exact(x, bounds) {
        return None;
    }
    let divides = matches!(u.op(), Op::FloorDiv);
    if a % n == 0 {
        return Some(if divides { a / n } else { 0 });
    }
    // The loop starts at a multiple of n and ends before the next.
    let mut start = Linear::of(x);
    start.terms.retain(|(term, _)| term != range);
    let fixed = start.terms.iter().all(|(term, _)| !names(term, range));
    let last = constant(&range.src()[0]).and_then(|extent| a.checked_mul(extent - 1))?;
    let within = fixed && 0 <= a && last < n && start.divisor() % n == 0;
    within.then_some(if divides { 0 } else { a })
}

/// Whether an expression names the range.
fn names(u: &UOp, range: &UOp) -> bool {
    toposort(std::slice::from_ref(u)).contains(range)
}

/// A power of two that divides every value of an expression, whether it wraps or not; 0 for the
/// constant 0.
fn divisor(u: &UOp) -> i128 {
    let nodes = toposort(std::slice::from_ref(u));
    let mut known: FxHashMap<&UOp, i128> = FxHashMap::default();
    for u in &nodes {
        let of = |k: usize| known.get(&u.src()[k]).copied().unwrap_or(1);
        let found = match u.op() {
            _ if u.dtype().is_float() => 1,
            Op::Const(value) => value.as_i128(),
            Op::Add | Op::Max => gcd(of(0), of(1)),
            Op::Mul => of(0).checked_mul(of(1)).unwrap_or(1),
            Op::Where => gcd(of(1), of(2)),
            Op::Let { .. } => of(0),
            _ => 1,
        };
        known.insert(u, found & found.wrapping_neg());
    }
    known.get(u).copied().unwrap_or(1)
}

/// The greatest common divisor; of 0 and x it is x.
fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.saturating_abs(), b.saturating_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
