//! What statements cost, roughly: how wide their vectors are, how many cycles they take.
//!
//! Costs steer choices between layouts and never change a value. They are cycles of one core on
//! data that is in the cache.

use rustc_hash::FxHashSet;

use super::affine::stride;
use super::nest::{Statement, extent_of, is_range, ranges_of};
use crate::ir::bounds::Bounds;
use crate::ir::visit::toposort;
use crate::ir::{DType, Op, UOp};
use crate::machine::Machine;

/// Cycles of work from which on a loop is shared out among threads: some 25 microseconds.
pub const SHARED_WORK: f64 = 80_000.0;
/// Cycles of work that a thread takes at once, at least: some 5 microseconds.
pub const PIECE_WORK: f64 = 16_000.0;
/// Cycles for an element that is gathered or scattered alone.
const GATHER: f64 = 1.0;
/// Cycles for a value that is the same in all lanes.
const BROADCAST: f64 = 0.03;

/// Cycles of an op on one vector or scalar.
fn op_cost(u: &UOp) -> f64 {
    let by_constant = || matches!(u.src()[1].op(), Op::Const(_));
    match u.op() {
        Op::Exp | Op::Exp2 | Op::Log2 | Op::Sin(_) => 16.0,
        Op::Div | Op::Recip | Op::Sqrt => 6.0,
        Op::FloorDiv | Op::FloorMod if by_constant() => 3.0,
        Op::FloorDiv | Op::FloorMod => 20.0,
        op if op.is_elementwise() => 0.5,
        _ => 0.0,
    }
}

/// The nodes that a statement computes with: its values and gate and what they are made of, but
/// not indices that follow from loop counters alone.
fn data(s: &Statement) -> Vec<UOp> {
    let mut roots: Vec<UOp> = s.values.to_vec();
    roots.extend(s.gate.clone());
    let mut met: FxHashSet<UOp> = FxHashSet::default();
    let mut all = Vec::new();
    let mut pending = roots;
    while let Some(u) = pending.pop() {
        if is_range(&u) || !met.insert(u.clone()) {
            continue;
        }
        let below = match u.op() {
            Op::Load => {
                let reads = |s: &UOp| {
                    let nodes = toposort(std::slice::from_ref(s));
                    nodes.iter().any(|v| matches!(v.op(), Op::Load))
                };
                u.src()[1..].iter().filter(|s| reads(s)).cloned().collect()
            }
            _ => u.src().to_vec(),
        };
        pending.extend(below);
        all.push(u);
    }
    all
}

/// Lanes that fill a vector with the widest dtype that a statement computes with. Truths and
/// narrow floats take the room of an f32.
pub fn lanes_of(s: &Statement, machine: &Machine) -> usize {
    let room = |dtype: DType| match dtype {
        DType::Bool | DType::F16 | DType::BF16 => 4,
        other => other.size(),
    };
    let nodes = data(s);
    let values = nodes.iter().filter(|u| !matches!(u.op(), Op::Const(_)));
    let widest = values.map(|u| room(u.dtype())).max().unwrap_or(4);
    machine
        .lanes(widest.max(room(s.memory.dtype())))
        .clamp(2, 64)
}

/// How often a statement runs; a loop of varying length counts as its longest.
pub fn runs(s: &Statement) -> f64 {
    let mut bounds = Bounds::new();
    let longest = |r: &UOp| match extent_of(r) {
        Some(n) => n as f64,
        None => (bounds.of(r).hi + 1) as f64,
    };
    s.ranges.iter().map(longest).product()
}

/// Cycles of one run of a statement that is a scalar.
pub fn scalar_cost(s: &Statement) -> f64 {
    let nodes = data(s);
    let ops: f64 = nodes.iter().map(op_cost).sum();
    let loads = nodes.iter().filter(|u| matches!(u.op(), Op::Load)).count();
    1.0 + ops * 1.2 + loads as f64 * 0.5
}

/// Cycles of one run of a statement, spread over the lanes if it runs in lanes of a range; `None`
/// where vector code would be no better.
pub fn vector_cost(s: &Statement, range: &UOp, lanes: usize) -> Option<f64> {
    let n = extent_of(range)? as f64;
    let width = lanes as f64;
    let used = (n / width).ceil() * width / n;
    let mut cost = 0.0;
    for u in data(s) {
        let follows = ranges_of(&u).contains(range);
        cost += match u.op() {
            Op::Load => access_cost(&u.src()[1], range, width),
            // No machine divides integers in lanes.
            Op::FloorDiv | Op::FloorMod if follows => op_cost(&u) + 2.0,
            _ if follows => op_cost(&u) / width,
            _ => 0.0,
        };
    }
    for load in s.loads() {
        for u in toposort(&load.src()[1..2]) {
            let divides = matches!(u.op(), Op::FloorDiv | Op::FloorMod);
            if divides && ranges_of(&u).contains(range) {
                cost += op_cost(&u) + 2.0;
            }
        }
    }
    cost += access_cost(&s.index, range, width);
    let cost = (cost + 1.0 / width) * used;
    (cost < scalar_cost(s)).then_some(cost)
}

fn access_cost(index: &UOp, range: &UOp, width: f64) -> f64 {
    match stride(index, range) {
        Some(0) => BROADCAST,
        Some(1) => 0.5 / width,
        _ => GATHER,
    }
}

/// Bytes that a statement moves in one run, for loads and stores that move with its inner loops.
pub fn bytes(s: &Statement) -> f64 {
    let mut total = 0.0;
    let mut count = |index: &UOp, memory: &UOp| {
        let inner = s.ranges.last();
        if matches!(memory.op(), Op::Param { .. })
            && inner.is_some_and(|r| ranges_of(index).contains(r))
        {
            total += memory.dtype().size() as f64;
        }
    };
    for load in s.loads() {
        count(&load.src()[1], &load.src()[0]);
    }
    count(&s.index, &s.memory);
    total
}
