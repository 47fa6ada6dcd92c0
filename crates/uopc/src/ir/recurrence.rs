//! Linear recurrences along the last axis, and the shifts that they need. There is such an axis, and
//! it is not empty.

use super::composite::{cat, pad};
use super::uop::UOp;
use crate::error::Result;

/// A number, then all elements along the last axis but the last one.
///
/// # Errors
/// Never for such a node.
pub(crate) fn shifted(x: &UOp, first: f64) -> Result<UOp> {
    let n = x.shape().last().copied().unwrap_or(0);
    let first = part(&x.full_like(first)?, 0, 1)?;
    match n {
        1 => Ok(first),
        _ => cat(
            &[first, part(x, 0, n.saturating_sub(1))?],
            x.shape().rank() - 1,
        ),
    }
}

/// `begin..end` of the last axis.
///
/// # Errors
/// When the axis is shorter.
pub(crate) fn part(x: &UOp, begin: usize, end: usize) -> Result<UOp> {
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
///
/// # Errors
/// When the shapes or dtypes differ.
pub(crate) fn recurrence(a: &UOp, c: &UOp) -> Result<UOp> {
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
