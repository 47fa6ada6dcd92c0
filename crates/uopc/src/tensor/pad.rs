//! Padding: constants, mirror images, the edge or the other end around a tensor.

use super::operand::number;
use super::windows::{around, numbers_along, padded_extent};
use super::{DType, Operand, Result, Site, Tensor, UOp, dtype_error, shape_error};
use crate::ir::{Scalar, composite};

/// What [`Tensor::pad_with`] puts around a tensor.
#[derive(Clone)]
pub enum PadMode {
    /// A number.
    Constant(Operand),
    /// The mirror image in the outermost element, which is not repeated: `c b | a b c | b a`.
    Reflect,
    /// The outermost element again and again: `a a | a b c | c c`.
    Replicate,
    /// The elements of the other end: `b c | a b c | a b`.
    Circular,
}

impl PadMode {
    /// A number all around.
    pub fn constant(value: impl Into<Operand>) -> PadMode {
        PadMode::Constant(value.into())
    }
}

impl Tensor {
    /// The tensor with elements put around it: one `(before, after)` for each axis. With several
    /// padded axes the later ones pad what the earlier ones gave, so corners are filled, too.
    ///
    /// ```
    /// # use uopc::{Tensor, tensor::PadMode};
    /// let t = Tensor::from([1, 2, 3]);
    /// let padded = |mode| t.pad_with([(2, 1)], mode)?.to_vec::<i32>();
    /// assert_eq!(padded(PadMode::constant(7))?, [7, 7, 1, 2, 3, 7]);
    /// assert_eq!(padded(PadMode::Reflect)?, [3, 2, 1, 2, 3, 2]);
    /// assert_eq!(padded(PadMode::Replicate)?, [1, 1, 1, 2, 3, 3]);
    /// assert_eq!(padded(PadMode::Circular)?, [2, 3, 1, 2, 3, 1]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is not one pair for each axis; when an axis has too few elements: `Reflect` pads
    /// by at most n - 1, `Circular` by at most n, `Replicate` needs one; when a constant does not fit
    /// the dtype.
    #[track_caller]
    pub fn pad_with(&self, padding: impl AsRef<[(usize, usize)]>, mode: PadMode) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (padding, shape) = (padding.as_ref(), self.shape());
        if padding.len() != shape.rank() {
            let message = format!(
                "{padding:?} has not one pair for each of the {} axes of shape {shape}",
                shape.rank()
            );
            return Err(shape_error("pad", message));
        }
        for (&n, &pair) in shape.iter().zip(padding) {
            padded_extent("pad", n, pair)?;
        }
        if let PadMode::Constant(value) = &mode {
            let value = constant(value, self.dtype())?;
            return self.map(|x| pad_constant(x, padding, value));
        }
        self.map(|x| {
            let mut padded = x.clone();
            for (axis, &pair) in padding.iter().enumerate() {
                padded = pad_axis(&padded, axis, pair, &mode)?;
            }
            Ok(padded)
        })
    }
}

/// A number in that dtype, which must be able to hold it.
fn constant(value: &Operand, dtype: DType) -> Result<Scalar> {
    let refused = |what: &str| {
        let message = format!("{dtype} can't be padded with {what}; cast the tensor first");
        Err(dtype_error("pad", message))
    };
    match value {
        Operand::Tensor(_) => refused("a tensor (the value is a number)"),
        Operand::Float(v) if !dtype.is_float() && *v != v.trunc() => refused(&format!("{v}")),
        Operand::Float(v) if !dtype.is_float() => number("pad", &Operand::Int(*v as i128), dtype),
        value => number("pad", value, dtype),
    }
}

/// A number around: zeros by the op for that, and another number chosen where they are.
pub(super) fn pad_constant(x: &UOp, padding: &[(usize, usize)], value: Scalar) -> Result<UOp> {
    let zeros = composite::pad(x, padding)?;
    if value == Scalar::zero(x.dtype()) || padding.iter().all(|&pair| pair == (0, 0)) {
        return Ok(zeros);
    }
    let rank = x.shape().rank();
    let mut inside: Option<UOp> = None;
    for (axis, &(before, after)) in padding.iter().enumerate() {
        let n = x.shape()[axis];
        let places = UOp::iota(before + n + after, DType::I64)?;
        let at = |i: usize| places.full_like(i as f64);
        for (needed, condition) in [
            (before > 0, places.cmplt(&at(before)?)?.logical_not()?),
            (after > 0, places.cmplt(&at(before + n)?)?),
        ] {
            if needed {
                let condition = numbers_along(&condition, axis, rank)?.expand(zeros.shape())?;
                inside = Some(match inside {
                    Some(others) => others.and(&condition)?,
                    None => condition,
                });
            }
        }
    }
    match inside {
        Some(inside) => inside.where_(&zeros, &UOp::full(value, zeros.shape())?),
        None => Ok(zeros),
    }
}

/// One axis padded from its own elements.
fn pad_axis(x: &UOp, axis: usize, pair: (usize, usize), mode: &PadMode) -> Result<UOp> {
    if pair == (0, 0) {
        return Ok(x.clone());
    }
    let n = x.shape()[axis];
    let (before, after) = pair;
    let (name, most) = match mode {
        PadMode::Constant(_) => return Ok(x.clone()),
        PadMode::Reflect => ("reflect", n.saturating_sub(1)),
        PadMode::Replicate => ("replicate", if n == 0 { 0 } else { usize::MAX }),
        PadMode::Circular => ("circular", n),
    };
    if before > most || after > most {
        let message = format!(
            "mode {name} can pad axis {axis} of shape {} by at most {most}, not by {pair:?}",
            x.shape()
        );
        return Err(shape_error("pad", message));
    }
    let part = |begin: usize, end: usize| {
        let mut bounds: Vec<(usize, usize)> = x.shape().iter().map(|&d| (0, d)).collect();
        bounds[axis] = (begin, end);
        x.shrink(&bounds)
    };
    let repeated = |at: usize, times: usize| part(at, at + 1)?.expand(&around(x, axis, &[times]));
    let (front, back) = match mode {
        PadMode::Constant(_) => return Ok(x.clone()),
        PadMode::Reflect => (
            composite::flip(&part(1, 1 + before)?, &[axis])?,
            composite::flip(&part(n - 1 - after, n - 1)?, &[axis])?,
        ),
        PadMode::Replicate => (repeated(0, before)?, repeated(n - 1, after)?),
        PadMode::Circular => (part(n - before, n)?, part(0, after)?),
    };
    let parts = [(before, front), (n, x.clone()), (after, back)].into_iter();
    let parts: Vec<UOp> = parts.filter(|(k, _)| *k > 0).map(|(_, u)| u).collect();
    composite::cat(&parts, axis)
}
