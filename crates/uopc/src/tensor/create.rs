//! Tensors from numbers: constants and sequences. They are graphs and take no memory until they
//! are computed.

use super::args::{Dims, shape_of};
use super::{DType, Operand, Result, Shape, Site, Tensor, UOp, dtype_error, shape_error};
use crate::ir::Scalar;

impl Tensor {
    /// f32 zeros of that shape.
    ///
    /// # Errors
    /// When the extents are no shape.
    #[track_caller]
    pub fn zeros(shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        Tensor::full(shape, 0.0f32)
    }

    /// f32 ones of that shape.
    ///
    /// # Errors
    /// When the extents are no shape.
    #[track_caller]
    pub fn ones(shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        Tensor::full(shape, 1.0f32)
    }

    /// One number everywhere: f32 for a float, i32 for an integer, bool for a truth value. A
    /// [`cast`](Self::cast) gives other dtypes. A scalar tensor is repeated likewise.
    ///
    /// # Errors
    /// When the extents are no shape, an integer is too large for i32, or the tensor no scalar.
    #[track_caller]
    pub fn full(shape: impl Dims, value: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = shape_of("full", shape)?;
        let value = value.into();
        let dtype = match &value {
            Operand::Tensor(t) => t.dtype(),
            Operand::Float(_) => DType::F32,
            Operand::Int(_) => DType::I32,
            Operand::Bool(_) => DType::Bool,
        };
        Tensor::full_of(value, dtype, &shape)
    }

    /// [`full`](Self::full) in a dtype of choice.
    ///
    /// ```
    /// # use uopc::{DType, Tensor};
    /// let far = Tensor::full_as(DType::I64, [2], 1i64 << 40)?;
    /// assert_eq!(far.to_vec::<i64>()?, [1 << 40; 2]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the extents are no shape, an integer is too large for the dtype, or the tensor no
    /// scalar.
    #[track_caller]
    pub fn full_as(dtype: DType, shape: impl Dims, value: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        Tensor::full_of(value.into(), dtype, &shape_of("full", shape)?)
    }

    /// A number or scalar tensor repeated to a shape, in that dtype.
    pub(super) fn full_of(value: Operand, dtype: DType, shape: &Shape) -> Result<Tensor> {
        match value {
            Operand::Tensor(t) if t.rank() == 0 => {
                t.map(|x| x.cast(dtype)?.broadcast_scalar(shape))
            }
            Operand::Tensor(t) => {
                let message = format!("a scalar is repeated, not shape {}; use expand", t.shape());
                Err(shape_error("full", message))
            }
            number => {
                let value = super::operand::number("full", &number, dtype)?;
                Ok(Tensor::new(UOp::full(value, shape)?, false))
            }
        }
    }

    /// A scalar tensor of a number: f32, i32 or bool as for [`full`](Self::full).
    ///
    /// # Errors
    /// When an integer is too large for i32.
    #[track_caller]
    pub fn scalar(value: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        Tensor::full((), value)
    }

