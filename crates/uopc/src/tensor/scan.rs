//! Running sums, products, maxima and minima along an axis, and the logarithm of a running sum of
//! exponentials.

use super::args::{Integer, axis_of};
use super::formulas;
use super::reduce::{in_floats, roomy};
use super::{DType, Result, Site, Tensor, UOp};
use crate::ir::Scalar;
use crate::ir::composite::zeros_like;
use crate::ir::op::{ReduceOp, StageKind};
use crate::ir::recurrence::{recurrence, shifted};

impl Tensor {
    /// The sums of the elements up to each one along an axis: `y[k] = x[0] + ... + x[k]`.
    ///
    /// Elements are added one after the other, f16 and bf16 in f32. Bools and integers of up to 16
    /// bits are added as i32 or u32; wider ones wrap.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// assert_eq!(t.cumsum(-1)?.to_vec::<f32>()?, [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
    /// assert_eq!(t.cumsum(0)?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis.
    #[track_caller]
    pub fn cumsum(&self, axis: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("cumsum", self.shape(), axis.signed())?;
        self.map(|x| along(&roomy(x)?, axis, |x| x.scan(ReduceOp::Add)))
    }

    /// The products of the elements up to each one along an axis: `y[k] = x[0] * ... * x[k]`.
    ///
    /// Elements are multiplied one after the other, f16 and bf16 in f32. Bools and integers of up to
    /// 16 bits are multiplied as i32 or u32; wider ones wrap. The gradient is right with any number
    /// of zeros.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([2, 3, 4]);
    /// assert_eq!(t.cumprod(0)?.to_vec::<i32>()?, [2, 6, 24]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis.
    #[track_caller]
    pub fn cumprod(&self, axis: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("cumprod", self.shape(), axis.signed())?;
        self.map(|x| along(&roomy(x)?, axis, |x| x.scan(ReduceOp::Mul)))
    }

    /// The largest of the elements up to each one along an axis, and where it stands, as i64: of
    /// equal ones the last so far. From a NaN on it is NaN, at the last NaN so far.
    ///
    /// The gradient goes to the elements that the positions name.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (values, positions) = Tensor::from([1, 3, 2, 3]).cummax(0)?;
    /// assert_eq!(values.to_vec::<i32>()?, [1, 3, 3, 3]);
    /// assert_eq!(positions.to_vec::<i64>()?, [0, 1, 1, 3]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis.
    #[track_caller]
    pub fn cummax(&self, axis: impl Integer) -> Result<(Tensor, Tensor)> {
        let _site = Site::caller().enter();
        let axis = axis_of("cummax", self.shape(), axis.signed())?;
        let values = self.map(|x| along(x, axis, |x| x.scan(ReduceOp::Max)))?;
        let positions = along(&self.uop(), axis, positions)?;
        Ok((values, Tensor::new(positions, false)))
    }

    /// The smallest of the elements up to each one along an axis, and where it stands; see
    /// [`cummax`](Self::cummax).
    ///
    /// # Errors
    /// When there is no such axis.
    #[track_caller]
    pub fn cummin(&self, axis: impl Integer) -> Result<(Tensor, Tensor)> {
        let _site = Site::caller().enter();
        let axis = axis_of("cummin", self.shape(), axis.signed())?;
        let least = |x: &UOp| opposite(&opposite(x)?.scan(ReduceOp::Max)?);
        let values = self.map(|x| along(x, axis, least))?;
        let positions = along(&opposite(&self.uop())?, axis, positions)?;
        Ok((values, Tensor::new(positions, false)))
    }

    /// The logarithms of the sums of exponentials up to each element along an axis:
    /// `y[k] = log(exp(x[0]) + ... + exp(x[k]))`, safe for numbers of any size. Integers become f32
    /// first, f16 and bf16 are computed in f32.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([1000.0f32, 1000.0, -1000.0]);
    /// let y = t.logcumsumexp(0)?.to_vec::<f32>()?;
    /// assert_eq!(y[0], 1000.0);
    /// assert!((y[1] - 1000.6931).abs() < 1e-3 && y[2] == y[1]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis.
    #[track_caller]
    pub fn logcumsumexp(&self, axis: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("logcumsumexp", self.shape(), axis.signed())?;
        self.map(|x| in_floats(x, |x| along(x, axis, log_of_sums)))
    }
}

/// A function along the last axis, along another one. What has no elements is left as it is.
pub(super) fn along(x: &UOp, axis: usize, f: impl FnOnce(&UOp) -> Result<UOp>) -> Result<UOp> {
    let last = x.shape().rank() - 1;
    let mut there: Vec<usize> = (0..=last).filter(|&k| k != axis).collect();
    there.push(axis);
    let mut back: Vec<usize> = (0..last).collect();
    back.insert(axis, last);
    f(&x.permute(&there)?)?.permute(&back)
}

/// What has the opposite order: -x of floats, flipped bits of the others.
fn opposite(x: &UOp) -> Result<UOp> {
    match x.dtype().is_float() {
        true => x.neg(),
        false => formulas::not(x),
    }
}

/// Where the running maximum stands: the largest position so far of those whose element is the
/// maximum so far, or NaN.
fn positions(x: &UOp) -> Result<UOp> {
    let peak = x.scan(ReduceOp::Max)?;
    let holds = x.eq(&peak)?.or(&x.cmpne(x)?)?;
    let (rank, n) = (x.shape().rank(), x.shape()[x.shape().rank() - 1]);
    let mut dims = vec![1; rank];
    dims[rank - 1] = n;
    let own = UOp::iota(n, DType::I64)?
        .reshape(&dims)?
        .expand(x.shape())?;
    let zero = UOp::full(Scalar::zero(DType::I64), x.shape())?;
    holds.where_(&own, &zero)?.scan(ReduceOp::Max)
}

/// With the maximum m so far, s[k] = sum of exp(x[j] - m[k]) is a recurrence whose steps are
/// `s[k] = exp(m[k-1] - m[k]) s[k-1] + exp(x[k] - m[k])`, and the result is m + log(s). No shift changes
/// it or its derivatives, so none flow through m.
fn log_of_sums(x: &UOp) -> Result<UOp> {
    if x.shape().numel() == 0 {
        return Ok(x.clone());
    }
    let peak = x.scan(ReduceOp::Max)?.stage(StageKind::Detach)?;
    // An infinite maximum is no shift: without one its exponential is 0 or infinite, as it should be.
    let infinite = |m: &UOp, sign: f64| m.eq(&m.full_like(sign * f64::INFINITY)?);
    let endless = infinite(&peak, 1.0)?.or(&infinite(&peak, -1.0)?)?;
    let shift = endless.where_(&zeros_like(x)?, &peak)?;
    let before = shifted(&peak, f64::NEG_INFINITY)?;
    let falls = before.sub(&peak)?.exp()?;
    let same = before.eq(&peak)?;
    let falls = same.where_(&falls.full_like(1.0)?, &falls)?;
    let sums = recurrence(&falls, &x.sub(&shift)?.exp()?)?;
    // A sum of 0 has no derivative, and there is nothing that could change it.
    let nothing = sums.eq(&zeros_like(&sums)?)?;
    let least = sums.full_like(f64::NEG_INFINITY)?;
    nothing.where_(&least, &shift.add(&formulas::log(&sums)?)?)
}
