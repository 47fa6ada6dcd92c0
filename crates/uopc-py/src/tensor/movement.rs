//! Methods that move elements and compute nothing: shapes, order of axes, padding, joining.

use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use uopc::Tensor;
use uopc::tensor::{Operand, PadMode};

use super::{PyTensor, located};
use crate::convert::{AnyAxes, AnyOperand, AnyTensor, Pairs, Tensors, Whole, Wholes, either};

impl PyTensor {
    /// The axis numbers of a tensor in reverse.
    fn reversed(&self) -> Vec<usize> {
        (0..self.tensor.rank()).rev().collect()
    }

    /// One pair for each axis, `whole` for one that is left as it is.
    fn pairs(&self, pairs: Pairs, whole: impl Fn(usize) -> (usize, usize)) -> Vec<(usize, usize)> {
        let dims = self.tensor.shape();
        let pairs = pairs.0.into_iter().enumerate();
        pairs
            .map(|(axis, pair)| pair.unwrap_or_else(|| whole(dims.get(axis).copied().unwrap_or(0))))
            .collect()
    }
}

#[pymethods]
impl PyTensor {
    /// The same elements in row-major order in another shape; one extent may be -1: what is left.
    ///
    /// The shape is given as numbers or as one tuple. ``order`` is there for NumPy's sake and can
    /// only be "C".
    ///
    /// Raises ValueError if the number of elements differs.
    ///
    /// >>> Tensor.arange(6).reshape(2, -1)
    /// Tensor([[0, 1, 2],
    ///         [3, 4, 5]], shape=(2, 3), dtype=i32)
    #[pyo3(signature = (*shape, order="C"))]
    fn reshape(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyTuple>,
        order: &str,
    ) -> PyResult<PyTensor> {
        if order != "C" {
            let message = format!(
                "reshape: elements are taken in row-major order, \"C\", and not in order {order:?}"
            );
            return Err(located::<PyNotImplementedError>(py, message));
        }
        let shape = Wholes::of_args(shape)?;
        PyTensor::build(py, || self.tensor.reshape(shape))
    }

    /// The axes from ``start_dim`` to ``end_dim`` joined into one; without arguments all of them.
    ///
    /// Raises ValueError if there is no such axis.
    ///
    /// >>> Tensor.zeros(8, 3, 4, 4).flatten(1).shape
    /// (8, 48)
    #[pyo3(signature = (start_dim=Whole(0), end_dim=Whole(-1)))]
    fn flatten(&self, py: Python<'_>, start_dim: Whole, end_dim: Whole) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.flatten(start_dim.0, end_dim.0))
    }

    /// The axes in another order: axis k of the result is axis ``dims[k]``.
    ///
    /// Raises ValueError if not every axis is named once.
    ///
    /// >>> Tensor.zeros(2, 3, 4).permute(2, 0, 1).shape
    /// (4, 2, 3)
    #[pyo3(signature = (*dims))]
    fn permute(&self, py: Python<'_>, dims: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let order = Wholes::of_args(dims)?.0;
        PyTensor::build(py, || self.tensor.permute(order))
    }

