//! Running combinations, sorting, and what rests on it.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use uopc::tensor::{Interpolation, Side};
use uopc::{Result, Tensor};

use super::reduce::{Along, cast, no_out};
use super::{PyTensor, located};
use crate::convert::{AnyAxes, AnyTensor, Real, Whole, either, shown};
use crate::dtype::AnyDType;
use crate::run::build;

type Pair = (PyTensor, PyTensor);

/// The axis that a method goes along, or all elements in row-major order as one.
fn line(
    tensor: &Tensor,
    axis: [Option<Whole>; 2],
) -> PyResult<impl FnOnce() -> Result<(Tensor, i64)> + use<>> {
    let axis = either(["axis", "dim"], axis)?;
    let tensor = tensor.clone();
    Ok(move || match axis {
        Some(axis) => Ok((tensor, axis.0)),
        None => Ok((tensor.reshape([-1])?, 0)),
    })
}

fn last(axis: [Option<Whole>; 2]) -> PyResult<i64> {
    Ok(either(["axis", "dim"], axis)?.map_or(-1, |axis| axis.0))
}

fn pair(py: Python<'_>, f: impl FnOnce() -> Result<(Tensor, Tensor)>) -> PyResult<Pair> {
    let (values, positions) = build(py, f)?;
    Ok((values.into(), positions.into()))
}

/// How many elements, or which one.
fn count(py: Python<'_>, op: &str, k: &Whole) -> PyResult<usize> {
    usize::try_from(k.0)
        .map_err(|_| located::<PyValueError>(py, format!("{op}: k = {} is negative", k.0)))
}

/// A number between 0 and 1, or several.
enum Parts {
    One(f64),
    Several(Vec<f64>),
}

impl<'py> FromPyObject<'_, 'py> for Parts {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Parts> {
        if let Ok(one) = ob.extract::<Real>() {
            return Ok(Parts::One(one.0));
        }
        let items = ob.try_iter().and_then(|items| {
            items
                .map(|q| Ok(q?.extract::<Real>()?.0))
                .collect::<PyResult<_>>()
        });
        items.map(Parts::Several).map_err(|_| {
            let message = format!("q is a number or a list of numbers, not {}", shown(&ob));
            located::<PyTypeError>(ob.py(), message)
        })
    }
}

