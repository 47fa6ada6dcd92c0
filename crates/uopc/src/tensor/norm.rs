//! Reductions made of reductions: deviations, norms, logarithms of sums, counts, and sums that leave NaN
//! out.

use super::args::{Axes, axes_of};
use super::reduce::{in_floats, keep, max, min, reduce, spread, sum, var};
use super::{DType, Result, Site, Tensor, UOp, formulas, shape_error};
use crate::functions::{self as f, Num};
use crate::ir::op::{ReduceOp, StageKind};

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident, $keepdim:ident ($($p:ident: $type:ty),*) = $node:expr;)*) => { impl Tensor { $(
        $(#[$doc])*
        ///
        /// The axes are one number, several, or `..` for all; negative ones count from the end.
        ///
        /// # Errors
        /// When an axis does not exist or is named twice.
        #[track_caller]
        pub fn $name(&self, axes: impl Axes $(, $p: $type)*) -> Result<Tensor> {
            let _site = Site::caller().enter();
            let axes = axes_of(stringify!($name), self.shape(), axes)?;
            self.map(|x| $node(x, &axes $(, $p)*))
        }

        #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name), ") that keeps the axes, with extent 1.")]
        ///
        /// # Errors
        /// When an axis does not exist or is named twice.
        #[track_caller]
        pub fn $keepdim(&self, axes: impl Axes $(, $p: $type)*) -> Result<Tensor> {
            let _site = Site::caller().enter();
            let axes = axes_of(stringify!($name), self.shape(), axes)?;
            self.map(|x| keep($node(x, &axes $(, $p)*)?, x, &axes))
        }
    )* } };
}

reductions! {
    /// The square root of the variance whose sum of squares is divided by N - `correction`, where N is the
    /// number of elements: 0 for the deviation of all there are, 1 for the estimate from a sample. Integers
    /// become f32 first. The gradient is 0 where the deviation is.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.0f32, 5.0]);
    /// assert_eq!(x.std(.., 0.0)?.item()?, 2.0);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    std, std_keepdim(correction: f64) = |x: &UOp, axes: &[usize], correction| {
        in_floats(x, |x| root(&var(x, axes, correction)?))
    };
    /// log of the sum of e^x, safe for numbers of any size: -inf for nothing but -inf and for no elements.
    /// Integers become f32 first.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([[0.0f32, 0.0], [1000.0, 0.0]]);
    /// assert_eq!(x.logsumexp(1)?.to_vec::<f32>()?, [0.6931472, 1000.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    logsumexp, logsumexp_keepdim() = |x: &UOp, axes: &[usize]| in_floats(x, |x| logsumexp(x, axes));
    /// The p-norm: (sum of |x|^p)^(1/p), the largest magnitude for infinity, the least for minus infinity,
    /// how many are not 0 for 0. Integers become f32 first. Squares of an f32 overflow at 1.8e19.
    ///
    /// The gradient of the 2-norm and of others above 1 is 0 where the norm is.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([3.0f32, -4.0, 0.0]);
    /// assert_eq!(x.norm(.., 2.0)?.item()?, 5.0);
    /// assert_eq!(x.norm(.., 1.0)?.item()?, 7.0);
    /// assert_eq!(x.norm(.., f64::INFINITY)?.item()?, 4.0);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    norm, norm_keepdim(p: f64) = |x: &UOp, axes: &[usize], p| in_floats(x, |x| norm(x, axes, p));
    /// How many elements are not 0, as i64; a NaN is not 0.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([[0, 5], [1, 2]]);
    /// assert_eq!(x.count_nonzero(0)?.to_vec::<i64>()?, [1, 2]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    count_nonzero, count_nonzero_keepdim() = |x: &UOp, axes: &[usize]| {
        reduce(&x.cast(DType::Bool)?.cast(DType::I64)?, ReduceOp::Add, axes)
    };
    /// The sum of what is not NaN. Bools and integers of up to 16 bits are added as i32 or u32.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// assert_eq!(Tensor::from([1.0f32, f32::NAN, 2.0]).nansum(..)?.item()?, 3.0);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    nansum, nansum_keepdim() = |x: &UOp, axes: &[usize]| sum(&without_nan(x)?, axes);
    /// The mean of what is not NaN; NaN if nothing is left. Integers become f32 first.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// assert_eq!(Tensor::from([1.0f32, f32::NAN, 2.0]).nanmean(..)?.item()?, 1.5);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    nanmean, nanmean_keepdim() = |x: &UOp, axes: &[usize]| in_floats(x, |x| {
        let counted = x.eq(x)?.cast(x.dtype())?;
        reduce(&without_nan(x)?, ReduceOp::Add, axes)?.div(&reduce(&counted, ReduceOp::Add, axes)?)
    });
}

