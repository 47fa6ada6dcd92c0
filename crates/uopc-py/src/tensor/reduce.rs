//! Reductions along axes, and what is made of them.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use uopc::{Result, Tensor};

use super::{PyTensor, located};
use crate::convert::{AnyAxes, AnyTensor, Whole, either};
use crate::dtype::AnyDType;

/// What all reductions are asked for, in NumPy's and PyTorch's names.
pub(super) struct Along {
    pub axes: AnyAxes,
    pub keeps: bool,
}

impl Along {
    pub fn new(
        op: &str,
        axes: [Option<AnyAxes>; 2],
        keeps: [Option<bool>; 2],
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Along> {
        no_out(op, out)?;
        Ok(Along {
            axes: either(["axis", "dim"], axes)?.unwrap_or_default(),
            keeps: either(["keepdim", "keepdims"], keeps)?.unwrap_or(false),
        })
    }
}

/// NumPy's functions hand on `out=None`; anything else can't be had.
pub(super) fn no_out(op: &str, out: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    match out {
        None => Ok(()),
        Some(out) => {
            let message = format!("{op}: a result is a new tensor; write t.assign(...), not out=t");
            Err(located::<PyTypeError>(out.py(), message))
        }
    }
}

/// The tensor, or what became of it, in the dtype in which a reduction is asked for.
pub(super) fn cast(tensor: &Tensor, dtype: &Option<AnyDType>) -> Result<Tensor> {
    match dtype {
        Some(dtype) => tensor.cast(dtype.0),
        None => Ok(tensor.clone()),
    }
}

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident, $keepdim:ident;)*) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[$doc])*
            #[pyo3(signature = (axis=None, keepdim=None, *, dim=None, keepdims=None, dtype=None, out=None))]
            #[allow(clippy::too_many_arguments)]
            fn $name(
                &self,
                py: Python<'_>,
                axis: Option<AnyAxes>,
                keepdim: Option<bool>,
                dim: Option<AnyAxes>,
                keepdims: Option<bool>,
                dtype: Option<AnyDType>,
                out: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<PyTensor> {
                let along = Along::new(stringify!($name), [axis, dim], [keepdim, keepdims], out)?;
                PyTensor::build(py, || {
                    let tensor = cast(&self.tensor, &dtype)?;
                    let reduced = match along.keeps {
                        true => tensor.$keepdim(along.axes),
                        false => tensor.$name(along.axes),
                    };
                    // Narrow integers have become wider ones.
                    cast(&reduced?, &dtype)
                })
            }
        )* }
    };
}

reductions! {
    /// The sum along axes: one, several as a tuple, or all of them without ``axis``.
    ///
    /// ``keepdim`` leaves the axes with extent 1; ``dim`` and ``keepdims`` are other names of
    /// ``axis`` and ``keepdim``. Bools and integers of up to 16 bits are added as i32 or u32; wider
    /// ones wrap. With ``dtype`` the values are cast first, and the result has it.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> t = Tensor([[1.0, 2.0], [3.0, 4.0]])
    /// >>> t.sum(), t.sum(0), t.sum(axis=1, keepdim=True).shape
    /// (Tensor(10., shape=(), dtype=f32), Tensor([4., 6.], shape=(2,), dtype=f32), (2, 1))
    sum, sum_keepdim;
    /// The mean along axes: one, several as a tuple, or all of them without ``axis``.
    ///
    /// Integers become f32 first. ``keepdim`` leaves the axes with extent 1; ``dim`` and
    /// ``keepdims`` are other names of ``axis`` and ``keepdim``. With ``dtype`` the values are cast
    /// first, and the result has it.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> Tensor([[1, 2], [3, 5]]).mean(1)
    /// Tensor([1.5, 4.0], shape=(2,), dtype=f32)
    mean, mean_keepdim;
    /// The product along axes: one, several as a tuple, or all of them without ``axis``.
    ///
    /// Bools and integers of up to 16 bits are multiplied as i32 or u32. ``keepdim`` leaves the
    /// axes with extent 1; ``dim`` and ``keepdims`` are other names of ``axis`` and ``keepdim``.
    /// With ``dtype`` the values are cast first, and the result has it.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> Tensor([[1, 2], [3, 4]]).prod(0)
    /// Tensor([3, 8], shape=(2,), dtype=i32)
    prod, prod_keepdim;
}

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
    /// The largest element along axes: one, several as a tuple, or all of them without ``axis``.
    ///
    /// NaN if there is one; of no elements minus infinity or the least value. A gradient is shared
    /// evenly by equal ones. ``keepdim`` leaves the axes with extent 1; ``dim`` and ``keepdims``
    /// are other names of ``axis`` and ``keepdim``. The position is argmax's.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> Tensor([[1, 5], [7, 3]]).max(1)
    /// Tensor([5, 7], shape=(2,), dtype=i32)
    max, max_keepdim;
    /// The smallest element along axes: one, several as a tuple, or all of them without ``axis``.
    ///
    /// NaN if there is one; of no elements infinity or the largest value. A gradient is shared
    /// evenly by equal ones. ``keepdim`` leaves the axes with extent 1; ``dim`` and ``keepdims``
    /// are other names of ``axis`` and ``keepdim``. The position is argmin's.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> Tensor([[1, 5], [7, 3]]).min(1)
    /// Tensor([1, 3], shape=(2,), dtype=i32)
    min, min_keepdim;
    /// Whether any element is true along axes: one, several as a tuple, or all without ``axis``.
    ///
    /// True is anything but 0, NaN included; of no elements none is. ``keepdim`` leaves the axes
    /// with extent 1; ``dim`` and ``keepdims`` are other names of ``axis`` and ``keepdim``.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> t = Tensor([[0, 5], [0, 0]])
    /// >>> t.any(1), bool(t.any())
    /// (Tensor([ True, False], shape=(2,), dtype=bool), True)
    any, any_keepdim;
    /// Whether all elements are true along axes: one, several as a tuple, or all without ``axis``.
    ///
    /// True is anything but 0, NaN included; of no elements all are. ``keepdim`` leaves the axes
    /// with extent 1; ``dim`` and ``keepdims`` are other names of ``axis`` and ``keepdim``.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> t = Tensor([[1, 5], [0, 2]])
    /// >>> t.all(1), bool(t.all())
    /// (Tensor([ True, False], shape=(2,), dtype=bool), False)
    all, all_keepdim;
}