    /// Axes exchanged: without arguments the last two, with two numbers these two.
    ///
    /// ``transpose(None)`` reverses the axes, and a tuple or more than two numbers are the order of
    /// all axes; this is what NumPy's ``np.transpose`` asks for.
    ///
    /// Raises ValueError if there is no such axis.
    ///
    /// >>> t = Tensor.zeros(2, 3, 4)
    /// >>> t.transpose().shape, t.transpose(0, 1).shape, t.transpose((2, 0, 1)).shape
    /// ((2, 4, 3), (3, 2, 4), (4, 2, 3))
    #[pyo3(signature = (*axes))]
    fn transpose(&self, py: Python<'_>, axes: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        if axes.is_empty() {
            return PyTensor::build(py, || self.tensor.transpose());
        }
        if axes.len() == 1 && axes.get_item(0)?.is_none() {
            return PyTensor::build(py, || self.tensor.permute(self.reversed()));
        }
        let named = Wholes::of_args(axes)?.0;
        PyTensor::build(py, || match named[..] {
            [a, b] if axes.len() == 2 => self.tensor.swap_axes(a as isize, b as isize),
            _ => self.tensor.permute(named),
        })
    }

    /// The axes in reverse, as in NumPy: of a matrix its transpose.
    ///
    /// >>> Tensor.zeros(2, 3, 4).T.shape
    /// (4, 3, 2)
    #[getter(T)]
    fn reversed_axes(&self, py: Python<'_>) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.permute(self.reversed()))
    }

    /// The last two axes exchanged: each matrix of a batch transposed.
    ///
    /// >>> Tensor.zeros(2, 3, 4).mT.shape
    /// (2, 4, 3)
    #[getter(mT)]
    fn matrices_transposed(&self, py: Python<'_>) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.transpose())
    }

    /// Two axes exchanged.
    ///
    /// Raises ValueError if there is no such axis.
    ///
    /// >>> Tensor.zeros(2, 3, 4).swapaxes(0, -1).shape
    /// (4, 3, 2)
    fn swapaxes(&self, py: Python<'_>, axis1: Whole, axis2: Whole) -> PyResult<PyTensor> {
        let [a, b] = [axis1, axis2].map(|axis| axis.0 as isize);
        PyTensor::build(py, || self.tensor.swap_axes(a, b))
    }

    /// Repeated to a shape: axes of extent 1 grow, missing ones come in front, -1 keeps an extent.
    ///
    /// The shape is given as numbers or as one tuple.
    ///
    /// Raises ValueError if another extent would change.
    ///
    /// >>> Tensor([[1], [2]]).expand(2, 3)
    /// Tensor([[1, 1, 1],
    ///         [2, 2, 2]], shape=(2, 3), dtype=i32)
    #[pyo3(signature = (*shape))]
    fn expand(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let shape = Wholes::of_args(shape)?;
        PyTensor::build(py, || self.tensor.expand(shape))
    }

    /// Elements around: a pair (before, after) for each axis, as in ``np.pad``; None pads nothing.
    ///
    /// ``mode`` is "constant" (the number ``value``), "reflect" (the mirror image in the outermost
    /// element, which is not repeated), "replicate" (the outermost element) or "circular" (the
    /// elements of the other end).
    ///
    /// Raises ValueError if there is not one pair for each axis, a number is negative, or an axis has
    /// too few elements to be mirrored or repeated; TypeError if a value does not fit the dtype.
    ///
    /// >>> Tensor([[1, 2]]).pad(((0, 1), (2, 0)))
    /// Tensor([[0, 0, 1, 2],
    ///         [0, 0, 0, 0]], shape=(2, 4), dtype=i32)
    /// >>> Tensor([1, 2, 3]).pad([(2, 2)], mode="reflect").tolist()
    /// [3, 2, 1, 2, 3, 2, 1]
    #[pyo3(
        signature = (padding, mode="constant", value=AnyOperand(Operand::Int(0))),
        text_signature = "($self, padding, mode='constant', value=0)"
    )]
    fn pad(
        &self,
        py: Python<'_>,
        padding: Pairs,
        mode: &str,
        value: AnyOperand,
    ) -> PyResult<PyTensor> {
        let padding = self.pairs(padding, |_| (0, 0));
        let mode = match mode {
            "constant" => PadMode::Constant(value.0),
            "reflect" => PadMode::Reflect,
            "replicate" => PadMode::Replicate,
            "circular" => PadMode::Circular,
            _ => {
                let message =
                    format!("pad: mode {mode:?} is none of constant, reflect, replicate, circular");
                return Err(located::<PyValueError>(py, message));
            }
        };
        PyTensor::build(py, || self.tensor.pad_with(padding, mode))
    }

    /// A window of each axis: a pair (begin, end) for each; None keeps the whole axis.
    ///
    /// Raises ValueError if there is not one pair for each axis, or one leaves its axis.
    ///
    /// >>> Tensor([[1, 2, 3], [4, 5, 6]]).shrink((None, (1, 3)))
    /// Tensor([[2, 3],
    ///         [5, 6]], shape=(2, 2), dtype=i32)
    fn shrink(&self, py: Python<'_>, bounds: Pairs) -> PyResult<PyTensor> {
        let bounds = self.pairs(bounds, |extent| (0, extent));
        PyTensor::build(py, || self.tensor.shrink(bounds))
    }

    /// The order reversed along some axes, or along all of them.
    ///
    /// The axes are given as numbers or as one tuple.
    ///
    /// Raises ValueError if an axis does not exist or is named twice.
    ///
    /// >>> Tensor([[1, 2], [3, 4]]).flip(1)
    /// Tensor([[2, 1],
    ///         [4, 3]], shape=(2, 2), dtype=i32)
    #[pyo3(signature = (*axis))]
    fn flip(&self, py: Python<'_>, axis: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let axes = match axis.len() {
            0 => AnyAxes(None),
            1 => axis.get_item(0)?.extract()?,
            _ => AnyAxes(Some(Wholes::of_args(axis)?.0)),
        };
        PyTensor::build(py, || self.tensor.flip(axes))
    }

    /// A new axis of extent 1 at that place.
    ///
    /// Raises ValueError if the place is beyond the last axis.
    ///
    /// >>> Tensor([1, 2]).unsqueeze(1).shape
    /// (2, 1)
    #[pyo3(signature = (axis=None, *, dim=None))]
    fn unsqueeze(
        &self,
        py: Python<'_>,
        axis: Option<Whole>,
        dim: Option<Whole>,
    ) -> PyResult<PyTensor> {
        let Some(axis) = either(["axis", "dim"], [axis, dim])? else {
            let message = "unsqueeze: the place of the new axis is missing";
            return Err(located::<PyTypeError>(py, message));
        };
        PyTensor::build(py, || self.tensor.unsqueeze(axis.0 as isize))
    }

    /// Without axes of extent 1: without all of them, or without those that are named.
    ///
    /// Raises ValueError if an axis that is named has another extent.
    ///
    /// >>> Tensor.zeros(1, 3, 1).squeeze(0).shape
    /// (3, 1)
    #[pyo3(signature = (axis=None, *, dim=None))]
    fn squeeze(
        &self,
        py: Python<'_>,
        axis: Option<AnyAxes>,
        dim: Option<AnyAxes>,
    ) -> PyResult<PyTensor> {
        let axes = either(["axis", "dim"], [axis, dim])?.unwrap_or_default();
        PyTensor::build(py, || self.tensor.squeeze(axes))
    }

    /// Tensors joined along an axis that they have; dtypes are promoted.
    ///
    /// Raises ValueError if there are none, or if another axis differs.
    ///
    /// >>> Tensor.cat([Tensor([[1, 2]]), Tensor([[3, 4]])], 1)
    /// Tensor([[1, 2, 3, 4]], shape=(1, 4), dtype=i32)
    #[staticmethod]
    #[pyo3(signature = (tensors, axis=None, *, dim=None))]
    fn cat(
        py: Python<'_>,
        tensors: Tensors,
        axis: Option<Whole>,
        dim: Option<Whole>,
    ) -> PyResult<PyTensor> {
        let axis = either(["axis", "dim"], [axis, dim])?.unwrap_or(Whole(0));
        PyTensor::build(py, || Tensor::cat(&tensors.0, axis.0))
    }

    /// Tensors of one shape joined along a new axis at that place; dtypes are promoted.
    ///
    /// Raises ValueError if there are none, or if shapes differ.
    ///
    /// >>> Tensor.stack([Tensor([1, 2]), Tensor([3, 4])], axis=1)
    /// Tensor([[1, 3],
    ///         [2, 4]], shape=(2, 2), dtype=i32)
    #[staticmethod]
    #[pyo3(signature = (tensors, axis=None, *, dim=None))]
    fn stack(
        py: Python<'_>,
        tensors: Tensors,
        axis: Option<Whole>,
        dim: Option<Whole>,
    ) -> PyResult<PyTensor> {
        let axis = either(["axis", "dim"], [axis, dim])?.unwrap_or(Whole(0));
        PyTensor::build(py, || Tensor::stack(&tensors.0, axis.0))
    }

    /// This and another tensor of its shape along a new first axis.
    ///
    /// Raises ValueError if the shapes differ.
    ///
    /// >>> Tensor([1, 2]).stack_with(Tensor([3, 4])).shape
    /// (2, 2)
    fn stack_with(&self, py: Python<'_>, other: AnyTensor) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.stack_with(other.0))
    }
}
