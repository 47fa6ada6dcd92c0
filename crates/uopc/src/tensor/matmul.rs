//! Matrix products as EXPAND, MUL and REDUCE, which the compiler recognises as contractions.

use super::operand::broadcast;
use super::{Result, Shape, Site, Tensor, UOp, shape_error};
use crate::ir::op::ReduceOp;

impl Tensor {
    /// The matrix product of the last two axes, as in NumPy: axes before them broadcast, and an
    /// operand with one axis is a row on the left, a column on the right, which disappears again.
    /// Dtypes are promoted; integers wrap.
    ///
    /// # Errors
    /// When an operand is a scalar, the inner extents differ, or the axes before do not broadcast.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (x, w) = (self.shape(), other.shape());
        if x.rank() == 0 || w.rank() == 0 {
            let message = format!("shapes {x} and {w}: a scalar is no matrix; use mul");
            return Err(shape_error("matmul", message));
        }
        let (inner, outer) = (x[x.rank() - 1], w[w.rank().saturating_sub(2)]);
        if inner != outer {
            let message = format!(
                "shapes {x} and {w} differ in the extent that is summed ({inner} and {outer}); \
                 the last axis of the left one meets the last but one of the right one"
            );
            return Err(shape_error("matmul", message));
        }
        let dtype = self.dtype().promote(other.dtype());
        let ((x, a), (w, b)) = (self.read(), other.read());
        Ok(Tensor::derived(
            product(&x.cast(dtype)?, &w.cast(dtype)?)?,
            a || b,
        ))
    }
}

/// Operands with one axis get a second one, and lose it again.
fn product(x: &UOp, w: &UOp) -> Result<UOp> {
    let row = x.shape().rank() == 1;
    let column = w.shape().rank() == 1;
    let left = if row {
        x.reshape(&[1, x.shape()[0]])?
    } else {
        x.clone()
    };
    let right = if column {
        w.reshape(&[w.shape()[0], 1])?
    } else {
        w.clone()
    };
    let y = matrices(&left, &right)?;
    let mut dims = y.shape().to_vec();
    if row {
        dims.remove(dims.len() - 2);
    }
    if column {
        dims.pop();
    }
    y.reshape(&dims)
}

/// (..., M, K) times (..., K, N).
fn matrices(x: &UOp, w: &UOp) -> Result<UOp> {
    let (rank, k) = (x.shape().rank(), x.shape()[x.shape().rank() - 1]);
    let n = w.shape()[w.shape().rank() - 1];
    if rank > 2 && w.shape().rank() == 2 {
        // One matrix for the whole batch: all rows at once, so that the gradient of `w` is one
        // product, too, instead of a sum of many.
        let mut dims = x.shape().to_vec();
        let rows = dims[..rank - 1].iter().product();
        dims[rank - 1] = n;
        return matrices(&x.reshape(&[rows, k])?, w)?.reshape(&dims);
    }
    let (batch_x, batch_w) = (batch(x), batch(w));
    let mut dims = broadcast("matmul", &batch_x, &batch_w)?.to_vec();
    let m = x.shape()[rank - 2];
    // With a single row or column the sum is no contraction, and the products of narrow floats
    // would be rounded one by one. In f32 they are exact, as in a contraction.
    let (dtype, single) = (x.dtype(), m == 1 || n == 1);
    let sums = if single { dtype.accumulator() } else { dtype };
    let (x, w) = (x.cast(sums)?, w.cast(sums)?);
    let depth = dims.len();
    dims.extend([m, n, k]);
    // (..., M, 1, K) and (..., 1, N, K), both repeated to (..., M, N, K).
    let in_front = |own: &Shape, tail: [usize; 3]| {
        let mut dims = vec![1; depth - own.rank()];
        dims.extend_from_slice(own);
        dims.extend(tail);
        dims
    };
    let rank_w = w.shape().rank();
    let mut order: Vec<usize> = (0..rank_w).collect();
    order.swap(rank_w - 2, rank_w - 1);
    let left = x.reshape(&in_front(&batch_x, [m, 1, k]))?.expand(&dims)?;
    let right = w
        .permute(&order)?
        .reshape(&in_front(&batch_w, [1, n, k]))?
        .expand(&dims)?;
    left.mul(&right)?.reduce(ReduceOp::Add, 1)?.cast(dtype)
}

/// All axes but the last two.
fn batch(x: &UOp) -> Shape {
    Shape::new(&x.shape()[..x.shape().rank() - 2])
}
