//! Ops made of ops: padding, flipping, the transpose of broadcasting.

use super::dtype::DType;
use super::op::ReduceOp;
use super::scalar::Scalar;
use super::shape::Shape;
use super::site::Site;
use super::uop::UOp;
use crate::error::{Error, Result};

/// Zeros of a node's dtype and shape.
///
/// # Errors
/// Never for a well-formed node.
pub fn zeros_like(u: &UOp) -> Result<UOp> {
    UOp::full(Scalar::zero(u.dtype()), u.shape())
}

/// Sums `g` over the axes where `shape` has extent 1 and `g` has more: the transpose of EXPAND.
///
/// # Errors
/// When the ranks differ or another axis differs.
pub fn sum_to(g: &UOp, shape: &[usize]) -> Result<UOp> {
    let from = g.shape().clone();
    let fits =
        from.rank() == shape.len() && from.iter().zip(shape).all(|(&a, &b)| a == b || b == 1);
    if !fits {
        let to = Shape::new(shape);
        let message = format!("{from} does not sum to {to}: only whole axes can go, to extent 1");
        return Err(Error::Shape {
            op: "sum_to",
            message,
            site: Site::current(),
        });
    }
    let summed = |k: &usize| from[*k] != shape[*k];
    let mut order: Vec<usize> = (0..from.rank()).filter(|k| !summed(k)).collect();
    let kept = order.len();
    order.extend((0..from.rank()).filter(summed));
    g.permute(&order)?
        .reduce(ReduceOp::Add, from.rank() - kept)?
        .reshape(shape)
}

/// Puts `before` zeros in front of and `after` zeros behind each axis.
///
/// An axis doubles by `[0, g]` or `[g, 0]` until a side is covered, then one SHRINK cuts: the
/// number of nodes grows with the logarithm of the padding.
///
/// # Errors
/// When there is not one pair for each axis.
pub fn pad(g: &UOp, padding: &[(usize, usize)]) -> Result<UOp> {
    if padding.len() != g.shape().rank() {
        let (n, shape) = (padding.len(), g.shape());
        let message =
            format!("{n} pairs for shape {shape}; give one (before, after) for each axis");
        return Err(Error::Shape {
            op: "pad",
            message,
            site: Site::current(),
        });
    }
    let mut out = g.clone();
    for (axis, &(before, after)) in padding.iter().enumerate() {
        out = pad_axis(&out, axis, before, after)?;
    }
    Ok(out)
}

/// Beyond this an axis can't be doubled twice, as padding and joining do on the way.
const LARGEST_EXTENT: usize = usize::MAX / 16;

fn too_long(op: &'static str, x: &UOp, axis: usize) -> Error {
    let shape = x.shape();
    let message = format!(
        "axis {axis} of {shape} would become longer than {LARGEST_EXTENT}, which no memory holds"
    );
    Error::Shape {
        op,
        message,
        site: Site::current(),
    }
}

fn pad_axis(g: &UOp, axis: usize, before: usize, after: usize) -> Result<UOp> {
    let n = g.shape()[axis];
    if (before, after) == (0, 0) {
        return Ok(g.clone());
    }
    let padded = before.saturating_add(n).saturating_add(after);
    if padded > LARGEST_EXTENT {
        return Err(too_long("pad", g, axis));
    }
    let mut dims = g.shape().to_vec();
    if g.shape().numel() == 0 {
        dims[axis] = padded;
        return UOp::full(Scalar::zero(g.dtype()), &dims.as_slice().into());
    }
    // Doubling happens in front of the axis, so it is brought to the front and back again.
    let (to_front, back) = front_orders(dims.len(), axis);
    let mut out = g.permute(&to_front)?;
    let mut left = 0;
    while out.shape()[0] - n < after {
        out = double(&out, false)?;
    }
    while left < before {
        left += out.shape()[0];
        out = double(&out, true)?;
    }
    let mut window: Vec<(usize, usize)> = out.shape().iter().map(|&d| (0, d)).collect();
    window[0] = (left - before, left + n + after);
    out.shrink(&window)?.permute(&back)
}

/// `[0, g]` or `[g, 0]` along the first axis.
fn double(g: &UOp, zeros_first: bool) -> Result<UOp> {
    let zeros = zeros_like(g)?;
    let parts = if zeros_first {
        [zeros, g.clone()]
    } else {
        [g.clone(), zeros]
    };
    let mut dims = g.shape().to_vec();
    dims[0] *= 2;
    UOp::stack(&parts)?.reshape(&dims)
}

