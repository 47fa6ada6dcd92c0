//! What statements cost, roughly: how wide their vectors are, how many cycles they take.
//!
//! Costs steer choices between layouts and never change a value. They are cycles of one core on
//! data that is in the cache.

use super::affine::stride;
use super::nest::{Statement, extent_of, is_range};
use crate::ir::bounds::Bounds;
use crate::ir::visit::Graph;
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
/// Cycles more for a division of integers in vector code: no machine divides them in lanes.
const LANE_BY_LANE: f64 = 2.0;

/// A statement, looked at for its costs.
pub struct Cost {
    /// Everything that it computes, indices included.
    graph: Graph,
    /// Whether a node is computed with, and not only an index that follows from loop counters.
    is_data: Vec<bool>,
    /// Where it stores.
    index: UOp,
    /// Lanes that fill a vector with the widest dtype that it computes with. Truths and narrow
    /// floats take the room of an f32.
    pub lanes: usize,
    /// How often it runs; a loop of varying length counts as its longest.
    pub runs: f64,
    /// Cycles of one run as a scalar.
    pub scalar: f64,
}

impl Cost {
    /// Looks at a statement.
    pub fn of(s: &Statement, machine: &Machine) -> Cost {
        let roots = s.roots();
        let graph = Graph::new(&roots);
        let is_data = data(&graph);
        let mut cost = Cost {
            graph,
            is_data,
            index: s.index.clone(),
            lanes: 1,
            runs: runs(s),
            scalar: 1.0,
        };
        let mut widest = room(s.memory.dtype());
        for u in cost.data() {
            if !matches!(u.op(), Op::Const(_)) {
                widest = widest.max(room(u.dtype()));
            }
        }
        let each = |u: &UOp| match u.op() {
            Op::Load => 0.5,
            _ => op_cost(u) * 1.2,
        };
        cost.scalar += cost.data().map(each).sum::<f64>();
        cost.lanes = machine.lanes(widest).clamp(2, 64);
        cost
    }

    fn data(&self) -> impl Iterator<Item = &UOp> {
        let nodes = self.graph.nodes.iter().zip(&self.is_data);
        nodes.filter(|(_, data)| **data).map(|(u, _)| u)
    }

    /// Cycles of one run, spread over the lanes, if it runs in lanes of a range; `None` where
    /// vector code would be no better.
    pub fn vector(&self, range: &UOp) -> Option<f64> {
        let n = extent_of(range)? as f64;
        let width = self.lanes as f64;
        let used = (n / width).ceil() * width / n;
        let mut cost = access(&self.index, range, width) + 1.0 / width;
        let mut follows: Vec<bool> = Vec::with_capacity(self.graph.len());
        for (i, u) in self.graph.nodes.iter().enumerate() {
            let below = || self.graph.src(i).iter().any(|&s| follows[s as usize]);
            let follow = u == range || (!is_range(u) && below());
            follows.push(follow);
            cost += match u.op() {
                Op::Load if self.is_data[i] => access(&u.src()[1], range, width),
                Op::FloorDiv | Op::FloorMod if follow => op_cost(u) + LANE_BY_LANE,
                _ if follow && self.is_data[i] => op_cost(u) / width,
                _ => 0.0,
            };
        }
        let cost = cost * used;
        (cost < self.scalar).then_some(cost)
    }
}

/// Which nodes are computed with. The roots are the index, then the values and the gate.
fn data(graph: &Graph) -> Vec<bool> {
    let mut loads: Vec<bool> = Vec::with_capacity(graph.len());
    for (i, u) in graph.nodes.iter().enumerate() {
        let below = graph.src(i).iter().any(|&s| loads[s as usize]);
        loads.push(matches!(u.op(), Op::Load) || (below && !is_range(u)));
    }
    let mut is_data = vec![false; graph.len()];
    for &root in &graph.roots[1..] {
        is_data[root as usize] = true;
    }
    for (i, u) in graph.nodes.iter().enumerate().rev() {
        if is_range(u) {
            is_data[i] = false;
        }
        if !is_data[i] {
            continue;
        }
        for (k, &s) in graph.src(i).iter().enumerate() {
            let index = matches!(u.op(), Op::Load) && (k == 0 || !loads[s as usize]);
            is_data[s as usize] |= !index;
        }
    }
    is_data
}

/// Bytes that an element takes in a vector.
fn room(dtype: DType) -> usize {
    match dtype {
        DType::Bool | DType::F16 | DType::BF16 => 4,
        other => other.size(),
    }
}

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

fn access(index: &UOp, range: &UOp, width: f64) -> f64 {
    match stride(index, range) {
        Some(0) => BROADCAST,
        Some(1) => 0.5 / width,
        _ => GATHER,
    }
}

/// How often a statement runs; a loop of varying length counts as its longest.
pub fn runs(s: &Statement) -> f64 {
    let longest = |r: &UOp| match extent_of(r) {
        Some(n) => n as f64,
        None => (Bounds::new().of(r).hi + 1) as f64,
    };
    s.ranges.iter().map(longest).product()
}

/// Bytes that a statement moves in one run, for loads and stores that move with its inner loop.
pub fn bytes(s: &Statement) -> f64 {
    let Some(inner) = s.ranges.last() else {
        return 0.0;
    };
    let loads = s.loads();
    let loads = loads.iter().map(|l| (&l.src()[0], &l.src()[1]));
    let all = loads.chain(std::iter::once((&s.memory, &s.index)));
    let moves = all.filter(|(memory, index)| {
        matches!(memory.op(), Op::Param { .. }) && stride(index, inner) != Some(0)
    });
    moves.map(|(memory, _)| memory.dtype().size() as f64).sum()
}
