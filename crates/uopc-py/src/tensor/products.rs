//! Products other than elementwise and matrix products: Einstein's sums and their kin.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use uopc::Tensor;

use super::matrices::count;
use super::{PyTensor, located};
use crate::convert::{AnyTensor, Whole, Wholes};

#[pymethods]
impl PyTensor {
    /// Products of tensors, summed as the subscripts say: ``ij,jk->ik`` is the matrix product, ``ii->i`` a
    /// diagonal, ``...ij->...ji`` a transpose.
    ///
    /// Letters a to z and A to Z name axes, ``...`` the axes that have none. Elements that agree in all
    /// letters are multiplied, and summed over the letters that the result does not have. Without an
    /// arrow the result has the axes of ``...`` and then, in alphabetical order, the letters that occur
    /// once. Spaces mean nothing, axes of extent 1 broadcast, dtypes are promoted. Several operands are
    /// multiplied in the order that needs the fewest multiplications; products of two are as fast as
    /// matmul.
    ///
    /// Raises ValueError, with a mark below the character that is wrong, if the subscripts are none or do
    /// not fit the operands.
    ///
    /// >>> a = Tensor([[1, 2], [3, 4]])
    /// >>> Tensor.einsum("ij,kj->ik", a, a)
    /// Tensor([[ 5, 11],
    ///         [11, 25]], shape=(2, 2), dtype=i32)
    #[staticmethod]
    #[pyo3(signature = (subscripts, *operands))]
    fn einsum(py: Python<'_>, subscripts: &str, operands: Vec<AnyTensor>) -> PyResult<PyTensor> {
        let operands: Vec<Tensor> = operands.into_iter().map(|t| t.0).collect();
        PyTensor::build(py, || Tensor::einsum(subscripts, &operands))
    }

    /// NumPy's dot: of vectors the sum of their products, of matrices the matrix product, with a scalar
    /// the product; of others the sum over the last axis of this one and the last but one of the other.
    ///
    /// Raises ValueError if the extents of the two axes differ.
    ///
    /// >>> Tensor([1, 2, 3]).dot([4, 5, 6])
    /// Tensor(32, shape=(), dtype=i32)
    fn dot(&self, py: Python<'_>, other: AnyTensor) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.dot(&other.0))
    }

    /// The sum of the products of all elements, in row-major order whatever the shapes.
    ///
    /// Raises ValueError if the numbers of elements differ.
    ///
    /// >>> Tensor([[1, 2], [3, 4]]).vdot([1, 1, 1, 1])
    /// Tensor(10, shape=(), dtype=i32)
    fn vdot(&self, py: Python<'_>, other: AnyTensor) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.vdot(&other.0))
    }

    /// The sum of the products along the last axes of both, with all other axes side by side.
    ///
    /// Raises ValueError if the extents of the last axes differ.
    ///
    /// >>> Tensor([[1, 2], [3, 4]]).inner([1, 10])
    /// Tensor([21, 43], shape=(2,), dtype=i32)
    fn inner(&self, py: Python<'_>, other: AnyTensor) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.inner(&other.0))
    }

    /// The product of each element with each of the other tensor; both count as vectors.
    ///
    /// >>> Tensor([1, 2]).outer([3, 4, 5])
    /// Tensor([[ 3,  4,  5],
    ///         [ 6,  8, 10]], shape=(2, 3), dtype=i32)
    fn outer(&self, py: Python<'_>, other: AnyTensor) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.outer(&other.0))
    }

    /// The sum of the products along an axis; all other axes broadcast.
    ///
    /// Raises ValueError if there is no such axis or shapes do not broadcast.
    ///
    /// >>> Tensor([[1, 2], [3, 4]]).vecdot([1, 10])
    /// Tensor([21, 43], shape=(2,), dtype=i32)
    #[pyo3(signature = (other, axis=Whole(-1)), text_signature = "($self, other, axis=-1)")]
    fn vecdot(&self, py: Python<'_>, other: AnyTensor, axis: Whole) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.vecdot(&other.0, axis.0))
    }

    /// The sum of products over so many last axes of this tensor and first ones of the other, or over the
    /// axes in two lists: axis k of the first meets axis k of the second. The other axes of both stand
    /// side by side.
    ///
    /// Raises ValueError if an axis does not exist or extents that meet differ.
    ///
    /// >>> a, b = Tensor.ones(2, 3, 4), Tensor.ones(4, 5, 2)
    /// >>> a.tensordot(b, 1).shape, a.tensordot(b, ((0, 2), (2, 0))).shape
    /// ((2, 3, 5, 2), (3, 5))
    #[pyo3(signature = (other, axes=None), text_signature = "($self, other, axes=2)")]
    fn tensordot(
        &self,
        py: Python<'_>,
        other: AnyTensor,
        axes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyTensor> {
        let Some(axes) = axes else {
            return PyTensor::build(py, || self.tensor.tensordot(&other.0, 2));
        };
        if let Ok(number) = axes.extract::<Whole>() {
            let number = count(py, "tensordot", &number)?;
            return PyTensor::build(py, || self.tensor.tensordot(&other.0, number));
        }
        let pair = axes.extract::<(Wholes, Wholes)>().map_err(|_| {
            let message = "tensordot: axes are a number, or two lists of axes";
            located::<PyTypeError>(py, message)
        })?;
        PyTensor::build(py, || {
            self.tensor.tensordot_axes(&other.0, pair.0.0, pair.1.0)
        })
    }

    /// Kronecker's product: each element times the whole other tensor, as blocks.
    ///
    /// >>> Tensor([[1, 2]]).kron([[1, 1], [0, 1]])
    /// Tensor([[1, 1, 2, 2],
    ///         [0, 1, 0, 2]], shape=(2, 4), dtype=i32)
    fn kron(&self, py: Python<'_>, other: AnyTensor) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.kron(&other.0))
    }

    /// The cross product of vectors of three elements along an axis; all other axes broadcast.
    ///
    /// Raises ValueError if there is no such axis, its extent is not 3, or shapes do not broadcast.
    ///
    /// >>> Tensor([1, 0, 0]).cross([0, 1, 0])
    /// Tensor([0, 0, 1], shape=(3,), dtype=i32)
    #[pyo3(signature = (other, axis=Whole(-1)), text_signature = "($self, other, axis=-1)")]
    fn cross(&self, py: Python<'_>, other: AnyTensor, axis: Whole) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.cross(&other.0, axis.0))
    }
}
