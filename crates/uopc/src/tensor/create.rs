//! Tensors from numbers: constants and sequences. They are graphs and take no memory until they
//! are computed.

use std::fmt::Display;

use super::args::{Dims, shape_of};
use super::{DType, Error, Operand, Result, Shape, Site, Tensor, UOp, dtype_error, shape_error};
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
        let (mut numbers, mut whole, mut float) = ([0.0; 3], [0; 3], false);
        for (k, bound) in bounds.iter().enumerate() {
            numbers[k] = match *bound {
                Operand::Float(value) => {
                    float = true;
                    value
                }
                Operand::Int(value) => {
                    whole[k] = value;
                    value as f64
                }
                _ => {
                    let message = "bounds and step are numbers, not tensors or bools".into();
                    return Err(dtype_error("arange_from", message));
                }
            };
        }
        if float {
            floats(numbers)
        } else {
            whole_numbers(whole)
        }
    }
}

/// An f32 sequence; each element is computed in f64.
fn floats([start, stop, step]: [f64; 3]) -> Result<Tensor> {
    let count = ((stop - start) / step).ceil();
    if !count.is_finite() || count > isize::MAX as f64 {
        return Err(endless(start, stop, step));
    }
    let k = Tensor::arange(count.max(0.0) as usize)?.cast(DType::F64)?;
    k.mul(step)?.add(start)?.cast(DType::F32)
}

/// An i32 sequence.
fn whole_numbers([start, stop, step]: [i128; 3]) -> Result<Tensor> {
    let Some(count) = steps_between(start, stop, step) else {
        return Err(endless(start, stop, step));
    };
    if count == 0 {
        return Tensor::arange(0);
    }
    let last = (count - 1).checked_mul(step);
    let last = last.and_then(|way| way.checked_add(start));
    for end in [Some(start), last] {
        if end.is_none_or(|end| i32::try_from(end).is_err()) {
            let end = end.map_or("the last element".into(), |end| end.to_string());
            let message = format!("{end} does not fit i32; use floats, or arange and i64");
            return Err(dtype_error("arange_from", message));
        }
    }
    // All elements fit i32, so what wraps on the way to them wraps back.
    Tensor::arange(count as usize)?
        .cast(DType::I32)?
        .mul(step as i32)?
        .add(start as i32)
}

/// How many of `start, start + step, ...` come before `stop`; `None` if that has no answer.
fn steps_between(start: i128, stop: i128, step: i128) -> Option<i128> {
    if step == 0 {
        return None;
    }
    let way = stop.checked_sub(start)?;
    if way == 0 || (way > 0) != (step > 0) {
        return Some(0);
    }
    let whole = way.checked_div(step)?;
    let count = whole + i128::from(way % step != 0);
    (count <= isize::MAX as i128).then_some(count)
}

fn endless(start: impl Display, stop: impl Display, step: impl Display) -> Error {
    let message = format!("no sequence goes from {start} to {stop} in steps of {step}");
    shape_error("arange_from", message)
}
