//! Bounds of integer and bool values: interval analysis.
//!
//! The interval of a node holds every element that the node can have, whatever is in memory.
//! Arithmetic wraps, so an op whose exact result could leave its dtype has the dtype's whole
//! range. A bool counts as 0 or 1. Bounds of all nodes of a graph cost linear time together.

use rustc_hash::FxHashMap;

use super::dtype::DType;
use super::op::{Op, ReduceOp};
use super::uop::UOp;

/// The integers from `lo` to `hi`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// The least.
    pub lo: i128,
    /// The greatest; never below `lo`.
    pub hi: i128,
}

impl Interval {
    /// One number.
    pub const fn point(value: i128) -> Interval {
        Interval {
            lo: value,
            hi: value,
        }
    }

    /// All values of an integer dtype or bool; for floats, of which nothing is known, those of
    /// the widest integer.
    pub const fn whole(dtype: DType) -> Interval {
        match dtype.int_range() {
            Some((lo, hi)) => Interval { lo, hi },
            None => Interval {
                lo: i128::MIN,
                hi: i128::MAX,
            },
        }
    }

    /// The only value, if there is just one.
    pub fn value(self) -> Option<i128> {
        (self.lo == self.hi).then_some(self.lo)
    }

    /// True if all of `self` lies in `other`.
    pub fn within(self, other: Interval) -> bool {
        other.lo <= self.lo && self.hi <= other.hi
    }

    /// What lies in both, if anything does.
    pub fn intersection(self, other: Interval) -> Option<Interval> {
        let (lo, hi) = (self.lo.max(other.lo), self.hi.min(other.hi));
        (lo <= hi).then_some(Interval { lo, hi })
    }

    /// The least interval that holds both.
    pub fn union(self, other: Interval) -> Interval {
        Interval {
            lo: self.lo.min(other.lo),
            hi: self.hi.max(other.hi),
        }
    }

    /// The least interval that holds `f` at each pair of ends, for an `f` that is monotone in
    /// each argument; `None` if `f` overflows.
    fn corners(a: Interval, b: Interval, f: impl Fn(i128, i128) -> Option<i128>) -> Option<Self> {
        let at = |x, y| f(x, y).map(Interval::point);
        let low = at(a.lo, b.lo)?.union(at(a.lo, b.hi)?);
        Some(low.union(at(a.hi, b.lo)?).union(at(a.hi, b.hi)?))
    }
}

/// Bounds found so far. It keeps the nodes alive, so an entry never outlives its node.
#[derive(Clone, Default)]
pub struct Bounds {
    known: FxHashMap<UOp, Interval>,
}

impl Bounds {
    /// Nothing known yet.
    pub fn new() -> Bounds {
        Bounds::default()
    }

    /// Takes it that a node lies in an interval. Only bounds that are found later follow from it,
    /// so what is below a node comes before the node.
    pub fn assume(&mut self, u: &UOp, interval: Interval) {
        self.known.insert(u.clone(), interval);
    }

    /// The interval of a node's elements. Nothing is known about floats.
    pub fn of(&mut self, u: &UOp) -> Interval {
        if u.dtype().is_float() {
            return Interval::whole(u.dtype());
        }
        if let Op::Const(value) = u.op() {
            return Interval::point(value.as_i128());
        }
        if let Some(&known) = self.known.get(u) {
            return known;
        }
        let mut pending = vec![u.clone()];
        while let Some(top) = pending.last() {
            let before = pending.len();
            let top = top.clone();
            if !self.known.contains_key(&top) {
                let unknown = |s: &&UOp| !s.dtype().is_float() && !self.known.contains_key(*s);
                pending.extend(relevant(&top).iter().filter(unknown).cloned());
            }
            if pending.len() == before {
                pending.pop();
                let interval = self.transfer(&top);
                self.known.insert(top, interval);
            }
        }
        self.known[u]
    }

