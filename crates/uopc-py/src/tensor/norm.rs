//! Methods for deviations, norms, logarithms of sums, counts, and sums that leave NaN out.

use pyo3::prelude::*;
use uopc::Tensor;

use super::PyTensor;
use super::reduce::{Along, cast};
use crate::convert::{AnyAxes, either};
use crate::dtype::AnyDType;

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident, $keepdim:ident;)*) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[$doc])*
            #[pyo3(signature = (axis=None, keepdim=None, *, dim=None, keepdims=None, out=None))]
            #[allow(clippy::too_many_arguments)]
            fn $name(
                &self,
                py: Python<'_>,
                axis: Option<AnyAxes>,
                keepdim: Option<bool>,
                dim: Option<AnyAxes>,
                keepdims: Option<bool>,
                out: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<PyTensor> {
                let along = Along::new(stringify!($name), [axis, dim], [keepdim, keepdims], out)?;
                PyTensor::build(py, || match along.keeps {
                    true => self.tensor.$keepdim(along.axes),
                    false => self.tensor.$name(along.axes),
                })
            }
        )* }
    };
}

choices! {
    /// log of the sum of exp(self) along axes: one, several as a tuple, or all without ``axis``.
    ///
    /// Safe for numbers of any size; -inf for no elements. Integers become f32 first. ``keepdim`` leaves
    /// the axes with extent 1; ``dim`` and ``keepdims`` are other names of ``axis`` and ``keepdim``.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> Tensor([[0.0, 0.0], [1000.0, 0.0]]).logsumexp(1)
    /// Tensor([   0.6931, 1000.0000], shape=(2,), dtype=f32)
    logsumexp, logsumexp_keepdim;
    /// How many elements along axes are not 0, as i64; a NaN is not 0.
    ///
    /// ``axis`` is one axis, several as a tuple, or all of them if missing. ``keepdim`` leaves them with
    /// extent 1; ``dim`` and ``keepdims`` are other names of ``axis`` and ``keepdim``.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> Tensor([[0, 5], [1, 2]]).count_nonzero(0)
    /// Tensor([1, 2], shape=(2,), dtype=i64)
    count_nonzero, count_nonzero_keepdim;
    /// The sum of what is not NaN along axes: one, several as a tuple, or all without ``axis``.
    ///
    /// ``keepdim`` leaves the axes with extent 1; ``dim`` and ``keepdims`` are other names of ``axis``
    /// and ``keepdim``. Bools and integers of up to 16 bits are added as i32 or u32.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> Tensor([1.0, float("nan"), 2.0]).nansum()
    /// Tensor(3., shape=(), dtype=f32)
    nansum, nansum_keepdim;
    /// The mean of what is not NaN along axes, NaN if nothing is left. Integers become f32 first.
    ///
    /// ``axis`` is one axis, several as a tuple, or all of them if missing. ``keepdim`` leaves them with
    /// extent 1; ``dim`` and ``keepdims`` are other names of ``axis`` and ``keepdim``.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> Tensor([1.0, float("nan"), 2.0]).nanmean()
    /// Tensor(1.5, shape=(), dtype=f32)
    nanmean, nanmean_keepdim;
}

#[pymethods]
impl PyTensor {
    /// The standard deviation along axes, the square root of var: see there for the arguments.
    ///
    /// The squared deviations are divided by N - ``correction``: by N, as in NumPy, if it is not given;
    /// 1 gives PyTorch's default. The gradient is 0 where the deviation is.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> t = Tensor([1.0, 5.0])
    /// >>> t.std(), t.std(correction=1)
    /// (Tensor(2., shape=(), dtype=f32), Tensor(2.8284, shape=(), dtype=f32))
    #[pyo3(signature = (axis=None, keepdim=None, *, correction=None, ddof=None, dim=None, keepdims=None, dtype=None, out=None))]
    #[allow(clippy::too_many_arguments)]
    fn std(
        &self,
        py: Python<'_>,
        axis: Option<AnyAxes>,
        keepdim: Option<bool>,
        correction: Option<f64>,
        ddof: Option<f64>,
        dim: Option<AnyAxes>,
        keepdims: Option<bool>,
        dtype: Option<AnyDType>,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyTensor> {
        let along = Along::new("std", [axis, dim], [keepdim, keepdims], out)?;
        let correction = either(["correction", "ddof"], [correction, ddof])?.unwrap_or(0.0);
        PyTensor::build(py, || {
            let tensor = cast(&self.tensor, &dtype)?;
            let reduced = match along.keeps {
                true => tensor.std_keepdim(along.axes, correction),
                false => tensor.std(along.axes, correction),
            };
            cast(&reduced?, &dtype)
        })
    }

    /// The p-norm along axes, (sum of abs(self)^p)^(1/p): by default the root of the sum of squares.
    ///
    /// ``p`` may be infinity (the largest magnitude), minus infinity (the least), 0 (how many are not 0)
    /// or any other number; ``ord`` is another name of it. ``axis`` is one axis, several as a tuple, or all
    /// of them if missing; ``keepdim`` leaves them with extent 1. ``dim`` and ``keepdims`` are other names of
    /// ``axis`` and ``keepdim``. Integers become f32 first. The gradient is 0 where the norm is.
    ///
    /// Raises ValueError if an axis does not exist or is named twice, and for the largest of no elements.
    ///
    /// >>> t = Tensor([3.0, -4.0])
    /// >>> t.norm(), t.norm(1), t.norm(float("inf"))
    /// (Tensor(5., shape=(), dtype=f32), Tensor(7., shape=(), dtype=f32), Tensor(4., shape=(), dtype=f32))
    #[pyo3(signature = (p=None, axis=None, keepdim=None, *, ord=None, dim=None, keepdims=None, out=None))]
    #[allow(clippy::too_many_arguments)]
    fn norm(
        &self,
        py: Python<'_>,
        p: Option<f64>,
        axis: Option<AnyAxes>,
        keepdim: Option<bool>,
        ord: Option<f64>,
        dim: Option<AnyAxes>,
        keepdims: Option<bool>,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyTensor> {
        let along = Along::new("norm", [axis, dim], [keepdim, keepdims], out)?;
        let p = either(["p", "ord"], [p, ord])?.unwrap_or(2.0);
        PyTensor::build(py, || match along.keeps {
            true => self.tensor.norm_keepdim(along.axes, p),
            false => self.tensor.norm(along.axes, p),
        })
    }

    /// The smallest and the largest element along axes, see min and max.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> Tensor([3, 1, 2]).aminmax()
    /// (Tensor(1, shape=(), dtype=i32), Tensor(3, shape=(), dtype=i32))
    #[pyo3(signature = (axis=None, keepdim=None, *, dim=None, keepdims=None))]
    fn aminmax(
        &self,
        py: Python<'_>,
        axis: Option<AnyAxes>,
        keepdim: Option<bool>,
        dim: Option<AnyAxes>,
        keepdims: Option<bool>,
    ) -> PyResult<(PyTensor, PyTensor)> {
        let along = Along::new("aminmax", [axis, dim], [keepdim, keepdims], None)?;
        let (axes, t) = (&along.axes, &self.tensor);
        let find = |keeping: fn(&Tensor, &AnyAxes) -> uopc::Result<Tensor>| {
            PyTensor::build(py, || keeping(t, axes))
        };
        match along.keeps {
            true => Ok((
                find(|t, axes| t.min_keepdim(axes))?,
                find(|t, axes| t.max_keepdim(axes))?,
            )),
            false => Ok((find(|t, axes| t.min(axes))?, find(|t, axes| t.max(axes))?)),
        }
    }
}