impl Tensor {
    /// The smallest and the largest element; see [`min`](Self::min) and [`max`](Self::max).
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (least, most) = Tensor::from([3, 1, 2]).aminmax(..)?;
    /// assert_eq!((least.item()?, most.item()?), (1.0, 3.0));
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When an axis does not exist or is named twice.
    #[track_caller]
    pub fn aminmax(&self, axes: impl Axes) -> Result<(Tensor, Tensor)> {
        let _site = Site::caller().enter();
        Ok((self.min(&axes)?, self.max(&axes)?))
    }
}

fn without_nan(x: &UOp) -> Result<UOp> {
    if !x.dtype().is_float() {
        return Ok(x.clone());
    }
    x.eq(x)?.where_(x, &x.full_like(0.0)?)
}

/// The square root with derivative 0 at 0, where the true one is infinite but what is below is at rest.
fn root(x: &UOp) -> Result<UOp> {
    let zero = x.full_like(0.0)?;
    x.eq(&zero)?.where_(&zero, &x.sqrt()?)
}

/// With the largest element m, m + log of the sum of e^(x - m). A shift changes nothing in the derivative,
/// so no gradient flows through it. An infinite m is the result, and has its gradient.
fn logsumexp(x: &UOp, axes: &[usize]) -> Result<UOp> {
    let peak = max(x, axes)?;
    let shift = peak.stage(StageKind::Detach)?;
    let finite = formulas::abs(&peak)?.cmplt(&peak.full_like(f64::INFINITY)?)?;
    let shift = finite.where_(&shift, &shift.full_like(0.0)?)?;
    let total = sum(&x.sub(&spread(&shift, x, axes)?)?.exp()?, axes)?;
    let summed = formulas::log(&total)?.add(&shift)?;
    finite.where_(&summed, &peak)
}

fn norm(x: &UOp, axes: &[usize], p: f64) -> Result<UOp> {
    let size = formulas::abs(x)?;
    let total = |terms: &UOp| reduce(terms, ReduceOp::Add, axes);
    match p {
        p if p.is_infinite() => {
            if axes.iter().any(|&k| x.shape()[k] == 0) {
                let message = format!(
                    "no elements of shape {} have a largest magnitude",
                    x.shape()
                );
                return Err(shape_error("norm", message));
            }
            if p > 0.0 {
                max(&size, axes)
            } else {
                min(&size, axes)
            }
        }
        0.0 => total(&x.cast(DType::Bool)?.cast(x.dtype())?),
        1.0 => total(&size),
        2.0 => root(&total(&x.mul(x)?)?),
        p => {
            let power = if x.dtype() == DType::F64 {
                f::pow
            } else {
                f::pow_short
            };
            let wide = size.cast(DType::F64)?;
            let powers = power(&wide, &wide.full_like(p)?)?;
            let total = total(&powers)?;
            let root = power(&total, &total.full_like(1.0 / p)?)?;
            let root = Num(root);
            // At 0 the root is steep and what is below is at rest.
            let flat = Num(total).equals(0.0);
            let zero = if p > 0.0 { 0.0 } else { f64::INFINITY };
            flat.select(zero, &root).0.cast(x.dtype())
        }
    }
}
