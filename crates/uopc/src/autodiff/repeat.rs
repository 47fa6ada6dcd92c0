//! The transpose of EXPAND: what the repetitions of an element got, summed.

use crate::error::Result;
use crate::ir::composite::sum_to;
use crate::ir::onehot::one_hot;
use crate::ir::uop::UOp;

/// Sums `g` to the shape that was expanded.
///
/// Of a table that was read by a product with a one-hot, or by a choice of rows, `g` holds each row's
/// cotangent where a number meets a position, and zeros elsewhere. Their sum over the numbers adds
/// rows at the numbers, and is built as that.
pub(super) fn sum_of_repeats(g: &UOp, shape: &[usize]) -> Result<UOp> {
    let repeated = g.shape().iter().zip(shape).enumerate();
    let repeated = repeated.filter(|(_, (n, was))| n != was);
    let summed: Vec<usize> = repeated.map(|(k, _)| k).collect();
    let hot = one_hot(g).filter(|hot| !summed.contains(&hot.axis) && hot.is_constant());
    match hot {
        Some(hot) if !summed.is_empty() && !g.shape().contains(&0) => {
            hot.add(&summed)?.reshape(shape)
        }
        _ => sum_to(g, shape),
    }
}