    /// The interval of a node whose relevant sources are known.
    fn transfer(&self, u: &UOp) -> Interval {
        let whole = Interval::whole(u.dtype());
        let s = |k: usize| self.source(u, k);
        let exact = |found: Option<Interval>| match found {
            Some(interval) if interval.within(whole) => interval,
            _ => whole,
        };
        let is_bool = u.dtype() == DType::Bool;
        match u.op() {
            Op::Const(value) => Interval::point(value.as_i128()),
            Op::Iota { n, .. } => below(*n as i128),
            Op::Range { .. } => below(s(0).hi),
            Op::Add if is_bool => or(s(0), s(1)),
            Op::Mul if is_bool => and(s(0), s(1), whole),
            Op::Add => exact(add(s(0), s(1))),
            Op::Mul => exact(mul(s(0), s(1))),
            Op::MulAcc => exact(mul(s(0), s(1)).and_then(|product| add(product, s(2)))),
            Op::Max => Interval {
                lo: s(0).lo.max(s(1).lo),
                hi: s(0).hi.max(s(1).hi),
            },
            Op::FloorDiv => exact(floor_div(s(0), s(1))),
            Op::FloorMod => floor_mod(s(0), s(1)),
            Op::And => and(s(0), s(1), whole),
            Op::Or if s(0).lo >= 0 && s(1).lo >= 0 => or(s(0), s(1)),
            Op::Xor => xor(s(0), s(1), whole),
            Op::Shl => shift(s(0), s(1), u.dtype(), |x, k| x.checked_mul(1 << k)),
            Op::Shr => shift(s(0), s(1), u.dtype(), |x, k| Some(x >> k)),
            Op::Where => match s(0).value() {
                Some(0) => s(2),
                Some(_) => s(1),
                None => s(1).union(s(2)),
            },
            Op::CmpLt if u.src()[0] == u.src()[1] => Interval::point(0),
            Op::CmpLt if s(0).hi < s(1).lo => Interval::point(1),
            Op::CmpLt if s(0).lo >= s(1).hi => Interval::point(0),
            Op::CmpNe if !u.src()[0].dtype().is_float() => differ(u, s(0), s(1)),
            Op::Cast(_) if !u.src()[0].dtype().is_float() => match s(0) {
                from if is_bool && (from.lo > 0 || from.hi < 0) => Interval::point(1),
                from => exact(Some(from)),
            },
            Op::Bitcast(_) if u.src()[0].dtype() == u.dtype() => s(0),
            Op::Reshape(_) | Op::Expand(_) | Op::Permute(_) | Op::Shrink(_) => s(0),
            Op::Stage(_) | Op::Let { .. } => s(0),
            Op::Stack => (1..u.src().len()).fold(s(0), |all, k| all.union(s(k))),
            // Out of range reads 0.
            Op::Index => s(0).union(Interval::point(0)),
            Op::Reduce { op, n, .. } => {
                let from = u.src()[0].shape();
                let reduced = &from[from.rank() - *n as usize..];
                let count = reduced.iter().fold(1, |n: usize, &d| n.saturating_mul(d));
                match (op, count) {
                    (_, 0) => whole,
                    (ReduceOp::Max, _) | (_, 1) => s(0),
                    (ReduceOp::Add, _) if is_bool => s(0),
                    (ReduceOp::Add, _) => exact(mul(s(0), Interval::point(count as i128))),
                    (ReduceOp::Mul, _) => whole,
                }
            }
            Op::ArgSort => below(u.shape().last().copied().unwrap_or(0) as i128),
            _ => whole,
        }
    }

    fn source(&self, u: &UOp, k: usize) -> Interval {
        let s = &u.src()[k];
        let unknown = Interval::whole(s.dtype());
        self.known.get(s).copied().unwrap_or(unknown)
    }
}

/// The sources on which a node's bounds depend.
fn relevant(u: &UOp) -> &[UOp] {
    match u.op() {
        Op::Index => &u.src()[..1],
        Op::Range { .. }
        | Op::Stack
        | Op::Stage(_)
        | Op::Let { .. }
        | Op::Reduce { .. }
        | Op::Reshape(_)
        | Op::Expand(_)
        | Op::Permute(_)
        | Op::Shrink(_) => u.src(),
        op if op.is_elementwise() => u.src(),
        _ => &[],
    }
}

