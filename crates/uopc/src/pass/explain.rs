//! What a plan costs and why each of its buffers exists, predicted from its loops.

use std::fmt::Write;

use super::pipeline::{Launch, Lowered};
use crate::ir::form::{LoopGraph, Role, params};
use crate::ir::op::Combine;
use crate::ir::visit::toposort;
use crate::ir::{DType, Op, UOp};

/// Predicted work of one launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Float operations: one for each arithmetic op on floats, two for a multiply-add.
    pub flops: u64,
    /// Bytes of the buffers that it reads and writes, each counted once.
    pub bytes: u64,
}

/// The work of a launch: each statement's operations times the extents of its loops. A loop whose
/// extent is not a constant counts once. What u64 does not hold is the largest it does.
pub fn cost(loops: &LoopGraph) -> Cost {
    let flops = loops.statements().iter().map(statement_flops);
    let params = params(loops.sink());
    let bytes = params
        .iter()
        .map(|&(_, _, d, n)| d.size().saturating_mul(n) as u64);
    Cost {
        flops: flops.fold(0, u64::saturating_add),
        bytes: bytes.fold(0, u64::saturating_add),
    }
}

/// Float operations that take about as long as moving a byte does.
const BYTE: f64 = 4.0;

/// What a launch costs when it runs once more, in float operations: those that it does, and what it
/// moves.
pub fn weight(launch: &Launch) -> f64 {
    let cost = cost(&launch.plain);
    cost.flops as f64 + BYTE * cost.bytes as f64
}

/// About how many steps a launch takes, for guesses of its time: each statement's store, loads and
/// operations of any dtype times the extents of its loops. An operation of many instructions counts
/// for several. What a compiler moves out of a loop or does in vectors is counted in full.
pub fn steps(loops: &LoopGraph) -> u64 {
    let each = loops.statements().iter().map(|end| {
        let extents = end.src()[1..].iter().map(extent);
        let points = extents.fold(1, u64::saturating_mul);
        let values = toposort(&end.src()[0].src()[1..]);
        let once: u64 = values.iter().map(node_steps).sum();
        points.saturating_mul(1 + once)
    });
    each.fold(0, u64::saturating_add)
}

/// How many steps a division or a transcendental function is worth.
const SLOW: u64 = 16;

fn node_steps(u: &UOp) -> u64 {
    match u.op() {
        Op::Recip | Op::Div | Op::Sqrt | Op::FloorDiv | Op::FloorMod => SLOW,
        Op::Exp | Op::Exp2 | Op::Log2 | Op::Sin(_) => SLOW,
        Op::Load => 1,
        op => op.is_elementwise().into(),
    }
}

fn statement_flops(end: &UOp) -> u64 {
    let store = &end.src()[0];
    let extents = end.src()[1..].iter().map(extent);
    let points = extents.fold(1, u64::saturating_mul);
    let combined = match store.op() {
        Op::Store {
            combine: Combine::Set,
            ..
        } => 0,
        Op::Store {
            combine: Combine::MulAcc,
            ..
        } => 2,
        _ => 1,
    };
    let own = if store.src()[0].dtype().is_float() {
        combined
    } else {
        0
    };
    let each: u64 = toposort(&store.src()[1..]).iter().map(node_flops).sum();
    points.saturating_mul(own + each)
}

fn node_flops(u: &UOp) -> u64 {
    let float = |d: DType| d.is_float();
    if !u.op().is_elementwise() || !u.src().iter().any(|s| float(s.dtype())) {
        return 0;
    }
    match u.op() {
        Op::MulAcc => 2,
        Op::Cast(_) | Op::Bitcast(_) | Op::Where => 0,
        _ => 1,
    }
}

fn extent(range: &UOp) -> u64 {
    match range.src()[0].op() {
        Op::Const(n) => n.as_i128().max(0) as u64,
        _ => 1,
    }
}

/// The kernels of a plan with their work, and for each buffer its size and the reason why the
/// value is stored.
pub fn explain(lowered: &Lowered) -> String {
    let mut text = String::new();
    let plan = &lowered.plan;
    for (kernel, launch) in plan.kernels.iter().zip(&lowered.launches) {
        let Cost { flops, bytes } = cost(&launch.plain);
        let reads: Vec<String> = kernel.ins.iter().map(|(_, b)| format!("b{b}")).collect();
        let writes: Vec<String> = kernel.outs.iter().map(|(_, b)| format!("b{b}")).collect();
        let (name, reads, writes) = (&kernel.name, reads.join(" "), writes.join(" "));
        line(
            &mut text,
            format!("{name}: {writes} from [{reads}], {flops} flops, {bytes} bytes"),
        );
    }
    for (b, buffer) in plan.buffers.iter().enumerate() {
        let role = match buffer.role {
            Role::Input(slot) => format!("input slot {slot}"),
            Role::Output => "output".to_string(),
            Role::Temporary => "temporary".to_string(),
        };
        let (dtype, n, reason) = (buffer.dtype, buffer.n, &buffer.reason);
        line(&mut text, format!("b{b}: {dtype} x {n}, {role}, {reason}"));
    }
    text
}

fn line(text: &mut String, what: String) {
    writeln!(text, "{what}").expect("writing to a string cannot fail");
}
