//! Which iterations of a loop touch the same memory (elsewhere: dependence analysis).
//!
//! Answers err on the safe side: "independent" is proved from strides and bounds, all else counts
//! as dependent.

use smallvec::SmallVec;

use super::nest::{Nest, Statement, is_range, ranges_of};
use super::strides::Affine;
use crate::ir::bounds::Bounds;
use crate::ir::op::{Combine, Space};
use crate::ir::visit::toposort;
use crate::ir::{Op, UOp};

/// One access of a statement to a memory.
pub struct Access {
    /// Where.
    pub index: UOp,
    /// Whether it stores.
    pub writes: bool,
}

/// What a statement does to a memory.
pub fn accesses(s: &Statement, memory: &UOp) -> Vec<Access> {
    let mut all = Vec::new();
    if s.memory == *memory {
        all.push(Access {
            index: s.index.clone(),
            writes: true,
        });
    }
    for load in s.loads() {
        if load.src()[0] == *memory {
            all.push(Access {
                index: load.src()[1].clone(),
                writes: false,
            });
        }
    }
    all
}

/// The memories that a statement names, each once, the written one first.
pub fn memories(s: &Statement) -> Vec<UOp> {
    let mut all = vec![s.memory.clone()];
    for load in s.loads() {
        if !all.contains(&load.src()[0]) {
            all.push(load.src()[0].clone());
        }
    }
    all
}

/// Whether `a` in one iteration of `range` never is the element that `b` is in another iteration
/// of it, the ranges in `fixed` being the same for both and all others running freely.
pub fn independent(a: &UOp, b: &UOp, range: &UOp, fixed: &[UOp]) -> bool {
    let mut sums = [Affine::of(a), Affine::of(b)];
    cancel(&mut sums, fixed);
    let mut bounds = Bounds::new();
    let [Some(first), Some(second)] = [&sums[0], &sums[1]].map(|s| interval(s, &mut bounds)) else {
        return false;
    };
    if first.1 < second.0 || second.1 < first.0 {
        return true;
    }
    let strides = [sums[0].stride(range), sums[1].stride(range)];
    let [Some(c), Some(other)] = strides else {
        return false;
    };
    if c == 0 || c != other {
        return false;
    }
    // The range is a digit of the index: smaller terms stay below its stride, larger ones are
    // multiples of something above its reach.
    let stride = (c as i128).abs();
    let reach = stride * bounds.of(range).hi;
    let (mut lo, mut hi) = (i128::MAX, i128::MIN);
    let mut larger: i128 = 0;
    for sum in &sums {
        let mut window = (sum.constant as i128, sum.constant as i128);
        for (term, factor) in sum.terms.iter().filter(|(t, _)| t != range) {
            let factor = *factor as i128;
            if factor.abs() > reach {
                larger = gcd(larger, factor.abs());
            } else if !widen(&mut window, term, factor, &mut bounds) {
                return false;
            }
        }
        (lo, hi) = (lo.min(window.0), hi.max(window.1));
    }
    hi - lo < stride && (larger == 0 || reach + hi - lo < larger)
}

/// Whether an index names each element in at most one iteration of a range.
pub fn keyed(index: &UOp, range: &UOp, fixed: &[UOp]) -> bool {
    independent(index, index, range, fixed)
        && Affine::of(index).stride(range).is_some_and(|s| s != 0)
}

/// Drops what is the same number in both sums.
fn cancel(sums: &mut [Affine; 2], fixed: &[UOp]) {
    let is_fixed = |u: &UOp| {
        let loads = || toposort(std::slice::from_ref(u));
        ranges_of(u).iter().all(|r| fixed.contains(r))
            && !loads().iter().any(|v| matches!(v.op(), Op::Load))
    };
    let common: SmallVec<[UOp; 4]> = (sums[0].terms.iter())
        .filter(|term| sums[1].terms.contains(term) && is_fixed(&term.0))
        .map(|(u, _)| u.clone())
        .collect();
    for sum in sums {
        sum.terms.retain(|(u, _)| !common.contains(u));
    }
}