/// The counters of a loop or list of at most n.
fn below(n: i128) -> Interval {
    Interval {
        lo: 0,
        hi: (n - 1).max(0),
    }
}

fn add(a: Interval, b: Interval) -> Option<Interval> {
    Some(Interval {
        lo: a.lo.checked_add(b.lo)?,
        hi: a.hi.checked_add(b.hi)?,
    })
}

fn mul(a: Interval, b: Interval) -> Option<Interval> {
    Interval::corners(a, b, i128::checked_mul)
}

fn floor_div(a: Interval, b: Interval) -> Option<Interval> {
    // Between 0 and either end of b the quotient is monotone; at 0 it is 0.
    let divide = |x: i128, y: i128| Some(x.div_euclid(y) - (y < 0 && x.rem_euclid(y) != 0) as i128);
    let mut all = (b.lo <= 0 && b.hi >= 0).then_some(Interval::point(0));
    let parts = [(b.lo, b.hi.min(-1)), (b.lo.max(1), b.hi)];
    for (lo, hi) in parts.into_iter().filter(|(lo, hi)| lo <= hi) {
        let part = Interval::corners(a, Interval { lo, hi }, divide)?;
        all = Some(all.map_or(part, |rest| rest.union(part)));
    }
    all
}

fn floor_mod(a: Interval, b: Interval) -> Interval {
    if let Some(n) = b.value().filter(|&n| n > 0)
        && a.lo.div_euclid(n) == a.hi.div_euclid(n)
    {
        // All of a lies between two neighbouring multiples.
        return Interval {
            lo: a.lo.rem_euclid(n),
            hi: a.hi.rem_euclid(n),
        };
    }
    let mut hi = (b.hi - 1).max(0);
    if a.lo >= 0 && b.lo >= 0 {
        hi = hi.min(a.hi);
    }
    Interval {
        lo: (b.lo + 1).min(0),
        hi,
    }
}

fn and(a: Interval, b: Interval, whole: Interval) -> Interval {
    match (a.lo >= 0, b.lo >= 0) {
        (true, true) => Interval {
            // Known only for bools: true and true.
            lo: if whole.hi == 1 { a.lo.min(b.lo) } else { 0 },
            hi: a.hi.min(b.hi),
        },
        (true, false) => Interval { lo: 0, hi: a.hi },
        (false, true) => Interval { lo: 0, hi: b.hi },
        (false, false) => whole,
    }
}

/// For two intervals from 0 up.
fn or(a: Interval, b: Interval) -> Interval {
    Interval {
        lo: a.lo.max(b.lo),
        hi: ones(a.hi.max(b.hi)),
    }
}

fn xor(a: Interval, b: Interval, whole: Interval) -> Interval {
    match (a.value(), b.value()) {
        (Some(x), Some(y)) => Interval::point(x ^ y),
        (None, Some(1)) | (Some(1), None) if whole.hi == 1 => Interval { lo: 0, hi: 1 },
        _ if a.lo >= 0 && b.lo >= 0 => Interval {
            lo: 0,
            hi: ones(a.hi.max(b.hi)),
        },
        _ => whole,
    }
}

/// The least number of the form 2^k - 1 that is not below x.
fn ones(x: i128) -> i128 {
    if x == 0 {
        0
    } else {
        i128::MAX >> (x.leading_zeros() - 1)
    }
}

fn shift(
    a: Interval,
    amount: Interval,
    dtype: DType,
    f: impl Fn(i128, i128) -> Option<i128>,
) -> Interval {
    let whole = Interval::whole(dtype);
    let in_range = below(dtype.bits() as i128);
    if !amount.within(in_range) {
        return whole;
    }
    match Interval::corners(a, amount, f) {
        Some(interval) if interval.within(whole) => interval,
        _ => whole,
    }
}

fn differ(u: &UOp, a: Interval, b: Interval) -> Interval {
    if u.src()[0] == u.src()[1] || (a == b && a.value().is_some()) {
        Interval::point(0)
    } else if a.hi < b.lo || b.hi < a.lo {
        Interval::point(1)
    } else {
        Interval { lo: 0, hi: 1 }
    }
}
