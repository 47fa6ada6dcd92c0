//! Derivatives of running combinations.
//!
//! A running sum is linear; its transpose is the running sum from the end. A running product is a
//! linear recurrence, `u_k = x_k u_(k-1)`, and so are its tangent and its cotangent; those are solved
//! pairwise, without a division, so that any number of zeros is right. A running maximum copies:
//! what it copies from is found by comparing, and read or added to.

use crate::error::Result;
use crate::ir::composite::{flip, zeros_like};
use crate::ir::dtype::DType;
use crate::ir::op::ReduceOp;
use crate::ir::recurrence::{recurrence, shifted};
use crate::ir::uop::UOp;

/// The cotangent of x, given that of `u = scan(op, x)`.
pub(super) fn pull_scan(op: ReduceOp, u: &UOp, g: &UOp) -> Result<UOp> {
    let x = &u.src()[0];
    if x.shape().numel() == 0 {
        return zeros_like(x);
    }
    match op {
        // u_k = x_0 + ... + x_k: x_j is in all from j on.
        ReduceOp::Add => backwards(&backwards(g)?.scan(ReduceOp::Add)?),
        // du_k/dx_j = (x_0 ... x_(j-1)) (x_(j+1) ... x_k). The sum over k of g_k times the second
        // factor is r_j = g_j + x_(j+1) r_(j+1).
        ReduceOp::Mul => {
            let wide = x.dtype().accumulator();
            let (x, g) = (x.cast(wide)?, g.cast(wide)?);
            let r = backwards(&recurrence(
                &shifted(&backwards(&x)?, 1.0)?,
                &backwards(&g)?,
            )?)?;
            r.mul(&shifted(&x.scan(ReduceOp::Mul)?, 1.0)?)?
                .cast(u.dtype())
        }
        // u_k = x at the place that holds the maximum up to k.
        ReduceOp::Max => {
            let at = holders(u)?;
            let rows = rows_of(x);
            let g = g.reshape(&rows)?.scatter_add(&at, &rows)?;
            g.reshape(x.shape())
        }
    }
}

/// The tangent of `u = scan(op, x)`, given that of x.
pub(super) fn push_scan(op: ReduceOp, u: &UOp, t: &UOp) -> Result<UOp> {
    let x = &u.src()[0];
    if x.shape().numel() == 0 {
        return zeros_like(x);
    }
    match op {
        ReduceOp::Add => t.scan(ReduceOp::Add),
        // du_k = dx_k u_(k-1) + x_k du_(k-1).
        ReduceOp::Mul => {
            let wide = x.dtype().accumulator();
            let (x, t) = (x.cast(wide)?, t.cast(wide)?);
            let own = t.mul(&shifted(&x.scan(ReduceOp::Mul)?, 1.0)?)?;
            recurrence(&x, &own)?.cast(u.dtype())
        }
        ReduceOp::Max => {
            let read = t.reshape(&rows_of(x))?.index(&holders(u)?)?;
            read.reshape(x.shape())
        }
    }
}

/// Whether elements of x hold the running maximum u of x at their own place, or are NaN.
pub(super) fn is_record(u: &UOp) -> Result<UOp> {
    let x = &u.src()[0];
    x.cmpne(u)?.logical_not()?.or(&x.cmpne(x)?)
}

/// The places of the elements that hold a running maximum, as indices into rows. Of equal ones that
/// is the last so far, and from the first NaN on it is the last NaN.
fn holders(u: &UOp) -> Result<[UOp; 2]> {
    let shape = rows_of(u);
    let [rows, n] = shape;
    let dtype = match u.shape().numel() <= i32::MAX as usize {
        true => DType::I32,
        false => DType::I64,
    };
    let own = UOp::iota(n, dtype)?.reshape(&[1, n])?.expand(&shape)?;
    let record = is_record(u)?.reshape(&shape)?;
    let at = record.where_(&own, &zeros_like(&own)?)?;
    let row = UOp::iota(rows, dtype)?.reshape(&[rows, 1])?;
    Ok([row.expand(&shape)?, at.scan(ReduceOp::Max)?])
}

/// The shape of a value of some elements as rows along its last axis.
fn rows_of(x: &UOp) -> [usize; 2] {
    let n = x.shape().last().copied().unwrap_or(1).max(1);
    [x.shape().numel() / n, n]
}

fn backwards(x: &UOp) -> Result<UOp> {
    flip(x, &[x.shape().rank() - 1])
}
