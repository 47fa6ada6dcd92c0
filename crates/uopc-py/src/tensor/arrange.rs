//! Methods that rearrange: repetition, rolling, windows, diagonals, moved axes, parts, joins.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use uopc::Tensor;

use super::matrices::count;
use super::{PyTensor, shape_error, tuple_of};
use crate::convert::{AnyAxes, AnyTensor, Tensors, Whole, Wholes, either};
use crate::run::build;

/// The numbers of a list, none of them negative.
fn counts(py: Python<'_>, op: &'static str, numbers: &[i64]) -> PyResult<Vec<usize>> {
    numbers.iter().map(|&n| count(py, op, &Whole(n))).collect()
}

/// A single number, or a list of them.
fn is_list(ob: &Bound<'_, PyAny>) -> bool {
    ob.extract::<Whole>().is_err()
}

#[pymethods]
impl PyTensor {
    /// Tensors repeated to the shape to which they broadcast together; dtypes stay as they are.
    ///
    /// Raises ValueError if they do not.
    ///
    /// >>> a, b = Tensor.broadcast_tensors([1, 2], [[5], [6]])
    /// >>> a
    /// Tensor([[1, 2],
    ///         [1, 2]], shape=(2, 2), dtype=i32)
    #[staticmethod]
    #[pyo3(signature = (*tensors))]
    fn broadcast_tensors<'py>(
        py: Python<'py>,
        tensors: Vec<AnyTensor>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let tensors: Vec<Tensor> = tensors.into_iter().map(|t| t.0).collect();
        tuple_of(py, build(py, || Tensor::broadcast_tensors(&tensors))?)
    }

    /// One axis as several of these extents; one of them may be -1: what is left.
    ///
    /// Raises ValueError if there is no such axis or the extents do not multiply to its own.
    ///
    /// >>> Tensor.zeros(8, 48).unflatten(1, (3, 4, -1)).shape
    /// (8, 3, 4, 4)
    fn unflatten(&self, py: Python<'_>, dim: Whole, sizes: Wholes) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.unflatten(dim.0, sizes))
    }

    /// Copies side by side: so many along each axis, as PyTorch's repeat. ``repeat_interleave`` is
    /// NumPy's.
    ///
    /// The numbers are given one by one or as one tuple. More of them than axes add axes in front.
    ///
    /// Raises ValueError if there are fewer, or one is negative.
    ///
    /// >>> Tensor([1, 2]).repeat(2, 2)
    /// Tensor([[1, 2, 1, 2],
    ///         [1, 2, 1, 2]], shape=(2, 4), dtype=i32)
    #[pyo3(signature = (*repeats))]
    fn repeat(&self, py: Python<'_>, repeats: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let repeats = Wholes::of_args(repeats)?;
        PyTensor::build(py, || self.tensor.repeat(repeats))
    }

    /// Copies side by side, as NumPy's tile: like ``repeat``, but with fewer numbers than axes the first
    /// axes are not repeated.
    ///
    /// Raises ValueError if a number is negative.
    ///
    /// >>> Tensor([[1, 2], [3, 4]]).tile(2)
    /// Tensor([[1, 2, 1, 2],
    ///         [3, 4, 3, 4]], shape=(2, 4), dtype=i32)
    #[pyo3(signature = (*repeats))]
    fn tile(&self, py: Python<'_>, repeats: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let repeats = Wholes::of_args(repeats)?;
        PyTensor::build(py, || self.tensor.tile(repeats))
    }

    /// Each element so many times in a row along an axis, or, without one, of all elements in row-major
    /// order. NumPy's name for it is repeat.
    ///
    /// Raises ValueError if there is no such axis or the number is negative.
    ///
    /// >>> Tensor([[1, 2]]).repeat_interleave(2, 1)
    /// Tensor([[1, 1, 2, 2]], shape=(1, 4), dtype=i32)
    #[pyo3(signature = (repeats, axis=None, *, dim=None))]
    fn repeat_interleave(
        &self,
        py: Python<'_>,
        repeats: Whole,
        axis: Option<Whole>,
        dim: Option<Whole>,
    ) -> PyResult<PyTensor> {
        let times = count(py, "repeat_interleave", &repeats)?;
        let axis = either(["axis", "dim"], [axis, dim])?.map(|axis| axis.0 as isize);
        PyTensor::build(py, || self.tensor.repeat_interleave(times, axis))
    }

    /// Elements moved on by a shift along each axis; what leaves at the end comes in at the beginning.
    ///
    /// Without axes there is one shift, of all elements in row-major order. One shift counts for all
    /// axes that are named.
    ///
    /// Raises ValueError if there is no such axis or there is not one shift for each.
    ///
    /// >>> Tensor([1, 2, 3]).roll(1)
    /// Tensor([3, 1, 2], shape=(3,), dtype=i32)
    #[pyo3(signature = (shifts, axis=None, *, dims=None))]
    fn roll(
        &self,
        py: Python<'_>,
        shifts: Wholes,
        axis: Option<AnyAxes>,
        dims: Option<AnyAxes>,
    ) -> PyResult<PyTensor> {
        let axes = either(["axis", "dims"], [axis, dims])?.unwrap_or_default();
        let mut shifts = shifts;
        if let (Some(named), [shift]) = (&axes.0, &shifts.0[..]) {
            shifts = Wholes(vec![*shift; named.len()]);
        }
        PyTensor::build(py, || self.tensor.roll(shifts, axes))
    }

    /// Turned by ``k`` quarters of a turn, from the first of two axes towards the second.
    ///
    /// Raises ValueError if there are no such two axes.
    ///
    /// >>> Tensor([[1, 2], [3, 4]]).rot90()
    /// Tensor([[2, 4],
    ///         [1, 3]], shape=(2, 2), dtype=i32)
    #[pyo3(
        signature = (k=Whole(1), axes=Wholes(vec![0, 1])),
        text_signature = "($self, k=1, axes=(0, 1))"
    )]
    fn rot90(&self, py: Python<'_>, k: Whole, axes: Wholes) -> PyResult<PyTensor> {
        let [a, b] = axes.0[..] else {
            let message = format!("{:?} are not two axes", axes.0);
            return Err(shape_error(py, "rot90", message));
        };
        PyTensor::build(py, || self.tensor.rot90(k.0, [a as isize, b as isize]))
    }

    /// Windows of an axis: ``size`` elements each, beginning ``step`` apart. The axis counts the windows,
    /// and a new last axis the elements of each.
    ///
    /// Raises ValueError if there is no such axis, the windows are longer, or the step is not positive.
    ///
    /// >>> Tensor([1, 2, 3, 4, 5]).unfold(0, 3, 2)
    /// Tensor([[1, 2, 3],
    ///         [3, 4, 5]], shape=(2, 3), dtype=i32)
    fn unfold(
        &self,
        py: Python<'_>,
        dimension: Whole,
        size: Whole,
        step: Whole,
    ) -> PyResult<PyTensor> {
        let [size, step] = [count(py, "unfold", &size)?, count(py, "unfold", &step)?];
        PyTensor::build(py, || self.tensor.unfold(dimension.0, size, step))
    }

    /// The diagonal of two axes, which disappear; it becomes the last axis. A positive offset means a
    /// diagonal above the main one, a negative one below.
    ///
    /// Raises ValueError if there are no such two axes.
    ///
    /// >>> Tensor([[1, 2, 3], [4, 5, 6]]).diagonal()
    /// Tensor([1, 5], shape=(2,), dtype=i32)
    #[pyo3(
        signature = (offset=Whole(0), axis1=Whole(0), axis2=Whole(1)),
        text_signature = "($self, offset=0, axis1=0, axis2=1)"
    )]
    fn diagonal(
        &self,
        py: Python<'_>,
        offset: Whole,
        axis1: Whole,
        axis2: Whole,
    ) -> PyResult<PyTensor> {
        let [a, b] = [axis1, axis2].map(|axis| axis.0 as isize);
        PyTensor::build(py, || self.tensor.diagonal(offset.0, a, b))
    }

    /// The sum of the diagonal of two axes.
    ///
    /// Raises ValueError if there are no such two axes.
    ///
    /// >>> Tensor([[1, 2], [3, 4]]).trace()
    /// Tensor(5, shape=(), dtype=i32)
    #[pyo3(
        signature = (offset=Whole(0), axis1=Whole(0), axis2=Whole(1)),
        text_signature = "($self, offset=0, axis1=0, axis2=1)"
    )]
    fn trace(
        &self,
        py: Python<'_>,
        offset: Whole,
        axis1: Whole,
        axis2: Whole,
    ) -> PyResult<PyTensor> {
        let [a, b] = [axis1, axis2].map(|axis| axis.0 as isize);
        PyTensor::build(py, || self.tensor.trace(offset.0, a, b))
    }

    /// Axes moved to other places; those that are not named keep their order.
    ///
    /// Raises ValueError if an axis does not exist or is named twice, or the numbers differ.
    ///
    /// >>> Tensor.zeros(2, 3, 4).moveaxis(0, -1).shape
    /// (3, 4, 2)
    fn moveaxis(&self, py: Python<'_>, source: Wholes, destination: Wholes) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.moveaxis(source.0, destination.0))
    }

    /// Parts of a size, the last one perhaps smaller, or of the sizes in a list, as PyTorch's split.
    ///
    /// Raises ValueError if there is no such axis or the sizes do not add up to its extent.
    ///
    /// >>> [t.tolist() for t in Tensor.arange(5).split(2)]
    /// [[0, 1], [2, 3], [4]]
    /// >>> [t.tolist() for t in Tensor.arange(5).split([1, 4])]
    /// [[0], [1, 2, 3, 4]]
    #[pyo3(signature = (split_size, axis=None, *, dim=None))]
    fn split<'py>(
        &self,
        py: Python<'py>,
        split_size: &Bound<'py, PyAny>,
        axis: Option<Whole>,
        dim: Option<Whole>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let axis = either(["axis", "dim"], [axis, dim])?.map_or(0, |axis| axis.0);
        let sizes = counts(py, "split", &split_size.extract::<Wholes>()?.0)?;
        let is_list = is_list(split_size);
        let parts = build(py, || match sizes[..] {
            [size] if !is_list => self.tensor.split(size, axis),
            _ => self.tensor.split_with_sizes(&sizes, axis),
        })?;
        tuple_of(py, parts)
    }

    /// At most so many parts of equal size; the last one may be smaller, and there may be fewer.
    ///
    /// Raises ValueError if there is no such axis or the number is not positive.
    ///
    /// >>> [t.tolist() for t in Tensor.arange(5).chunk(3)]
    /// [[0, 1], [2, 3], [4]]
    #[pyo3(signature = (chunks, axis=None, *, dim=None))]
    fn chunk<'py>(
        &self,
        py: Python<'py>,
        chunks: Whole,
        axis: Option<Whole>,
        dim: Option<Whole>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let axis = either(["axis", "dim"], [axis, dim])?.map_or(0, |axis| axis.0);
        let chunks = count(py, "chunk", &chunks)?;
        tuple_of(py, build(py, || self.tensor.chunk(chunks, axis))?)
    }

    /// Exactly so many parts, the first ones larger by one where the extent does not divide; or the parts
    /// between the positions in a list. NumPy's name for it is array_split.
    ///
    /// Raises ValueError if there is no such axis or the number is not positive.
    ///
    /// >>> [t.tolist() for t in Tensor.arange(5).tensor_split([1, 3])]
    /// [[0], [1, 2], [3, 4]]
    #[pyo3(signature = (indices_or_sections, axis=None, *, dim=None))]
    fn tensor_split<'py>(
        &self,
        py: Python<'py>,
        indices_or_sections: &Bound<'py, PyAny>,
        axis: Option<Whole>,
        dim: Option<Whole>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let axis = either(["axis", "dim"], [axis, dim])?.map_or(0, |axis| axis.0);
        let parts = match is_list(indices_or_sections) {
            true => {
                let at = indices_or_sections.extract::<Wholes>()?.0;
                build(py, || self.tensor.tensor_split_at(&at, axis))?
            }
            false => {
                let n = count(py, "tensor_split", &indices_or_sections.extract()?)?;
                build(py, || self.tensor.tensor_split(n, axis))?
            }
        };
        tuple_of(py, parts)
    }

    /// The entries of an axis one by one, without it.
    ///
    /// Raises ValueError if there is no such axis.
    ///
    /// >>> [t.tolist() for t in Tensor([[1, 2], [3, 4]]).unbind(1)]
    /// [[1, 3], [2, 4]]
    #[pyo3(signature = (axis=None, *, dim=None))]
    fn unbind<'py>(
        &self,
        py: Python<'py>,
        axis: Option<Whole>,
        dim: Option<Whole>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let axis = either(["axis", "dim"], [axis, dim])?.map_or(0, |axis| axis.0);
        tuple_of(py, build(py, || self.tensor.unbind(axis))?)
    }

    /// Tensors side by side: along the second axis, or along the only one.
    ///
    /// Raises ValueError if there are none, or if another axis differs.
    ///
    /// >>> Tensor.hstack([[1, 2], [3]])
    /// Tensor([1, 2, 3], shape=(3,), dtype=i32)
    #[staticmethod]
    fn hstack(py: Python<'_>, tensors: Tensors) -> PyResult<PyTensor> {
        PyTensor::build(py, || Tensor::hstack(&tensors.0))
    }

    /// Tensors one below the other, along the first axis; vectors count as rows.
    ///
    /// Raises ValueError if there are none, or if another axis differs.
    ///
    /// >>> Tensor.vstack([[1, 2], [3, 4]])
    /// Tensor([[1, 2],
    ///         [3, 4]], shape=(2, 2), dtype=i32)
    #[staticmethod]
    fn vstack(py: Python<'_>, tensors: Tensors) -> PyResult<PyTensor> {
        PyTensor::build(py, || Tensor::vstack(&tensors.0))
    }

    /// Tensors one behind the other, along the third axis; vectors and matrices get as many axes.
    ///
    /// Raises ValueError if there are none, or if another axis differs.
    ///
    /// >>> Tensor.dstack([[1, 2], [3, 4]])
    /// Tensor([[[1, 3],
    ///          [2, 4]]], shape=(1, 2, 2), dtype=i32)
    #[staticmethod]
    fn dstack(py: Python<'_>, tensors: Tensors) -> PyResult<PyTensor> {
        PyTensor::build(py, || Tensor::dstack(&tensors.0))
    }
}