    /// Zeros of this tensor's shape and dtype.
    ///
    /// # Errors
    /// None for a well-formed tensor.
    #[track_caller]
    pub fn zeros_like(&self) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let zeros = UOp::full(Scalar::zero(self.dtype()), self.shape())?;
        Ok(Tensor::new(zeros, false))
    }

    /// The integers `0, 1, ..., n-1`, as i32 if they fit, else i64.
    ///
    /// # Errors
    /// When there are more than fit i64.
    #[track_caller]
    pub fn arange(n: usize) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let dtype = if n > i32::MAX as usize {
            DType::I64
        } else {
            DType::I32
        };
        Ok(Tensor::new(UOp::iota(n, dtype)?, false))
    }

    /// `start, start + step, ...` up to but without `stop`, as f32 if one of the three is a float,
    /// else i32. Element k is `start + k * step`, rounded once.
    ///
    /// # Errors
    /// When the step is 0 or a number is no finite one, or integers leave i32.
    #[track_caller]
    pub fn arange_from(
        start: impl Into<Operand>,
        stop: impl Into<Operand>,
        step: impl Into<Operand>,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let bounds = [start.into(), stop.into(), step.into()];
        let float = bounds.iter().any(|b| matches!(b, Operand::Float(_)));
        sequence(if float { DType::F32 } else { DType::I32 }, &bounds)
    }

    /// [`arange_from`](Self::arange_from) in a dtype of choice.
    ///
    /// ```
    /// # use uopc::{DType, Tensor};
    /// let far = Tensor::arange_as(DType::I64, 1i64 << 40, (1i64 << 40) + 3, 2)?;
    /// assert_eq!(far.to_vec::<i64>()?, [1 << 40, (1 << 40) + 2]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the step is 0 or a number is no finite one, or an integer does not fit the dtype.
    #[track_caller]
    pub fn arange_as(
        dtype: DType,
        start: impl Into<Operand>,
        stop: impl Into<Operand>,
        step: impl Into<Operand>,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        sequence(dtype, &[start.into(), stop.into(), step.into()])
    }
}

/// From a start to a stop by steps.
fn sequence(dtype: DType, bounds: &[Operand; 3]) -> Result<Tensor> {
    let mut numbers = [0.0; 3];
    let mut integers = Vec::with_capacity(3);
    for (number, bound) in numbers.iter_mut().zip(bounds) {
        *number = match *bound {
            Operand::Float(value) => value,
            Operand::Int(value) => {
                integers.push(value);
                value as f64
            }
            _ => {
                let message = "bounds and step are numbers, not tensors or bools".into();
                return Err(dtype_error("arange", message));
            }
        };
    }
    let [start, stop, step] = numbers;
    let count = ((stop - start) / step).ceil();
    // Integers of any dtype are smaller; the sums below then have room.
    let huge = numbers.iter().any(|x| x.abs() > 2f64.powi(96)) && integers.len() == 3;
    if !count.is_finite() || count > isize::MAX as f64 || huge {
        let message = format!("no sequence goes from {start} to {stop} in steps of {step}");
        return Err(shape_error("arange", message));
    }
    let mut n = count.max(0.0) as usize;
    if let [start, stop, step] = integers[..] {
        let (way, width) = match step > 0 {
            true => (stop - start, step),
            false => (start - stop, -step),
        };
        n = usize::try_from((way + width - 1).div_euclid(width)).unwrap_or(0);
        if !dtype.is_float() {
            return whole_sequence(dtype, n, start, step);
        }
    }
    let k = Tensor::arange(n)?.cast(DType::F64)?;
    k.mul(step)?.add(start)?.cast(dtype)
}

fn whole_sequence(dtype: DType, n: usize, start: i128, step: i128) -> Result<Tensor> {
    let Some(steps) = n.checked_sub(1) else {
        return Tensor::arange(0)?.cast(dtype);
    };
    let last = start + steps as i128 * step;
    let (low, high) = dtype.int_range().unwrap_or((start, last));
    let outside = |value: &i128| !(low..=high).contains(value);
    if let Some(far) = [start, last].into_iter().find(outside) {
        let message = format!("{far} does not fit {dtype}; use a wider dtype, i64 or a float");
        return Err(dtype_error("arange", message));
    }
    // In i64 all is right modulo 2^64, hence in each dtype that holds the result.
    let within_i32 = |value: i128| i32::try_from(value).is_ok();
    let (work, bits) = match dtype == DType::I32 && within_i32(start) && within_i32(step) {
        true => (DType::I32, [start, step]),
        false => (DType::I64, [start as i64 as i128, step as i64 as i128]),
    };
    let k = Tensor::arange(n)?.cast(work)?;
    k.mul(Operand::Int(bits[1]))?
        .add(Operand::Int(bits[0]))?
        .cast(dtype)
}
