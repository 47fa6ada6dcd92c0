//! Rangeify: lower one kernel to loops (elsewhere: loop lowering, bufferization).
//!
//! In:       Kernel: a shape graph over parameters.
//! Out:      LoopGraph: statements over loops; movement has become index arithmetic.
//! Keeps:    the value of the root, bit for bit; sums keep their fold.
//! Ensures:  no REDUCE, STAGE or movement op is left; every LOAD below a choice between the parts
//!           of a STACK is gated by that choice, so nothing is read out of bounds.
//! Cost:     linear in nodes times the index maps under which a node is read.
//! Example:  tests/golden/rangeify/sum.uir

mod index;
mod reduce;
mod scan;
mod scatter;
mod sort;
mod value;
mod within;

use crate::error::Result;
use crate::ir::form::{Kernel, LoopGraph};
use crate::ir::op::{Combine, Exec, ParamMode};
use crate::ir::{DType, Op, UOp, verify};

use index::flatten;
use value::Lowering;
use within::Within;

/// Lowers a kernel under the schedule that adds nothing: scalar loops, one for each axis.
///
/// # Errors
/// When the body holds an op that has no loops yet.
pub fn rangeify(kernel: &Kernel) -> Result<LoopGraph> {
    let root = &kernel.body.roots()[0];
    let mut lowering = Lowering::new(index_dtype(root)?, Within::of(root));
    let (slot, _) = kernel.outs[0];
    let out = UOp::param(slot, ParamMode::Out, root.dtype(), root.shape().numel());
    if let Some(parts) = stacked_parts(root) {
        let each: usize = root.shape()[1..].iter().product();
        for (k, part) in parts.iter().enumerate() {
            store(&mut lowering, &out, part, k * each)?;
        }
    } else {
        match root.op() {
            Op::ScatterAdd(_) => scatter::scatter(&mut lowering, &out, root)?,
            Op::Scan(op) => scan::scan(&mut lowering, &out, root, *op)?,
            Op::ArgSort => sort::argsort(&mut lowering, &out, root)?,
            _ => store(&mut lowering, &out, root, 0)?,
        }
    }
    let statements = [lowering.within.statements, lowering.statements].concat();
    verify::loop_graph(kernel.name.clone(), UOp::sink(&statements))
}

/// A STACK at the root is written part by part, which costs no choice for each element.
fn stacked_parts(root: &UOp) -> Option<&[UOp]> {
    matches!(root.op(), Op::Stack).then(|| root.src())
}

/// The statement that writes all of `value` into `out`, from element `offset` on.
fn store(lowering: &mut Lowering, out: &UOp, value: &UOp, offset: usize) -> Result<()> {
    let mut ranges = Vec::new();
    let mut at = Vec::new();
    for &extent in value.shape().iter() {
        let r = lowering.axis(extent, Exec::Serial)?;
        ranges.extend(matches!(r.op(), Op::Range { .. }).then(|| r.clone()));
        at.push(r);
    }
    lowering.within.at = at[..lowering.within.shared].to_vec();
    let scalar = lowering.value(value, &at, None, &ranges)?;
    let flat = flatten(&at, value.shape(), lowering.index_dtype)?;
    let flat = index::add(&flat, offset as i64)?;
    let stored = out.store(&flat, &[scalar], Combine::Set, None)?;
    lowering.statements.push(stored.end(&ranges)?);
    Ok(())
}

/// i32 where every buffer and every tensor of the kernel can be addressed by it, else i64.
fn index_dtype(root: &UOp) -> Result<DType> {
    let nodes = crate::ir::visit::toposort(std::slice::from_ref(root));
    let fits = nodes.iter().all(|u| u.shape().numel() <= i32::MAX as usize);
    Ok(if fits { DType::I32 } else { DType::I64 })
}
