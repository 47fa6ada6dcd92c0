//! Which iterations of a loop touch the same memory (elsewhere: dependence analysis).
//!
//! Answers err on the safe side: "independent" is proved from strides, bounds and gates, all else
//! counts as dependent.

use smallvec::SmallVec;

use super::nest::{Nest, Statement, is_range, ranges_of};
use crate::ir::affine::Linear;
use crate::ir::bounds::Bounds;
use crate::ir::op::{Combine, Space};
use crate::ir::visit::toposort;
use crate::ir::{Op, UOp};

/// One access of a statement to a memory.
#[derive(Clone, Debug)]
pub struct Access {
    /// Where.
    pub index: UOp,
    /// When; always, if there is none.
    pub gate: Option<UOp>,
    /// Whether it stores.
    pub writes: bool,
}

impl Access {
    /// The store of a statement.
    pub fn store(s: &Statement) -> Access {
        Access {
            index: s.index.clone(),
            gate: s.gate.clone(),
            writes: true,
        }
    }
}

/// What a statement does to a memory, its store first.
pub fn accesses(s: &Statement, memory: &UOp) -> Vec<Access> {
    let mut all = Vec::new();
    if s.memory == *memory {
        all.push(Access::store(s));
    }
    for load in s.loads() {
        if load.src()[0] == *memory {
            all.push(Access {
                index: load.src()[1].clone(),
                gate: load.src().get(2).cloned(),
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
pub fn independent(a: &Access, b: &Access, range: &UOp, fixed: &[UOp]) -> bool {
    let whole = [Linear::of(&a.index), Linear::of(&b.index)];
    let mut apart = whole.clone();
    cancel(&mut apart, fixed);
    let gates = [bounded(a), bounded(b)];
    let mut bounds = Bounds::new();
    digit(&apart, &gates, range, &mut bounds) || digit(&whole, &gates, range, &mut bounds)
}

/// Whether a store names each element in at most one iteration of a range.
pub fn keyed(s: &Statement, range: &UOp, fixed: &[UOp]) -> bool {
    let store = Access::store(s);
    ranges_of(&s.index).contains(range) && independent(&store, &store, range, fixed)
}

/// Drops what is the same number in both sums.
fn cancel(sums: &mut [Linear; 2], fixed: &[UOp]) {
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

/// What a gate says: sums that are below a constant.
fn bounded(access: &Access) -> Vec<(Linear, i128)> {
    let mut found = Vec::new();
    let mut pending: Vec<UOp> = access.gate.iter().cloned().collect();
    while let Some(u) = pending.pop() {
        match (u.op(), u.src()) {
            (Op::And, [a, b]) => pending.extend([a.clone(), b.clone()]),
            (Op::CmpLt, [sum, limit]) => {
                if let Op::Const(limit) = limit.op()
                    && sum.dtype().is_int()
                {
                    found.push((Linear::of(sum), limit.as_i128()));
                }
            }
            _ => {}
        }
    }
    found
}

/// Part of an index: a term, or terms whose sum a gate bounds.
struct Part {
    factor: i128,
    lo: i128,
    hi: i128,
    /// What it is, if the range is in it.
    holds: Option<Linear>,
}

/// The parts of a sum; `None` where a term besides the range depends on it, or has no bounds.
fn parts(
    sum: &Linear,
    gates: &[(Linear, i128)],
    range: &UOp,
    bounds: &mut Bounds,
) -> Option<Vec<Part>> {
    let mut left = sum.clone();
    let mut parts = Vec::new();
    for (gate, limit) in gates.iter().filter(|(gate, _)| gate.terms.len() > 1) {
        let factor_of = |(u, k): &(UOp, i128)| {
            let factor = left.coefficient(u);
            (factor != 0 && factor % k == 0).then_some(factor / k)
        };
        let factors: Option<SmallVec<[i128; 4]>> = gate.terms.iter().map(factor_of).collect();
        let Some(factor) = factors.and_then(|f| f.iter().all(|k| *k == f[0]).then_some(f[0]))
        else {
            continue;
        };
        left.terms.retain(|(u, _)| gate.coefficient(u) == 0);
        let value = Linear {
            constant: 0,
            ..gate.clone()
        };
        let of = value.bounds(bounds)?;
        parts.push(Part {
            factor,
            lo: of.lo,
            hi: of.hi.min(limit - 1 - gate.constant),
            holds: (value.coefficient(range) != 0).then_some(value),
        });
    }
    for (u, factor) in &left.terms {
        if u != range && !is_range(u) && ranges_of(u).contains(range) {
            return None;
        }
        let of = bounds.of(u);
        let holds = (u == range).then(|| Linear::of(u));
        parts.push(Part {
            factor: *factor,
            lo: of.lo,
            hi: of.hi,
            holds,
        });
    }
    Some(parts)
}

/// Whether two indices are apart for different values of a range: by their bounds, or because the
/// range is a digit of both. Then smaller parts stay below its stride, larger ones are multiples of
/// something above its reach.
fn digit(
    sums: &[Linear; 2],
    gates: &[Vec<(Linear, i128)>; 2],
    range: &UOp,
    bounds: &mut Bounds,
) -> bool {
    let [Some(first), Some(second)] = [0, 1].map(|k| parts(&sums[k], &gates[k], range, bounds))
    else {
        return false;
    };
    let reach = |parts: &[Part], sum: &Linear| {
        parts
            .iter()
            .fold((sum.constant, sum.constant), |window, part| {
                widen(window, part)
            })
    };
    let (a, b) = (reach(&first, &sums[0]), reach(&second, &sums[1]));
    if a.1 < b.0 || b.1 < a.0 {
        return true;
    }
    let holder = |parts: &[Part]| parts.iter().position(|part| part.holds.is_some());
    let (Some(i), Some(j)) = (holder(&first), holder(&second)) else {
        return false;
    };
    let (own, other) = (&first[i], &second[j]);
    if own.factor != other.factor || own.holds != other.holds {
        return false;
    }
    let stride = own.factor.abs();
    let (lo, hi) = (own.lo.min(other.lo), own.hi.max(other.hi));
    let span = stride.saturating_mul((hi - lo).max(0));
    let mut larger: i128 = 0;
    let mut windows = [(0, 0), (sums[1].constant - sums[0].constant, 0)];
    windows[1].1 = windows[1].0;
    if windows[1].0.abs() > span {
        larger = windows[1].0.abs();
        windows[1] = (0, 0);
    }
    for (parts, window, at) in [(&first, 0, i), (&second, 1, j)] {
        for (k, part) in parts.iter().enumerate() {
            if k != at && part.factor.abs() > span {
                larger = gcd(larger, part.factor.abs());
            } else if k != at {
                windows[window] = widen(windows[window], part);
            }
        }
    }
    let [a, b] = windows;
    let window = a.1.max(b.1).saturating_sub(a.0.min(b.0));
    if window >= stride || larger != 0 && span.saturating_add(window) >= larger {
        return false;
    }
    match &own.holds {
        // The index tells what the sum is; that must tell what the range is.
        Some(sum) if sum.terms.len() > 1 => {
            let sums = [sum.clone(), sum.clone()];
            digit(&sums, &[Vec::new(), Vec::new()], range, bounds)
        }
        _ => true,
    }
}

fn widen(window: (i128, i128), part: &Part) -> (i128, i128) {
    let ends = [part.lo, part.hi].map(|end| end.saturating_mul(part.factor));
    (
        window.0.saturating_add(ends[0].min(ends[1])),
        window.1.saturating_add(ends[0].max(ends[1])),
    )
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

/// A scratch memory, and who uses it.
#[derive(Clone, Debug)]
pub struct Scratch {
    /// The memory.
    pub local: UOp,
    /// The statements that name it.
    pub named: Vec<usize>,
    /// The loops in which it lives: those that all of them share.
    pub scope: Vec<UOp>,
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

    /// All scratch memory with its users and scopes, in the order in which it is first named.
    pub fn scratch(&self) -> Vec<Scratch> {
        let mut all: Vec<Scratch> = Vec::new();
        for (k, s) in self.statements.iter().enumerate() {
            for local in memories(s) {
                if !matches!(local.op(), Op::Local { .. }) {
                    continue;
                }
                match all.iter_mut().find(|m| m.local == local) {
                    Some(m) => {
                        m.named.push(k);
                        m.scope.truncate(common(&m.scope, &s.ranges));
                    }
                    None => all.push(Scratch {
                        local,
                        named: vec![k],
                        scope: s.ranges.clone(),
                    }),
                }
            }
        }
        all
    }

    /// All scratch memory, in the order in which it is first named.
    pub fn locals(&self) -> Vec<UOp> {
        self.scratch().into_iter().map(|m| m.local).collect()
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
