//! Which sums are contractions: decided once, from structure, when a REDUCE is built.
//!
//! Marks of what is computed again are looked through: values do not depend on them.

use smallvec::{SmallVec, smallvec};

use super::op::{Fold, Op, ReduceOp};
use super::uop::UOp;

/// How many movement ops and casts are looked through. A longer chain counts as opaque, so that
/// building a node costs a bounded time.
const REACH: usize = 64;

/// The part of an axis that a factor of its extent stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Survives the reduction.
    Kept,
    /// Is summed over.
    Reduced,
    /// Both in one, inseparably.
    Mixed,
}

/// Each axis as factors of its extent, outermost first.
type Axes = SmallVec<[SmallVec<[(usize, Part); 2]>; 4]>;

/// The fold of a reduction of the last `n` axes of `x`.
///
/// A contraction is a float sum of a product, the product seen through PERMUTE and RESHAPE, whose
/// two factors, seen through movement ops and casts, are each EXPANDed over a kept axis of extent
/// above 1 and do not come from a constant. It is a chain, all else is lanes.
pub fn fold_of(op: ReduceOp, x: &UOp, n: usize) -> Fold {
    if op != ReduceOp::Add
        || !x.dtype().is_float()
        || n == 0
        || n > x.shape().rank()
        || x.shape().contains(&0)
        || !may_be_chained(x)
    {
        return Fold::Lanes;
    }
    let kept = x.shape().rank() - n;
    let mut axes: Axes = (x.shape().iter().enumerate())
        .map(|(k, &d)| {
            let part = if k < kept { Part::Kept } else { Part::Reduced };
            if d == 1 {
                SmallVec::new()
            } else {
                SmallVec::from_elem((d, part), 1)
            }
        })
        .collect();
    let mut product = x;
    for _ in 0..REACH {
        match product.op() {
            Op::Permute(_) | Op::Reshape(_) => {
                axes = before(product, axes);
                product = &product.src()[0];
            }
            Op::Stage(kind) if kind.bounds() => product = &product.src()[0],
            Op::Mul => {
                let both = product
                    .src()
                    .iter()
                    .all(|f| is_broadcast_factor(f, axes.clone()));
                return if both { Fold::Chain } else { Fold::Lanes };
            }
            _ => return Fold::Lanes,
        }
    }
    Fold::Lanes
}

/// The product that a chain sums, if its source is one: `(product, seen through)` where the
/// second lists the movement ops and marks passed, outermost first.
pub fn chain_product(x: &UOp) -> Option<(UOp, Vec<UOp>)> {
    let mut through = Vec::new();
    let mut product = x;
    for _ in 0..REACH {
        match product.op() {
            Op::Permute(_) | Op::Reshape(_) => {
                through.push(product.clone());
                product = &product.src()[0];
            }
            Op::Stage(kind) if kind.bounds() => {
                through.push(product.clone());
                product = &product.src()[0];
            }
            Op::Mul => return Some((product.clone(), through)),
            _ => return None,
        }
    }
    None
}

/// True if this, seen through movement ops, is a product that some chain might sum. The chain sums
/// the product itself and not the rounded value, so memory that holds the latter can't stand for
/// such a node.
pub fn may_be_chained(u: &UOp) -> bool {
    let repeats = |factor: &UOp| {
        let mut u = factor;
        for _ in 0..REACH {
            match u.op() {
                Op::Expand(_) => return true,
                Op::Stage(kind) if kind.bounds() => u = &u.src()[0],
                op if op.is_movement() || matches!(op, Op::Cast(_)) => u = &u.src()[0],
                _ => return false,
            }
        }
        false
    };
    let mut product = u;
    for _ in 0..REACH {
        match product.op() {
            Op::Mul => return product.dtype().is_float() && product.src().iter().all(repeats),
            op if op.is_movement() => product = &product.src()[0],
            Op::Stage(kind) if kind.bounds() => product = &product.src()[0],
            _ => return false,
        }
    }
    false
}

fn is_broadcast_factor(factor: &UOp, mut axes: Axes) -> bool {
    let mut expanded = false;
    let mut u = factor;
    for _ in 0..REACH {
        match u.op() {
            Op::Expand(_) => {
                for (k, axis) in axes.iter_mut().enumerate() {
                    if u.src()[0].shape()[k] != u.shape()[k] {
                        expanded |= axis.iter().any(|&(d, part)| d > 1 && part == Part::Kept);
                        axis.clear();
                    }
                }
            }
            Op::Reshape(_) | Op::Permute(_) => axes = before(u, axes),
            Op::Shrink(_) => {
                for (k, axis) in axes.iter_mut().enumerate() {
                    if u.src()[0].shape()[k] != u.shape()[k] {
                        *axis = whole(u.src()[0].shape()[k], axis);
                    }
                }
            }
            Op::Cast(_) => {}
            Op::Stage(kind) if kind.bounds() => {}
            Op::Const(_) => return false,
            _ => return expanded,
        }
        u = &u.src()[0];
    }
    expanded
}

/// The axes of a PERMUTE's or RESHAPE's source, given those of its result.
fn before(u: &UOp, axes: Axes) -> Axes {
    let from = u.src()[0].shape();
    match u.op() {
        Op::Permute(order) => {
            let mut out: Axes = smallvec![SmallVec::new(); from.rank()];
            for (axis, &p) in axes.into_iter().zip(order.iter()) {
                out[p as usize] = axis;
            }
            out
        }
        _ => regroup(axes, from),
    }
}

/// Hands the factors of axes, in row-major order, out to others, splitting a factor where an axis
/// ends inside it, and giving up exactness (Mixed) where the extents do not divide.
fn regroup(axes: Axes, to: &[usize]) -> Axes {
    let mut left: SmallVec<[(usize, Part); 8]> = axes.into_iter().flatten().collect();
    left.reverse();
    let mut out = Axes::new();
    for &extent in to {
        let mut axis: SmallVec<[(usize, Part); 2]> = SmallVec::new();
        let mut need = extent;
        while need > 1 {
            let Some((have, part)) = left.pop() else {
                break;
            };
            if need % have == 0 {
                axis.push((have, part));
                need /= have;
            } else if have % need == 0 {
                axis.push((need, part));
                left.push((have / need, part));
                need = 1;
            } else {
                // The boundary falls inside a factor: from here on nothing can be told apart.
                let all = left.iter().all(|f| f.1 == part) && axis.iter().all(|f| f.1 == part);
                let part = if all && out.iter().flatten().all(|f| f.1 == part) {
                    part
                } else {
                    Part::Mixed
                };
                return to
                    .iter()
                    .map(|&d| {
                        if d > 1 {
                            SmallVec::from_elem((d, part), 1)
                        } else {
                            SmallVec::new()
                        }
                    })
                    .collect();
            }
        }
        out.push(axis);
    }
    out
}

/// One axis of a new extent that keeps what all its factors agree on.
fn whole(extent: usize, axis: &[(usize, Part)]) -> SmallVec<[(usize, Part); 2]> {
    let part = match axis.first() {
        Some(&(_, part)) if axis.iter().all(|f| f.1 == part) => part,
        Some(_) => Part::Mixed,
        // Extent 1 here, more before: it was cut, not broadcast.
        None => Part::Mixed,
    };
    SmallVec::from_elem((extent, part), 1)
}
