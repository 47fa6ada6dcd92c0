//! Index arithmetic of movement ops: where an element of the result comes from in the source.
//!
//! An index is one scalar node for each axis. Only what costs nothing is simplified here (zeros,
//! ones, constants); the rules for division and modulo do the rest after the loops stand.

use crate::error::Result;
use crate::ir::op::Op;
use crate::ir::{DType, Scalar, UOp};

/// An index constant.
pub fn constant(value: i64, dtype: DType) -> UOp {
    UOp::int(value, dtype)
}

/// The value of an index that is a constant.
pub fn as_constant(index: &UOp) -> Option<i64> {
    match index.op() {
        Op::Const(value) => Some(value.as_i128() as i64),
        _ => None,
    }
}

/// `index + n`.
pub fn add(index: &UOp, n: i64) -> Result<UOp> {
    match as_constant(index) {
        _ if n == 0 => Ok(index.clone()),
        Some(c) => Ok(constant(c + n, index.dtype())),
        None => index.add(&constant(n, index.dtype())),
    }
}

/// `index * n`.
pub fn mul(index: &UOp, n: usize) -> Result<UOp> {
    match as_constant(index) {
        _ if n == 1 => Ok(index.clone()),
        Some(c) => Ok(constant(c * n as i64, index.dtype())),
        None if n == 0 => Ok(constant(0, index.dtype())),
        None => index.mul(&constant(n as i64, index.dtype())),
    }
}

fn div(index: &UOp, n: usize) -> Result<UOp> {
    match as_constant(index) {
        _ if n == 1 => Ok(index.clone()),
        Some(c) if n > 0 => Ok(constant(c.div_euclid(n as i64), index.dtype())),
        _ => index.floordiv(&constant(n as i64, index.dtype())),
    }
}

fn modulo(index: &UOp, n: usize) -> Result<UOp> {
    match as_constant(index) {
        _ if n == 1 => Ok(constant(0, index.dtype())),
        Some(c) if n > 0 => Ok(constant(c.rem_euclid(n as i64), index.dtype())),
        _ => index.floormod(&constant(n as i64, index.dtype())),
    }
}

/// `a + b`.
pub fn sum(a: &UOp, b: &UOp) -> Result<UOp> {
    match (as_constant(a), as_constant(b)) {
        (_, Some(n)) => add(a, n),
        (Some(n), _) => add(b, n),
        _ => a.add(b),
    }
}

/// The row-major position of an index in a shape.
pub fn flatten(at: &[UOp], shape: &[usize], dtype: DType) -> Result<UOp> {
    let mut flat = constant(0, dtype);
    let mut stride = 1;
    let mut terms = Vec::new();
    for (i, &extent) in at.iter().zip(shape).rev() {
        terms.push(mul(i, stride)?);
        stride *= extent;
    }
    // The largest stride comes first, as one would write it.
    for term in terms.iter().rev() {
        flat = sum(&flat, term)?;
    }
    Ok(flat)
}

/// The index in a shape of a row-major position.
pub fn unflatten(flat: &UOp, shape: &[usize]) -> Result<Vec<UOp>> {
    let mut at = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for (k, &extent) in shape.iter().enumerate().rev() {
        let outermost = shape[..k].iter().all(|&d| d == 1);
        let digit = div(flat, stride)?;
        at.push(match extent {
            1 => constant(0, flat.dtype()),
            _ if outermost => digit,
            _ => modulo(&digit, extent)?,
        });
        stride *= extent;
    }
    at.reverse();
    Ok(at)
}

/// The index in a RESHAPE's source of an index in its result.
///
/// Axes are matched in groups of equal extent, so that what a reshape leaves alone is not
/// divided and put together again.
pub fn reshape(at: &[UOp], from: &[usize], to: &[usize], dtype: DType) -> Result<Vec<UOp>> {
    if from.contains(&0) {
        return Ok(vec![constant(0, dtype); from.len()]);
    }
    let mut out = Vec::with_capacity(from.len());
    let (mut f, mut t) = (0, 0);
    while f < from.len() || t < to.len() {
        let (f0, t0) = (f, t);
        let (mut nf, mut nt) = (1, 1);
        if f < from.len() {
            nf *= from[f];
            f += 1;
        }
        if t < to.len() {
            nt *= to[t];
            t += 1;
        }
        while nf != nt {
            if nf < nt {
                nf *= from[f];
                f += 1;
            } else {
                nt *= to[t];
                t += 1;
            }
        }
        let flat = flatten(&at[t0..t], &to[t0..t], dtype)?;
        out.extend(unflatten(&flat, &from[f0..f])?);
    }
    Ok(out)
}

/// The index in a movement op's source of an index in its result.
pub fn source_index(u: &UOp, at: &[UOp], dtype: DType) -> Result<Vec<UOp>> {
    let from = u.src()[0].shape();
    match u.op() {
        Op::Reshape(to) => reshape(at, from, to, dtype),
        Op::Expand(_) => Ok((at.iter().zip(from.iter()))
            .map(|(i, &extent)| {
                if extent == 1 {
                    constant(0, dtype)
                } else {
                    i.clone()
                }
            })
            .collect()),
        Op::Permute(order) => {
            let mut out = vec![constant(0, dtype); at.len()];
            for (i, &p) in at.iter().zip(order.iter()) {
                out[p as usize] = i.clone();
            }
            Ok(out)
        }
        Op::Shrink(bounds) => at
            .iter()
            .zip(bounds.iter())
            .map(|(i, &(begin, _))| add(i, begin as i64))
            .collect(),
        _ => Ok(at.to_vec()),
    }
}

/// `0 <= index < n`, or `None` where that is a matter of course.
pub fn inside(index: &UOp, n: usize) -> Result<UOp> {
    let zero = UOp::constant(Scalar::zero(index.dtype()));
    let not_below = index.cmplt(&zero)?.logical_not()?;
    not_below.and(&index.cmplt(&constant(n as i64, index.dtype()))?)
}