fn interval(sum: &Affine, bounds: &mut Bounds) -> Option<(i128, i128)> {
    let mut window = (sum.constant as i128, sum.constant as i128);
    for (term, factor) in &sum.terms {
        if !widen(&mut window, term, *factor as i128, bounds) {
            return None;
        }
    }
    Some(window)
}

fn widen(window: &mut (i128, i128), term: &UOp, factor: i128, bounds: &mut Bounds) -> bool {
    let of = bounds.of(term);
    let ends = [of.lo.checked_mul(factor), of.hi.checked_mul(factor)];
    let [Some(a), Some(b)] = ends else {
        return false;
    };
    window.0 = window.0.saturating_add(a.min(b));
    window.1 = window.1.saturating_add(a.max(b));
    true
}

fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Whether the result of a combination depends on the order of the elements. Maxima do not (NaN
/// wins, and +0 over -0), nor do wrapping integers.
pub fn is_ordered(s: &Statement) -> bool {
    match s.combine {
        Combine::Max => false,
        Combine::Set => true,
        Combine::Add | Combine::Mul | Combine::MulAcc => s.memory.dtype().is_float(),
    }
}

/// The length of the longest common beginning of two lists of ranges.
pub fn common(a: &[UOp], b: &[UOp]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Nest {
    /// The statements that list a range, which follow each other.
    pub fn users(&self, range: &UOp) -> Vec<usize> {
        let all = 0..self.statements.len();
        all.filter(|&k| self.statements[k].ranges.contains(range))
            .collect()
    }

    /// The statements that name a memory.
    pub fn naming(&self, memory: &UOp) -> Vec<usize> {
        let all = 0..self.statements.len();
        all.filter(|&k| self.statements[k].names(memory)).collect()
    }

    /// All scratch memory, in the order in which it is first named.
    pub fn locals(&self) -> Vec<UOp> {
        let mut all = Vec::new();
        for s in &self.statements {
            let mut new = memories(s);
            // The order of a listing: what is read comes before what is written only if another
            // statement named it.
            new.retain(|m| matches!(m.op(), Op::Local { .. }) && !all.contains(m));
            all.extend(new);
        }
        all
    }

    /// The loops in which a scratch memory lives: those that all statements naming it share.
    pub fn scope(&self, local: &UOp) -> Vec<UOp> {
        let named = self.naming(local);
        let Some(&first) = named.first() else {
            return Vec::new();
        };
        let mut scope = self.statements[first].ranges.clone();
        for &k in &named[1..] {
            scope.truncate(common(&scope, &self.statements[k].ranges));
        }
        scope
    }

    /// Whether statements that name a range follow each other and agree on what lies outside.
    pub fn shares(&self) -> bool {
        let mut last: rustc_hash::FxHashMap<&UOp, usize> = rustc_hash::FxHashMap::default();
        for (k, s) in self.statements.iter().enumerate() {
            for (depth, range) in s.ranges.iter().enumerate() {
                if let Some(before) = last.insert(range, k)
                    && (before + 1 != k
                        || common(&self.statements[before].ranges, &s.ranges) <= depth)
                {
                    return false;
                }
            }
        }
        true
    }

    /// Whether a scratch memory in registers is indexed by a range, which must then be unrolled
    /// or run in vector lanes.
    pub fn registers_need(&self, range: &UOp) -> bool {
        let indexes = |k: usize| {
            let s = &self.statements[k];
            let locals = memories(s).into_iter().filter(is_register);
            locals
                .flat_map(|m| accesses(s, &m))
                .any(|a| ranges_of(&a.index).contains(range))
        };
        self.users(range).into_iter().any(indexes)
    }
}

/// Whether a memory is scratch in registers.
pub fn is_register(memory: &UOp) -> bool {
    matches!(
        memory.op(),
        Op::Local {
            space: Space::Reg,
            ..
        }
    )
}

/// Whether a range's extent is a function of another range.
pub fn extent_names(range: &UOp, other: &UOp) -> bool {
    is_range(range) && ranges_of(&range.src()[0]).contains(other)
}