#[pymethods]
impl PyTensor {
    /// The sums of the elements up to each one along an axis, or in row-major order.
    ///
    /// Elements are added one after the other, f16 and bf16 in f32. Bools and integers of up to 16
    /// bits are added as i32 or u32; wider ones wrap. With ``dtype`` the values are cast first, and
    /// the result has it. ``dim`` is another name of ``axis``.
    ///
    /// Raises ValueError if there is no such axis.
    ///
    /// >>> t = Tensor([[1, 2], [3, 4]])
    /// >>> t.cumsum(1)
    /// Tensor([[1, 3],
    ///         [3, 7]], shape=(2, 2), dtype=i32)
    /// >>> t.cumsum()
    /// Tensor([ 1,  3,  6, 10], shape=(4,), dtype=i32)
    #[pyo3(signature = (axis=None, *, dim=None, dtype=None, out=None))]
    fn cumsum(
        &self,
        py: Python<'_>,
        axis: Option<Whole>,
        dim: Option<Whole>,
        dtype: Option<AnyDType>,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyTensor> {
        no_out("cumsum", out)?;
        let line = line(&self.tensor, [axis, dim])?;
        PyTensor::build(py, || {
            let (tensor, axis) = line()?;
            cast(&cast(&tensor, &dtype)?.cumsum(axis)?, &dtype)
        })
    }

    /// The products of the elements up to each one along an axis, or in row-major order.
    ///
    /// Elements are multiplied one after the other, f16 and bf16 in f32. Bools and integers of up to
    /// 16 bits are multiplied as i32 or u32; wider ones wrap. With ``dtype`` the values are cast
    /// first, and the result has it. ``dim`` is another name of ``axis``. The gradient is right with
    /// any number of zeros.
    ///
    /// Raises ValueError if there is no such axis.
    ///
    /// >>> Tensor([2, 3, 4]).cumprod(0)
    /// Tensor([ 2,  6, 24], shape=(3,), dtype=i32)
    #[pyo3(signature = (axis=None, *, dim=None, dtype=None, out=None))]
    fn cumprod(
        &self,
        py: Python<'_>,
        axis: Option<Whole>,
        dim: Option<Whole>,
        dtype: Option<AnyDType>,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyTensor> {
        no_out("cumprod", out)?;
        let line = line(&self.tensor, [axis, dim])?;
        PyTensor::build(py, || {
            let (tensor, axis) = line()?;
            cast(&cast(&tensor, &dtype)?.cumprod(axis)?, &dtype)
        })
    }

    /// The largest of the elements up to each one along an axis, or in row-major order, and where it
    /// stands, as i64: ``(values, positions)``.
    ///
    /// Of equal ones it stands at the last so far. From a NaN on it is NaN, at the last NaN so far.
    /// The gradient goes to the elements at the positions. ``dim`` is another name of ``axis``.
    ///
    /// Raises ValueError if there is no such axis.
    ///
    /// >>> values, positions = Tensor([1, 3, 2, 3]).cummax(0)
    /// >>> values, positions
    /// (Tensor([1, 3, 3, 3], shape=(4,), dtype=i32), Tensor([0, 1, 1, 3], shape=(4,), dtype=i64))
    #[pyo3(signature = (axis=None, *, dim=None))]
    fn cummax(&self, py: Python<'_>, axis: Option<Whole>, dim: Option<Whole>) -> PyResult<Pair> {
        let line = line(&self.tensor, [axis, dim])?;
        pair(py, || {
            let (tensor, axis) = line()?;
            tensor.cummax(axis)
        })
    }

    /// The smallest of the elements up to each one along an axis, or in row-major order, and where it
    /// stands, as i64: ``(values, positions)``.
    ///
    /// Of equal ones it stands at the last so far. From a NaN on it is NaN, at the last NaN so far.
    /// The gradient goes to the elements at the positions. ``dim`` is another name of ``axis``.
    ///
    /// Raises ValueError if there is no such axis.
    ///
    /// >>> Tensor([3, 1, 2]).cummin(0)[0]
    /// Tensor([3, 1, 1], shape=(3,), dtype=i32)
    #[pyo3(signature = (axis=None, *, dim=None))]
    fn cummin(&self, py: Python<'_>, axis: Option<Whole>, dim: Option<Whole>) -> PyResult<Pair> {
        let line = line(&self.tensor, [axis, dim])?;
        pair(py, || {
            let (tensor, axis) = line()?;
            tensor.cummin(axis)
        })
    }

    /// The logarithms of the sums of exponentials up to each element along an axis, or in row-major
    /// order.
    ///
    /// Safe for numbers of any size. Integers become f32 first. ``dim`` is another name of ``axis``.
    ///
    /// Raises ValueError if there is no such axis.
    ///
    /// >>> Tensor([0.0, 0.0, 1000.0]).logcumsumexp(0)
    /// Tensor([   0.0000,    0.6931, 1000.0000], shape=(3,), dtype=f32)
    #[pyo3(signature = (axis=None, *, dim=None))]
    fn logcumsumexp(
        &self,
        py: Python<'_>,
        axis: Option<Whole>,
        dim: Option<Whole>,
    ) -> PyResult<PyTensor> {
        let line = line(&self.tensor, [axis, dim])?;
        PyTensor::build(py, || {
            let (tensor, axis) = line()?;
            tensor.logcumsumexp(axis)
        })
    }

    /// The elements in order along an axis, by default the last one, and where they stood, as i64:
    /// ``(values, positions)``.
    ///
    /// NaNs are larger than all numbers. Equal elements keep their order, whatever ``stable`` says.
    /// ``dim`` is another name of ``axis``.
    ///
    /// Raises ValueError if there is no such axis.
    ///
    /// >>> values, positions = Tensor([3, 1, 2, 1]).sort()
    /// >>> values, positions
    /// (Tensor([1, 1, 2, 3], shape=(4,), dtype=i32), Tensor([1, 3, 2, 0], shape=(4,), dtype=i64))
    /// >>> Tensor([3, 1, 2]).sort(descending=True)[0]
    /// Tensor([3, 2, 1], shape=(3,), dtype=i32)
    #[pyo3(signature = (axis=None, descending=false, stable=None, *, dim=None))]
    fn sort(
        &self,
        py: Python<'_>,
        axis: Option<Whole>,
        descending: bool,
        stable: Option<bool>,
        dim: Option<Whole>,
    ) -> PyResult<Pair> {
        // Every sort is stable.
        let _ = stable;
        let axis = last([axis, dim])?;
        pair(py, || self.tensor.sort(axis, descending))
    }

    /// The positions that sort an axis, by default the last one, as i64.
    ///
    /// NaNs are larger than all numbers. Equal elements keep their order, whatever ``stable`` says.
    /// ``dim`` is another name of ``axis``.
    ///
    /// Raises ValueError if there is no such axis.
    ///
    /// >>> Tensor([3, 1, 2, 1]).argsort()
    /// Tensor([1, 3, 2, 0], shape=(4,), dtype=i64)
    #[pyo3(signature = (axis=None, descending=false, stable=None, *, dim=None))]
    fn argsort(
        &self,
        py: Python<'_>,
        axis: Option<Whole>,
        descending: bool,
        stable: Option<bool>,
        dim: Option<Whole>,
    ) -> PyResult<PyTensor> {
        // Every sort is stable.
        let _ = stable;
        let axis = last([axis, dim])?;
        PyTensor::build(py, || self.tensor.argsort(axis, descending))
    }

    /// The ``k`` largest, or smallest, elements along an axis, by default the last one, and where
    /// they stand, as i64: ``(values, positions)``.
    ///
    /// They are in order, whatever ``sorted`` says; of equal ones the first come first. NaNs are
    /// larger than all numbers. ``dim`` is another name of ``axis``.
    ///
    /// Raises ValueError if there is no such axis, or it has fewer elements.
    ///
    /// >>> values, positions = Tensor([3, 1, 4, 1, 5]).topk(2)
    /// >>> values, positions
    /// (Tensor([5, 4], shape=(2,), dtype=i32), Tensor([4, 2], shape=(2,), dtype=i64))
    #[pyo3(signature = (k, axis=None, largest=true, sorted=true, *, dim=None))]
    fn topk(
        &self,
        py: Python<'_>,
        k: Whole,
        axis: Option<Whole>,
        largest: bool,
        sorted: bool,
        dim: Option<Whole>,
    ) -> PyResult<Pair> {
        // Any order will do for those who want none.
        let _ = sorted;
        let (k, axis) = (count(py, "topk", &k)?, last([axis, dim])?);
        pair(py, || self.tensor.topk(k, axis, largest))
    }

    /// The ``k``-th smallest element along an axis, by default the last one, counted from 1, and
    /// where it stands, as i64: ``(values, positions)``.
    ///
    /// NaNs are larger than all numbers. ``keepdim`` leaves the axis with extent 1; ``dim`` and
    /// ``keepdims`` are other names of ``axis`` and ``keepdim``.
    ///
    /// Raises ValueError if there is no such axis, or it has no such element.
    ///
    /// >>> Tensor([3, 1, 4, 1, 5]).kthvalue(3)
    /// (Tensor(3, shape=(), dtype=i32), Tensor(0, shape=(), dtype=i64))
    #[pyo3(signature = (k, axis=None, keepdim=None, *, dim=None, keepdims=None))]
    fn kthvalue(
        &self,
        py: Python<'_>,
        k: Whole,
        axis: Option<Whole>,
        keepdim: Option<bool>,
        dim: Option<Whole>,
        keepdims: Option<bool>,
    ) -> PyResult<Pair> {
        let (k, axis) = (count(py, "kthvalue", &k)?, last([axis, dim])?);
        let keeps = either(["keepdim", "keepdims"], [keepdim, keepdims])?.unwrap_or(false);
        pair(py, || match keeps {
            true => self.tensor.kthvalue_keepdim(k, axis),
            false => self.tensor.kthvalue(k, axis),
        })
    }

    /// Where numbers go in this sorted tensor so that it stays sorted, as i64.
    ///
    /// With ``side="left"`` that is before the elements that equal them, with ``side="right"``, or
    /// ``right=True``, behind. The tensor has ascending rows along its last axis: one for all
    /// ``values``, or as many axes as they have and a row for each of theirs. With ``sorter``, the
    /// positions that sort it, a row need not be sorted itself. NaNs are larger than all numbers.
    ///
    /// Raises ValueError if the shapes do not fit, or for another side.
    ///
    /// >>> Tensor([1, 3, 3, 5]).searchsorted([0, 3, 6])
    /// Tensor([0, 1, 4], shape=(3,), dtype=i64)
    /// >>> Tensor([1, 3, 3, 5]).searchsorted(3, side="right")
    /// Tensor(3, shape=(), dtype=i64)
    #[pyo3(signature = (values, side=None, sorter=None, *, right=None))]
    fn searchsorted(
        &self,
        py: Python<'_>,
        values: AnyTensor,
        side: Option<&str>,
        sorter: Option<AnyTensor>,
        right: Option<bool>,
    ) -> PyResult<PyTensor> {
        let side = match (side, right) {
            (None | Some("left"), None | Some(false)) => Side::Left,
            (Some("right"), None | Some(true)) | (None, Some(true)) => Side::Right,
            (Some("left" | "right"), Some(_)) => {
                let message = "searchsorted: side and right say different things; give one of them";
                return Err(located::<PyValueError>(py, message));
            }
            (Some(other), _) => {
                let message = format!("searchsorted: the side is left or right, not {other:?}");
                return Err(located::<PyValueError>(py, message));
            }
        };
        PyTensor::build(py, || match sorter {
            Some(sorter) => self.tensor.take(&sorter.0)?.searchsorted(&values.0, side),
            None => self.tensor.searchsorted(&values.0, side),
        })
    }

    /// The median along axes: one, several as a tuple, or all of them without ``axis``.
    ///
    /// It is the middle element, or the mean of the two in the middle, as in NumPy; PyTorch's is the
    /// lower of the two, which ``quantile(0.5, interpolation="lower")`` gives. NaN if there is one,
    /// or no element. Integers become f32. ``keepdim`` leaves the axes with extent 1; ``dim`` and
    /// ``keepdims`` are other names of ``axis`` and ``keepdim``.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> t = Tensor([[3.0, 1.0, 2.0], [6.0, 5.0, 9.0]])
    /// >>> t.median(1), t.median()
    /// (Tensor([2., 6.], shape=(2,), dtype=f32), Tensor(4., shape=(), dtype=f32))
    #[pyo3(signature = (axis=None, keepdim=None, *, dim=None, keepdims=None, out=None))]
    #[allow(clippy::too_many_arguments)]
    fn median(
        &self,
        py: Python<'_>,
        axis: Option<AnyAxes>,
        keepdim: Option<bool>,
        dim: Option<AnyAxes>,
        keepdims: Option<bool>,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyTensor> {
        let along = Along::new("median", [axis, dim], [keepdim, keepdims], out)?;
        PyTensor::build(py, || match along.keeps {
            true => self.tensor.median_keepdim(along.axes),
            false => self.tensor.median(along.axes),
        })
    }

    /// The value below which the part ``q`` of the elements along axes lies: one axis, several as a
    /// tuple, or all of them without ``axis``.
    ///
    /// In ascending order it is the element at ``q * (n - 1)``, counted from 0. Between two elements
    /// ``interpolation``, or ``method``, decides: ``"linear"`` takes the one on the line between them,
    /// ``"lower"``, ``"higher"`` or ``"nearest"`` one of them, ``"midpoint"`` their mean. Several
    /// ``q`` in a list give a new first axis. NaN if there is one, or no element. Integers become
    /// f32. ``keepdim`` leaves the axes with extent 1; ``dim`` and ``keepdims`` are other names of
    /// ``axis`` and ``keepdim``.
    ///
    /// Raises ValueError if a q is not between 0 and 1, for another interpolation, or if an axis does
    /// not exist or is named twice.
    ///
    /// >>> t = Tensor([4.0, 1.0, 2.0, 3.0])
    /// >>> t.quantile(0.5), t.quantile([0.0, 0.5], interpolation="lower")
    /// (Tensor(2.5, shape=(), dtype=f32), Tensor([1., 2.], shape=(2,), dtype=f32))
    #[pyo3(signature = (q, axis=None, keepdim=None, *, interpolation=None, method=None, dim=None, keepdims=None, out=None))]
    #[allow(clippy::too_many_arguments)]
    fn quantile(
        &self,
        py: Python<'_>,
        q: Parts,
        axis: Option<AnyAxes>,
        keepdim: Option<bool>,
        interpolation: Option<String>,
        method: Option<String>,
        dim: Option<AnyAxes>,
        keepdims: Option<bool>,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyTensor> {
        let along = Along::new("quantile", [axis, dim], [keepdim, keepdims], out)?;
        let name = either(["interpolation", "method"], [interpolation, method])?;
        PyTensor::build(py, || {
            let how = name.map_or(Ok(Interpolation::Linear), |name| Interpolation::of(&name))?;
            match (q, along.keeps) {
                (Parts::One(q), true) => self.tensor.quantile_keepdim(q, along.axes, how),
                (Parts::One(q), false) => self.tensor.quantile(q, along.axes, how),
                (Parts::Several(q), true) => self.tensor.quantiles_keepdim(&q, along.axes, how),
                (Parts::Several(q), false) => self.tensor.quantiles(&q, along.axes, how),
            }
        })
    }
}
