//! Methods that read, add and set at the positions in a tensor, and choices whose shape depends on
//! values.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uopc::Tensor;
use uopc::tensor::{Combine, Operand};

use super::index::part_value;
use super::matrices::count;
use super::{PyTensor, located, tuple_of};
use crate::convert::{AnyOperand, AnyTensor, Tensors, Whole};
use crate::run::compute;

#[pymethods]
impl PyTensor {
    /// For each position the element there along an axis: ``y[i, j] = x[p[i, j], j]`` for axis 0.
    ///
    /// The other axes of the positions may be shorter than the tensor's. Negative positions count from
    /// the end; out of range reads zeros. The gradient adds up what is read of each element.
    ///
    /// Raises TypeError if the positions are not integers, ValueError if their shape does not fit.
    ///
    /// >>> Tensor([[1, 2, 3], [4, 5, 6]]).gather(1, [[2], [0]])
    /// Tensor([[3],
    ///         [4]], shape=(2, 1), dtype=i32)
    fn gather(&self, py: Python<'_>, dim: Whole, index: AnyTensor) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.gather(dim.0, &index.0))
    }

    /// ``gather`` as NumPy has it: all other axes broadcast.
    ///
    /// Negative positions count from the end; out of range reads zeros.
    ///
    /// Raises TypeError if the positions are not integers, ValueError if shapes do not fit.
    ///
    /// >>> t = Tensor([[3, 1, 2], [4, 6, 5]])
    /// >>> t.take_along_axis(t.argmax(1, keepdim=True), 1)
    /// Tensor([[3],
    ///         [6]], shape=(2, 1), dtype=i32)
    #[pyo3(signature = (indices, axis=Whole(-1)), text_signature = "($self, indices, axis=-1)")]
    fn take_along_axis(
        &self,
        py: Python<'_>,
        indices: AnyTensor,
        axis: Whole,
    ) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.take_along_axis(&indices.0, axis.0))
    }

    /// The entries of an axis at positions, which take the axis's place.
    ///
    /// Negative positions count from the end; out of range reads zeros.
    ///
    /// Raises TypeError if the positions are not integers, ValueError if there is no such axis.
    ///
    /// >>> Tensor([[1, 2, 3], [4, 5, 6]]).index_select(1, [2, 0])
    /// Tensor([[3, 1],
    ///         [6, 4]], shape=(2, 2), dtype=i32)
    fn index_select(&self, py: Python<'_>, dim: Whole, index: AnyTensor) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.index_select(dim.0, &index.0))
    }

    /// A copy with ``alpha`` times the entries of a source added to those at the positions of an axis.
    ///
    /// Entries for one position are added in their order. Out of range adds nothing.
    ///
    /// Raises TypeError if the positions are not integers, ValueError if shapes do not fit.
    ///
    /// >>> Tensor([1, 2, 3]).index_add(0, [0, 2, 0], Tensor([10, 20, 30]))
    /// Tensor([41, 2, 23], shape=(3,), dtype=i32)
    #[pyo3(
        signature = (dim, index, source, *, alpha=AnyOperand(Operand::Int(1))),
        text_signature = "($self, dim, index, source, *, alpha=1)"
    )]
    fn index_add(
        &self,
        py: Python<'_>,
        dim: Whole,
        index: AnyTensor,
        source: AnyTensor,
        alpha: AnyOperand,
    ) -> PyResult<PyTensor> {
        PyTensor::build(py, || {
            self.tensor.index_add(dim.0, &index.0, &source.0, alpha.0)
        })
    }

    /// A copy with the entries of a source at the positions of an axis. Of several for one position the
    /// last stays.
    ///
    /// Raises TypeError if the positions are not integers, ValueError if shapes do not fit.
    ///
    /// >>> Tensor([1, 2, 3]).index_copy(0, [2, 0], Tensor([10, 20]))
    /// Tensor([20, 2, 10], shape=(3,), dtype=i32)
    fn index_copy(
        &self,
        py: Python<'_>,
        dim: Whole,
        index: AnyTensor,
        source: AnyTensor,
    ) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.index_copy(dim.0, &index.0, &source.0))
    }

    /// A copy with a number, or a scalar tensor, in all entries at the positions of an axis.
    ///
    /// Raises TypeError if the positions are not integers, ValueError if there is no such axis.
    ///
    /// >>> Tensor([1, 2, 3]).index_fill(0, [-1, 0], 9)
    /// Tensor([9, 2, 9], shape=(3,), dtype=i32)
    fn index_fill(
        &self,
        py: Python<'_>,
        dim: Whole,
        index: AnyTensor,
        value: AnyOperand,
    ) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.index_fill(dim.0, &index.0, value.0))
    }

    /// A copy with the elements of a source, or a number, at positions along an axis:
    /// ``x[p[i, j], j] = s[i, j]`` for axis 0.
    ///
    /// Of several for one place the last in row-major order stays, for any number of threads; only that
    /// one has a gradient. Negative positions count from the end; out of range sets nothing.
    ///
    /// Raises TypeError if the positions are not integers or the source has another kind of numbers,
    /// ValueError if shapes do not fit.
    ///
    /// >>> Tensor([0, 0, 0]).scatter(0, [2, 0, 2], Tensor([1, 2, 3]))
    /// Tensor([2, 0, 3], shape=(3,), dtype=i32)
    fn scatter(
        &self,
        py: Python<'_>,
        dim: Whole,
        index: AnyTensor,
        src: &Bound<'_, PyAny>,
    ) -> PyResult<PyTensor> {
        let src = part_value(src)?;
        PyTensor::build(py, || self.tensor.scatter(dim.0, &index.0, src))
    }

    /// A copy with the elements of a source added at positions along an axis:
    /// ``x[p[i, j], j] += s[i, j]`` for axis 0.
    ///
    /// Elements for one place are added in the row-major order of the positions, so the result has the
    /// same bits each time. Negative positions count from the end; out of range adds nothing.
    ///
    /// Raises TypeError if the positions are not integers or the source has another kind of numbers,
    /// ValueError if shapes do not fit.
    ///
    /// >>> Tensor.zeros(3).scatter_add(0, [2, 0, 2], Tensor([1.0, 2.0, 4.0]))
    /// Tensor([2., 0., 5.], shape=(3,), dtype=f32)
    fn scatter_add(
        &self,
        py: Python<'_>,
        dim: Whole,
        index: AnyTensor,
        src: &Bound<'_, PyAny>,
    ) -> PyResult<PyTensor> {
        let src = part_value(src)?;
        PyTensor::build(py, || self.tensor.scatter_add(dim.0, &index.0, src))
    }

    /// A copy in which what a source has for a place is combined there: by "sum", "prod", "mean", "amax"
    /// or "amin", and with what stood there unless ``include_self`` is False.
    ///
    /// Places that nothing is for stay as they are.
    ///
    /// Raises TypeError if the positions are not integers or the source has another kind of numbers,
    /// ValueError if shapes do not fit or for another ``reduce``.
    ///
    /// >>> t = Tensor([5, 5, 5])
    /// >>> t.scatter_reduce(0, [0, 0, 1], Tensor([3, 9, 2]), "amax", include_self=False)
    /// Tensor([9, 2, 5], shape=(3,), dtype=i32)
    #[pyo3(signature = (dim, index, src, reduce, *, include_self=true))]
    fn scatter_reduce(
        &self,
        py: Python<'_>,
        dim: Whole,
        index: AnyTensor,
        src: &Bound<'_, PyAny>,
        reduce: &str,
        include_self: bool,
    ) -> PyResult<PyTensor> {
        let combine = match reduce {
            "sum" => Combine::Sum,
            "prod" => Combine::Prod,
            "mean" => Combine::Mean,
            "amax" => Combine::Amax,
            "amin" => Combine::Amin,
            other => {
                let message = format!(
                    "scatter_reduce: {other:?} combines nothing; \"sum\", \"prod\", \"mean\", \"amax\" \
                     and \"amin\" do"
                );
                return Err(located::<PyValueError>(py, message));
            }
        };
        let src = part_value(src)?;
        PyTensor::build(py, || {
            self.tensor
                .scatter_reduce(dim.0, &index.0, src, combine, include_self)
        })
    }

    /// ``scatter`` as NumPy's put_along_axis, as a value: all other axes of the positions broadcast
    /// against the tensor's, and the values against the positions.
    ///
    /// Raises TypeError if the positions are not integers or the values have another kind of numbers,
    /// ValueError if shapes do not fit.
    ///
    /// >>> Tensor([[1, 2, 3], [4, 5, 6]]).put_along_axis([[0]], 9, 1)
    /// Tensor([[9, 2, 3],
    ///         [9, 5, 6]], shape=(2, 3), dtype=i32)
    fn put_along_axis(
        &self,
        py: Python<'_>,
        indices: AnyTensor,
        values: &Bound<'_, PyAny>,
        axis: Whole,
    ) -> PyResult<PyTensor> {
        let values = part_value(values)?;
        PyTensor::build(py, || {
            self.tensor.put_along_axis(&indices.0, values, axis.0)
        })
    }

    /// A copy with values at the places that one tensor for each of the first axes names together, or with
    /// the values added there if ``accumulate``. The tensors may be masks, which are computed first.
    ///
    /// Of several values for one place the last stays. Out of range sets and adds nothing.
    ///
    /// Raises IndexError if the positions do not fit, ValueError if the values do not broadcast,
    /// TypeError if their dtype does not fit.
    ///
    /// >>> t = Tensor.zeros(2, 2)
    /// >>> t.index_put(([0, 1, 0], [1, 0, 1]), Tensor([1.0, 2.0, 4.0]), accumulate=True)
    /// Tensor([[0., 5.],
    ///         [2., 0.]], shape=(2, 2), dtype=f32)
    #[pyo3(signature = (indices, values, accumulate=false))]
    fn index_put(
        &self,
        py: Python<'_>,
        indices: Tensors,
        values: &Bound<'_, PyAny>,
        accumulate: bool,
    ) -> PyResult<PyTensor> {
        let values = part_value(values)?;
        PyTensor::compute(py, || {
            let indices: Vec<&Tensor> = indices.0.iter().collect();
            self.tensor.index_put(&indices, values, accumulate)
        })
    }

    /// The entries of this tensor added into zeros at the positions in an integer tensor or list, as
    /// JAX's segment_sum.
    ///
    /// With positions of shape S and entries of shape S + R the result has shape (n,) + R: it is what
    /// ``numpy.add.at`` makes of zeros. Entries for one position are added in their order. Negative
    /// positions count from the end; out of range adds nothing.
    ///
    /// Raises TypeError if the positions are not integers, ValueError if their shape is not that of
    /// the leading axes or the number is negative.
    ///
    /// >>> Tensor([1.0, 2.0, 4.0]).segment_sum([2, 0, 2], 3)
    /// Tensor([2., 0., 5.], shape=(3,), dtype=f32)
    fn segment_sum(
        &self,
        py: Python<'_>,
        segment_ids: AnyTensor,
        num_segments: Whole,
    ) -> PyResult<PyTensor> {
        let n = count(py, "segment_sum", &num_segments)?;
        PyTensor::build(py, || self.tensor.segment_sum(&segment_ids.0, n))
    }

    /// The elements where a mask is true, in row-major order; the two broadcast.
    ///
    /// Without ``size`` the mask is computed now, since the number of elements is the shape of the
    /// result. With it the first so many elements are taken, followed by ``fill_value`` where there are
    /// fewer, and nothing is computed. Gradients flow to the elements.
    ///
    /// Raises TypeError if the mask is no bool, ValueError if the shapes do not broadcast.
    ///
    /// >>> t = Tensor([3, 1, 4, 1, 5])
    /// >>> t.masked_select(t > 2)
    /// Tensor([3, 4, 5], shape=(3,), dtype=i32)
    /// >>> t.masked_select(t > 2, size=4, fill_value=-1)
    /// Tensor([ 3,  4,  5, -1], shape=(4,), dtype=i32)
    #[pyo3(
        signature = (mask, *, size=None, fill_value=AnyOperand(Operand::Int(0))),
        text_signature = "($self, mask, *, size=None, fill_value=0)"
    )]
    fn masked_select(
        &self,
        py: Python<'_>,
        mask: AnyTensor,
        size: Option<Whole>,
        fill_value: AnyOperand,
    ) -> PyResult<PyTensor> {
        let size = size.map(|n| count(py, "masked_select", &n)).transpose()?;
        match size {
            Some(n) => PyTensor::build(py, || {
                self.tensor.masked_select_padded(&mask.0, n, fill_value.0)
            }),
            None => PyTensor::compute(py, || self.tensor.masked_select(&mask.0)),
        }
    }

    /// The places of all elements that are not 0, in row-major order: a row for each and a column for
    /// each axis, as i64; with ``as_tuple`` one vector for each axis instead, as NumPy has it.
    ///
    /// The tensor is computed now, since the number of places is the shape of the result.
    ///
    /// >>> Tensor([[0, 7], [8, 0]]).nonzero()
    /// Tensor([[0, 1],
    ///         [1, 0]], shape=(2, 2), dtype=i64)
    #[pyo3(signature = (*, as_tuple=false))]
    fn nonzero<'py>(&self, py: Python<'py>, as_tuple: bool) -> PyResult<Bound<'py, PyAny>> {
        let places = compute(py, || self.tensor.nonzero())?;
        if !as_tuple {
            return Ok(Bound::new(py, PyTensor::from(places))?.into_any());
        }
        Ok(tuple_of(py, compute(py, || places.unbind(1))?)?.into_any())
    }

    /// The different values, ascending, NaN last. The tensor is computed now, since their number is the
    /// shape of the result.
    ///
    /// With one of the other arguments it is a tuple: the values, then the first place of each among all
    /// elements (``return_index``), for each element the number of its value (``return_inverse``, in the
    /// tensor's shape), and how often each value is there (``return_counts``), all i64. -0 equals 0; NaNs
    /// are one value, or, without ``equal_nan``, each one of its own.
    ///
    /// >>> Tensor([3, 1, 3, 2]).unique(return_counts=True)
    /// (Tensor([1, 2, 3], shape=(3,), dtype=i32), Tensor([1, 1, 2], shape=(3,), dtype=i64))
    #[pyo3(signature = (return_index=false, return_inverse=false, return_counts=false, *, equal_nan=true))]
    fn unique<'py>(
        &self,
        py: Python<'py>,
        return_index: bool,
        return_inverse: bool,
        return_counts: bool,
        equal_nan: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let found = compute(py, || self.tensor.unique(equal_nan))?;
        let mut results = vec![found.values];
        let more = [
            (return_index, found.indices),
            (return_inverse, found.inverse),
            (return_counts, found.counts),
        ];
        results.extend(
            more.into_iter()
                .filter(|(wanted, _)| *wanted)
                .map(|(_, t)| t),
        );
        let results: [Tensor; 1] = match results.try_into() {
            Ok(values) => values,
            Err(several) => return Ok(tuple_of(py, several)?.into_any()),
        };
        let [values] = results;
        Ok(Bound::new(py, PyTensor::from(values))?.into_any())
    }
}

impl PyTensor {
    /// The tensor read at one axis, or in all its elements.
    pub(super) fn taken(&self, positions: &Tensor, axis: Option<i64>) -> uopc::Result<Tensor> {
        match axis {
            None => self.tensor.reshape([-1])?.take(positions),
            Some(axis) => self.tensor.index_select(axis, positions),
        }
    }
}