/// Joins nodes along an axis; they agree on dtype and on all other extents.
///
/// # Errors
/// When there are none, or they do not fit.
pub fn cat(parts: &[UOp], axis: usize) -> Result<UOp> {
    let Some(first) = parts.first() else {
        let message = "needs at least one tensor".into();
        return Err(Error::Shape {
            op: "cat",
            message,
            site: Site::current(),
        });
    };
    for other in parts {
        let same_rest = other.shape().rank() == first.shape().rank()
            && axis < first.shape().rank()
            && (0..first.shape().rank()).all(|k| k == axis || other.shape()[k] == first.shape()[k]);
        if !same_rest {
            let (a, b) = (first.shape(), other.shape());
            let message = format!(
                "shapes {a} and {b} do not join along axis {axis}; \
                 all other axes must agree"
            );
            return Err(Error::Shape {
                op: "cat",
                message,
                site: Site::current(),
            });
        }
    }
    // Neighbours join pairwise, so that the nesting is a logarithm of the number of parts.
    let mut level: Vec<UOp> = parts
        .iter()
        .filter(|p| p.shape()[axis] > 0)
        .cloned()
        .collect();
    if level.is_empty() {
        return Ok(first.clone());
    }
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| match pair {
                [a, b] => join(a, b, axis),
                _ => Ok(pair[0].clone()),
            })
            .collect::<Result<_>>()?;
    }
    Ok(level.remove(0))
}

/// `[a, b]` along an axis: both are padded to the longer, stacked, and cut.
fn join(a: &UOp, b: &UOp, axis: usize) -> Result<UOp> {
    let (na, nb) = (a.shape()[axis], b.shape()[axis]);
    let n = na.max(nb);
    if n > LARGEST_EXTENT {
        return Err(too_long("cat", a, axis));
    }
    let rank = a.shape().rank();
    let with = |before, after| {
        let mut padding = vec![(0, 0); rank];
        padding[axis] = (before, after);
        padding
    };
    let pair = UOp::stack(&[pad(a, &with(n - na, 0))?, pad(b, &with(0, n - nb))?])?;
    // The new first axis moves next to the joined one, and the two merge.
    let mut order: Vec<usize> = (1..=rank).collect();
    order.insert(axis, 0);
    let mut dims = a.shape().to_vec();
    dims[axis] = 2 * n;
    let joined = pair.permute(&order)?.reshape(&dims)?;
    let mut window: Vec<(usize, usize)> = dims.iter().map(|&d| (0, d)).collect();
    window[axis] = (n - na, n + nb);
    joined.shrink(&window)
}

/// The indices `n-1, ..., 1, 0`. Hash consing makes this one node for each n, so a reader of an
/// index can tell that it is a reversal by comparing.
///
/// # Errors
/// Never for an extent that fits memory.
pub fn reversal(n: usize) -> Result<UOp> {
    let dtype = if n > i32::MAX as usize {
        DType::I64
    } else {
        DType::I32
    };
    let last = UOp::full(Scalar::from_i128(dtype, n as i128 - 1), &Shape::new(&[n]))?;
    last.sub(&UOp::iota(n, dtype)?)
}

/// Reverses the order along some axes, each by an INDEX with its [`reversal`].
///
/// # Errors
/// When an axis does not exist.
pub fn flip(x: &UOp, axes: &[usize]) -> Result<UOp> {
    let rank = x.shape().rank();
    let mut out = x.clone();
    for &axis in axes {
        if axis >= rank {
            let message = format!("axis {axis} of shape {}, which has {rank}", x.shape());
            return Err(Error::Shape {
                op: "flip",
                message,
                site: Site::current(),
            });
        }
        let n = x.shape()[axis];
        if n < 2 {
            continue;
        }
        let (to_front, back) = front_orders(rank, axis);
        out = out
            .permute(&to_front)?
            .index(&[reversal(n)?])?
            .permute(&back)?;
    }
    Ok(out)
}

/// The order that brings an axis to the front, and the one that takes it back.
fn front_orders(rank: usize, axis: usize) -> (Vec<usize>, Vec<usize>) {
    let mut to_front: Vec<usize> = (0..rank).collect();
    to_front.remove(axis);
    to_front.insert(0, axis);
    let mut back = vec![0; rank];
    for (k, &p) in to_front.iter().enumerate() {
        back[p] = k;
    }
    (to_front, back)
}
