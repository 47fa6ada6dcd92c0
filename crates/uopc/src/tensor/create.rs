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
        let mut numbers = [0.0; 3];
        let mut float = false;
        for (number, bound) in numbers.iter_mut().zip(&bounds) {
            *number = match *bound {
                Operand::Float(value) => value,
                Operand::Int(value) => value as f64,
                _ => {
                    let message = "bounds and step are numbers, not tensors or bools".into();
                    return Err(dtype_error("arange_from", message));
                }
            };
            float |= matches!(bound, Operand::Float(_));
        }
        let [start, stop, step] = numbers;
        let count = ((stop - start) / step).ceil();
        if !count.is_finite() || count > isize::MAX as f64 {
            let message = format!("no sequence goes from {start} to {stop} in steps of {step}");
            return Err(shape_error("arange_from", message));
        }
        let n = count.max(0.0) as usize;
        if let (false, Some(k)) = (float, n.checked_sub(1)) {
            let whole = |bound: &Operand| match *bound {
                Operand::Int(value) => value,
                _ => 0,
            };
            let last = (k as i128).checked_mul(whole(&bounds[2]));
            let last = last.and_then(|last| last.checked_add(whole(&bounds[0])));
            if last.is_none_or(|last| i32::try_from(last).is_err()) {
                let last = last.map_or("the last element".into(), |last| last.to_string());
                let message = format!("{last} does not fit i32; use floats, or arange and i64");
                return Err(dtype_error("arange_from", message));
            }
        }
        if float {
            let k = Tensor::arange(n)?.cast(DType::F64)?;
            k.mul(step)?.add(start)?.cast(DType::F32)
        } else {
            Tensor::arange(n)?
                .cast(DType::I32)?
                .mul(&bounds[2])?
                .add(&bounds[0])
        }
    }
}
