//! The statements of a SCATTER_ADD: zeros, then the rows one after the other, each added where its
//! indices say.
//!
//! The loops over the indices are outside and in order, so each element is a sum in the order of the
//! rows. The work is that of the zeros and of the rows that are added, whatever the indices are.
//! f16 and bf16 are summed in f32 scratch memory and rounded once.

use super::index::flatten;
use super::value::{Lowering, only_loops, place};
use crate::error::Result;
use crate::ir::op::{Combine, Exec, Space};
use crate::ir::{Scalar, UOp};

/// Writes the statements that fill `out` with the node's value.
///
/// # Errors
/// When a source holds an op that has no loops yet.
pub fn scatter(lowering: &mut Lowering, out: &UOp, node: &UOp) -> Result<()> {
    let (rows, indices) = (&node.src()[0], &node.src()[1..]);
    let (dtype, n) = (node.dtype(), node.shape().numel());
    let wide = dtype.accumulator();
    let sums = match dtype == wide {
        true => out.clone(),
        false => lowering.local(Space::Arena, wide, n),
    };
    let zero = UOp::constant(Scalar::zero(wide));
    each(lowering, n, |i| {
        sums.store(i, std::slice::from_ref(&zero), Combine::Set, None)
    })?;
    if rows.shape().numel() > 0 {
        add_rows(lowering, &sums, node, rows, indices)?;
    }
    if sums != *out {
        each(lowering, n, |i| {
            let rounded = sums.load(i, None)?.cast(dtype)?;
            out.store(i, &[rounded], Combine::Set, None)
        })?;
    }
    Ok(())
}

/// A statement for each of `n` elements.
fn each(lowering: &mut Lowering, n: usize, store: impl Fn(&UOp) -> Result<UOp>) -> Result<()> {
    let i = lowering.axis(n, Exec::Serial)?;
    let end = store(&i)?.end(&only_loops(std::slice::from_ref(&i)))?;
    lowering.statements.push(end);
    Ok(())
}

fn add_rows(
    lowering: &mut Lowering,
    sums: &UOp,
    node: &UOp,
    rows: &UOp,
    indices: &[UOp],
) -> Result<()> {
    let mut at = Vec::new();
    for &extent in rows.shape().iter() {
        at.push(lowering.axis(extent, Exec::Serial)?);
    }
    let ranges = only_loops(&at);
    let (of_row, within_row) = at.split_at(indices[0].shape().rank());
    let mut known = Vec::new();
    for index in indices {
        known.push(lowering.value(index, of_row, None, &ranges)?);
    }
    let dtype = lowering.index_dtype;
    let (mut to, inside) = place(&known, node.shape(), dtype)?;
    to.extend_from_slice(within_row);
    let value = lowering
        .value(rows, &at, None, &ranges)?
        .cast(sums.dtype())?;
    let to = flatten(&to, node.shape(), dtype)?;
    let store = sums.store(&to, &[value], Combine::Add, Some(&inside))?;
    lowering.statements.push(store.end(&ranges)?);
    Ok(())
}