macro_rules! positions {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[$doc])*
            #[pyo3(signature = (axis=None, keepdim=None, *, dim=None, keepdims=None, out=None))]
            #[allow(clippy::too_many_arguments)]
            fn $name(
                &self,
                py: Python<'_>,
                axis: Option<Whole>,
                keepdim: Option<bool>,
                dim: Option<Whole>,
                keepdims: Option<bool>,
                out: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<PyTensor> {
                no_out(stringify!($name), out)?;
                let axis = either(["axis", "dim"], [axis, dim])?;
                let keeps = either(["keepdim", "keepdims"], [keepdim, keepdims])?.unwrap_or(false);
                PyTensor::build(py, || match axis {
                    Some(axis) => {
                        let found = self.tensor.$name(axis.0)?;
                        if keeps { found.unsqueeze(axis.0 as isize) } else { Ok(found) }
                    }
                    None => {
                        let found = self.tensor.reshape([-1])?.$name(0)?;
                        if keeps { found.reshape(vec![1; self.tensor.rank()]) } else { Ok(found) }
                    }
                })
            }
        )* }
    };
}

positions! {
    /// The position of the largest element along an axis, or in row-major order, as i64.
    ///
    /// The first of several, and that of the first NaN if there is one. ``dim`` and ``keepdims`` are
    /// other names of ``axis`` and ``keepdim``.
    ///
    /// Raises ValueError if there is no such axis, or it is empty.
    ///
    /// >>> t = Tensor([[1, 5], [7, 3]])
    /// >>> t.argmax(1), t.argmax()
    /// (Tensor([1, 0], shape=(2,), dtype=i64), Tensor(2, shape=(), dtype=i64))
    argmax;
    /// The position of the smallest element along an axis, or in row-major order, as i64.
    ///
    /// The first of several, and that of the first NaN if there is one. ``dim`` and ``keepdims`` are
    /// other names of ``axis`` and ``keepdim``.
    ///
    /// Raises ValueError if there is no such axis, or it is empty.
    ///
    /// >>> t = Tensor([[1, 5], [7, 3]])
    /// >>> t.argmin(1), t.argmin()
    /// (Tensor([0, 1], shape=(2,), dtype=i64), Tensor(0, shape=(), dtype=i64))
    argmin;
}

