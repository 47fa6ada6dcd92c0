//! The statements of a SCAN: a value that is carried along the last axis, and stored at each step.
//!
//! Each row is one sequence from its first element to its last, so rows are independent and a row
//! is not: its order is part of the op. f16 and bf16 are combined in f32, and each element is
//! rounded once.

use super::index::{constant, flatten};
use super::value::{Lowering, only_loops};
use crate::error::Result;
use crate::ir::op::{Combine, Exec, ReduceOp, Space};
use crate::ir::{Scalar, UOp};

/// Writes the statements that fill `out` with the node's value.
///
/// # Errors
/// When the source holds an op that has no loops yet.
pub fn scan(lowering: &mut Lowering, out: &UOp, node: &UOp, op: ReduceOp) -> Result<()> {
    let (x, shape) = (&node.src()[0], node.shape());
    // A maximum is exact in any dtype.
    let wide = match op {
        ReduceOp::Add | ReduceOp::Mul => node.dtype().accumulator(),
        ReduceOp::Max => node.dtype(),
    };
    let mut at = Vec::new();
    for &extent in shape.iter() {
        at.push(lowering.axis(extent, Exec::Serial)?);
    }
    let loops = only_loops(&at);
    let around = only_loops(&at[..shape.rank() - 1]);
    let carried = lowering.local(Space::Reg, wide, 1);
    let zero = constant(0, lowering.index_dtype);
    let start = UOp::constant(Scalar::identity(op, wide));
    let begin = carried.store(&zero, &[start], Combine::Set, None)?;
    lowering.statements.push(begin.end(&around)?);
    let value = lowering.value(x, &at, None, &loops)?.cast(wide)?;
    let step = carried.store(&zero, &[value], op.into(), None)?;
    lowering.statements.push(step.end(&loops)?);
    let to = flatten(&at, shape, lowering.index_dtype)?;
    let so_far = carried.load(&zero, None)?.cast(node.dtype())?;
    let store = out.store(&to, &[so_far], Combine::Set, None)?;
    lowering.statements.push(store.end(&loops)?);
    Ok(())
}
