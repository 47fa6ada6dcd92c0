//! Derivatives of running combinations.
//!
//! A running sum is linear; its transpose is the running sum from the end. A running product is a
//! linear recurrence, `u_k = x_k u_(k-1)`, and so are its tangent and its cotangent; those are solved
//! pairwise, without a division, so that any number of zeros is right. A running maximum copies:
//! what it copies from is found by comparing, and read or added to.

use crate::error::Result;
use crate::ir::composite::{cat, flip, pad, zeros_like};
use crate::ir::dtype::DType;
use crate::ir::op::ReduceOp;
use crate::ir::uop::UOp;

/// The cotangent of x, given that of `u = scan(op, x)`.
pub(super) fn pull_scan(op: ReduceOp, u: &UOp, g: &UOp) -> Result<UOp> {
    let x = &u.src()[0];
    let axis = x.shape().rank() - 1;
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
            let r = backwards(&recurrence(&before(&backwards(&x)?, axis)?, &backwards(&g)?)?)?;
            r.mul(&before(&x.scan(ReduceOp::Mul)?, axis)?)?
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
    let axis = x.shape().rank() - 1;
    if x.shape().numel() == 0 {
        return zeros_like(x);
    }
    match op {
        ReduceOp::Add => t.scan(ReduceOp::Add),
        // du_k = dx_k u_(k-1) + x_k du_(k-1).
        ReduceOp::Mul => {
            let wide = x.dtype().accumulator();
            let (x, t) = (x.cast(wide)?, t.cast(wide)?);
            let own = t.mul(&before(&x.scan(ReduceOp::Mul)?, axis)?)?;
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

/// A one, then all elements along the last axis but the last one.
fn before(x: &UOp, axis: usize) -> Result<UOp> {
    let n = x.shape()[axis];
    let one = part(&x.full_like(1.0)?, 0, 1)?;
    match n {
        1 => Ok(one),
        _ => cat(&[one, part(x, 0, n - 1)?], axis),
    }
}

/// `begin..end` of the last axis.
fn part(x: &UOp, begin: usize, end: usize) -> Result<UOp> {
    let mut window: Vec<(usize, usize)> = x.shape().iter().map(|&d| (0, d)).collect();
    if let Some(last) = window.last_mut() {
        *last = (begin, end);
    }
    x.shrink(&window)
}

/// `v_k = c_k + a_k v_(k-1)` along the last axis, where v_0 = c_0: a_0 has no part in it.
///
/// Going up, neighbours become one step, `v_(2k+1) = (c_(2k+1) + a_(2k+1) c_2k) + (a_(2k+1) a_2k)
/// v_(2k-1)`, until one is left. Going down, odd places are known from the level above, and even
/// ones follow from the one before. A logarithm of nodes, and work linear in the length. Nothing is
/// multiplied by what it does not depend on, so infinities stay where they are.
fn recurrence(a: &UOp, c: &UOp) -> Result<UOp> {
    let (axis, n) = (c.shape().rank() - 1, c.shape()[c.shape().rank() - 1]);
    // What fills a row up to a power of two comes after all elements, which it does not change.
    let fill = |x: &UOp| {
        let mut around = vec![(0, 0); axis + 1];
        around[axis] = (0, n.next_power_of_two() - n);
        pad(x, &around)
    };
    let (mut a, mut c) = (fill(a)?, fill(c)?);
    let mut levels = Vec::new();
    while c.shape()[axis] > 1 {
        let ([a0, a1], [c0, c1]) = (halves(&a)?, halves(&c)?);
        c = c1.add(&a1.mul(&c0)?)?;
        a = a1.mul(&a0)?;
        levels.push((a0, c0));
    }
    let mut known = c;
    for (a, c) in levels.into_iter().rev() {
        let m = c.shape()[axis];
        let even = match m {
            1 => c,
            _ => {
                let follows = part(&a, 1, m)?.mul(&part(&known, 0, m - 1)?)?;
                let mut around = vec![(0, 0); axis + 1];
                around[axis] = (1, 0);
                c.add(&pad(&follows, &around)?)?
            }
        };
        // Even and odd places take turns.
        let mut order: Vec<usize> = (1..axis + 2).collect();
        order.push(0);
        let pairs = UOp::stack(&[even, known])?.permute(&order)?;
        let mut dims = pairs.shape().to_vec();
        dims.truncate(axis);
        dims.push(2 * m);
        known = pairs.reshape(&dims)?;
    }
    part(&known, 0, n)
}

/// The elements at even places of the last axis, and those at odd ones.
fn halves(x: &UOp) -> Result<[UOp; 2]> {
    let (&n, outer) = x.shape().split_last().expect("a scan has an axis");
    let pairs = x.reshape(&[outer, &[n / 2, 2]].concat())?;
    let to = [outer, &[n / 2]].concat();
    Ok([
        part(&pairs, 0, 1)?.reshape(&to)?,
        part(&pairs, 1, 2)?.reshape(&to)?,
    ])
}