#[pymethods]
impl PyTensor {
    /// The variance along axes: one, several as a tuple, or all of them without ``axis``.
    ///
    /// The squared deviations from the mean are added and divided by N - ``correction``, where N is
    /// their number: by N, as in NumPy, if it is not given; 1 gives PyTorch's default. ``ddof`` is
    /// another name of it. ``keepdim`` leaves the axes with extent 1; ``dim`` and ``keepdims`` are
    /// other names of ``axis`` and ``keepdim``. Integers become f32 first. With ``dtype`` the values
    /// are cast first, and the result has it.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> t = Tensor([1.0, 3.0])
    /// >>> t.var(), t.var(correction=1)
    /// (Tensor(1., shape=(), dtype=f32), Tensor(2., shape=(), dtype=f32))
    #[pyo3(signature = (axis=None, keepdim=None, *, correction=None, ddof=None, dim=None, keepdims=None, dtype=None, out=None))]
    #[allow(clippy::too_many_arguments)]
    fn var(
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
        let along = Along::new("var", [axis, dim], [keepdim, keepdims], out)?;
        let correction = either(["correction", "ddof"], [correction, ddof])?.unwrap_or(0.0);
        PyTensor::build(py, || {
            let tensor = cast(&self.tensor, &dtype)?;
            let reduced = match along.keeps {
                true => tensor.var_corrected_keepdim(along.axes, correction),
                false => tensor.var_corrected(along.axes, correction),
            };
            cast(&reduced?, &dtype)
        })
    }

    /// exp(self) divided by its sum along an axis, by default the last one, so that it adds up to 1.
    ///
    /// Safe for numbers of any size. ``dim`` is another name of ``axis``.
    ///
    /// Raises ValueError if there is no such axis.
    ///
    /// >>> Tensor([[0.0, 0.0], [1000.0, 0.0]]).softmax()
    /// Tensor([[0.5, 0.5],
    ///         [1.0, 0.0]], shape=(2, 2), dtype=f32)
    #[pyo3(signature = (axis=None, *, dim=None))]
    fn softmax(
        &self,
        py: Python<'_>,
        axis: Option<Whole>,
        dim: Option<Whole>,
    ) -> PyResult<PyTensor> {
        let axis = either(["axis", "dim"], [axis, dim])?.unwrap_or(Whole(-1));
        PyTensor::build(py, || self.tensor.softmax(axis.0))
    }

    /// The logarithm of softmax along an axis, by default the last one.
    ///
    /// Without the loss of small numbers that taking the logarithm afterwards has. ``dim`` is
    /// another name of ``axis``.
    ///
    /// Raises ValueError if there is no such axis.
    ///
    /// >>> Tensor([0.0, 0.0]).log_softmax()
    /// Tensor([-0.6931, -0.6931], shape=(2,), dtype=f32)
    #[pyo3(signature = (axis=None, *, dim=None))]
    fn log_softmax(
        &self,
        py: Python<'_>,
        axis: Option<Whole>,
        dim: Option<Whole>,
    ) -> PyResult<PyTensor> {
        let axis = either(["axis", "dim"], [axis, dim])?.unwrap_or(Whole(-1));
        PyTensor::build(py, || self.tensor.log_softmax(axis.0))
    }

    /// The mean over all rows of -log(softmax(row)[label]).
    ///
    /// Logits of shape S + (classes,) and integer labels of shape S give a scalar. A label that is
    /// no class makes it NaN.
    ///
    /// Raises TypeError if the labels are not integers, ValueError if their shape does not fit.
    ///
    /// >>> Tensor([[0.0, 0.0], [50.0, 0.0]]).cross_entropy(Tensor([1, 0]))
    /// Tensor(0.3466, shape=(), dtype=f32)
    fn cross_entropy(&self, py: Python<'_>, labels: AnyTensor) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.cross_entropy(&labels.0))
    }

    /// The part of rows whose largest element is at the label, as f32.
    ///
    /// Raises TypeError if the labels are not integers, ValueError if their shape does not fit.
    ///
    /// >>> Tensor([[0.1, 0.9], [0.8, 0.2]]).accuracy(Tensor([1, 1]))
    /// Tensor(0.5, shape=(), dtype=f32)
    fn accuracy(&self, py: Python<'_>, labels: AnyTensor) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.accuracy(&labels.0))
    }

    /// The matrix product of the last two axes, as ``@`` and as in NumPy.
    ///
    /// Axes before them broadcast; a vector is a row on the left and a column on the right. Dtypes
    /// are promoted; integers wrap.
    ///
    /// Raises ValueError if an operand is a scalar, the inner extents differ, or the axes before do
    /// not broadcast.
    ///
    /// >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).matmul(Tensor([1.0, 10.0]))
    /// Tensor([21., 43.], shape=(2,), dtype=f32)
    fn matmul(&self, py: Python<'_>, other: AnyTensor) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.matmul(&other.0))
    }
}
