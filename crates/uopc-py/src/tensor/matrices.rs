//! Tensors made by their positions: evenly spaced numbers, diagonals, triangles, grids.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use uopc::tensor::Indexing;
use uopc::{DType, Tensor};

use super::create::{create, dtype_or};
use super::{PyTensor, located, shape_error, tuple_of};
use crate::convert::{AnyOperand, AnyTensor, Whole, Wholes, either};
use crate::dtype::AnyDType;
use crate::run::build;

/// A number of rows, columns or numbers.
pub fn count(py: Python<'_>, op: &'static str, number: &Whole) -> PyResult<usize> {
    usize::try_from(number.0).map_err(|_| {
        let message = format!("{} is no number of elements; it is negative", number.0);
        shape_error(py, op, message)
    })
}

#[pymethods]
impl PyTensor {
    /// ``num`` numbers from ``start`` to ``stop``, evenly spaced, both ends exact.
    ///
    /// f32 unless ``dtype`` says otherwise. Number k is start + k * step, computed in f64 and rounded to
    /// the dtype, integers downwards. Without ``endpoint`` the numbers are those of num + 1 but the
    /// last.
    ///
    /// Raises TypeError if an end is no number, ValueError if ``num`` is negative.
    ///
    /// >>> Tensor.linspace(0, 1, 5)
    /// Tensor([0.00, 0.25, 0.50, 0.75, 1.00], shape=(5,), dtype=f32)
    #[staticmethod]
    #[pyo3(
        signature = (start, stop, num=Whole(50), *, endpoint=true, dtype=None, requires_grad=false),
        text_signature = "(start, stop, num=50, *, endpoint=True, dtype=None, requires_grad=False)"
    )]
    fn linspace(
        py: Python<'_>,
        start: AnyOperand,
        stop: AnyOperand,
        num: Whole,
        endpoint: bool,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let (n, dtype) = (count(py, "linspace", &num)?, dtype_or(dtype, DType::F32));
        create(py, requires_grad, || {
            Tensor::linspace_as(dtype, start.0, stop.0, n, endpoint)
        })
    }

    /// ``n`` rows and ``m`` columns (as many, if left out) of zeros with ones where the column is the
    /// row plus ``k``; f32 unless ``dtype`` says otherwise.
    ///
    /// Raises ValueError if a number is negative.
    ///
    /// >>> Tensor.eye(2, 3, k=1, dtype="i32")
    /// Tensor([[0, 1, 0],
    ///         [0, 0, 1]], shape=(2, 3), dtype=i32)
    #[staticmethod]
    #[pyo3(
        signature = (n, m=None, k=Whole(0), *, dtype=None, requires_grad=false),
        text_signature = "(n, m=None, k=0, *, dtype=None, requires_grad=False)"
    )]
    fn eye(
        py: Python<'_>,
        n: Whole,
        m: Option<Whole>,
        k: Whole,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let rows = count(py, "eye", &n)?;
        let columns = m.map_or(Ok(rows), |m| count(py, "eye", &m))?;
        let dtype = dtype_or(dtype, DType::F32);
        create(py, requires_grad, || {
            Tensor::eye_as(dtype, rows, columns, k.0)
        })
    }

    /// Zeros of a shape, as reading what happens to be in memory would make results depend on it.
    ///
    /// Raises ValueError if the shape is none.
    ///
    /// >>> Tensor.empty(2, 3).shape
    /// (2, 3)
    #[staticmethod]
    #[pyo3(signature = (*shape, dtype=None, requires_grad=false))]
    fn empty(
        py: Python<'_>,
        shape: &Bound<'_, PyTuple>,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let shape = Wholes::of_args(shape)?;
        let dtype = dtype_or(dtype, DType::F32);
        create(py, requires_grad, || Tensor::full_as(dtype, shape, 0))
    }

    /// Zeros of this tensor's shape, in its dtype unless ``dtype`` says otherwise; see ``empty``.
    ///
    /// >>> Tensor([1, 2]).empty_like()
    /// Tensor([0, 0], shape=(2,), dtype=i32)
    #[pyo3(signature = (*, dtype=None, requires_grad=false))]
    fn empty_like(
        &self,
        py: Python<'_>,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let dtype = dtype_or(dtype, self.tensor.dtype());
        create(py, requires_grad, || {
            Tensor::full_as(dtype, self.tensor.shape(), 0)
        })
    }

    /// Of a vector the matrix with it on a diagonal, of a matrix that diagonal: the main one, or so many
    /// above it. ``k`` is NumPy's name of the number.
    ///
    /// Raises ValueError if it is neither.
    ///
    /// >>> Tensor([1, 2]).diag()
    /// Tensor([[1, 0],
    ///         [0, 2]], shape=(2, 2), dtype=i32)
    /// >>> Tensor([[1, 2], [3, 4]]).diag(1)
    /// Tensor([2], shape=(1,), dtype=i32)
    #[pyo3(signature = (diagonal=None, *, k=None))]
    fn diag(
        &self,
        py: Python<'_>,
        diagonal: Option<Whole>,
        k: Option<Whole>,
    ) -> PyResult<PyTensor> {
        let k = either(["diagonal", "k"], [diagonal, k])?.unwrap_or(Whole(0));
        PyTensor::build(py, || self.tensor.diag(k.0))
    }

    /// The last axis as a diagonal of two new axes at those places, zeros elsewhere.
    ///
    /// Raises ValueError if there is no axis or there are no such places.
    ///
    /// >>> Tensor([1, 2]).diag_embed(1)
    /// Tensor([[0, 1, 0],
    ///         [0, 0, 2],
    ///         [0, 0, 0]], shape=(3, 3), dtype=i32)
    #[pyo3(
        signature = (offset=Whole(0), dim1=Whole(-2), dim2=Whole(-1)),
        text_signature = "($self, offset=0, dim1=-2, dim2=-1)"
    )]
    fn diag_embed(
        &self,
        py: Python<'_>,
        offset: Whole,
        dim1: Whole,
        dim2: Whole,
    ) -> PyResult<PyTensor> {
        let [a, b] = [dim1, dim2].map(|axis| axis.0 as isize);
        PyTensor::build(py, || self.tensor.diag_embed(offset.0, a, b))
    }

    /// The lower triangles of matrices, the last two axes: zeros where the column is beyond the row plus
    /// a number, whatever stood there. ``k`` is NumPy's name of the number.
    ///
    /// Raises ValueError if there are fewer than two axes.
    ///
    /// >>> Tensor([[1, 2], [3, 4]]).tril()
    /// Tensor([[1, 0],
    ///         [3, 4]], shape=(2, 2), dtype=i32)
    #[pyo3(signature = (diagonal=None, *, k=None))]
    fn tril(
        &self,
        py: Python<'_>,
        diagonal: Option<Whole>,
        k: Option<Whole>,
    ) -> PyResult<PyTensor> {
        let k = either(["diagonal", "k"], [diagonal, k])?.unwrap_or(Whole(0));
        PyTensor::build(py, || self.tensor.tril(k.0))
    }

    /// The upper triangles of matrices, the last two axes: zeros where the column is before the row plus
    /// a number, whatever stood there. ``k`` is NumPy's name of the number.
    ///
    /// Raises ValueError if there are fewer than two axes.
    ///
    /// >>> Tensor([[1, 2], [3, 4]]).triu(1)
    /// Tensor([[0, 2],
    ///         [0, 0]], shape=(2, 2), dtype=i32)
    #[pyo3(signature = (diagonal=None, *, k=None))]
    fn triu(
        &self,
        py: Python<'_>,
        diagonal: Option<Whole>,
        k: Option<Whole>,
    ) -> PyResult<PyTensor> {
        let k = either(["diagonal", "k"], [diagonal, k])?.unwrap_or(Whole(0));
        PyTensor::build(py, || self.tensor.triu(k.0))
    }

    /// The coordinates of all points of a grid: one tensor for each vector, repeated along the axes of
    /// all others.
    ///
    /// With ``indexing="ij"`` axis k belongs to vector k, with "xy" the first two are exchanged, as
    /// NumPy does it unless told otherwise.
    ///
    /// Raises ValueError if one has more than one axis, or for another ``indexing``.
    ///
    /// >>> rows, columns = Tensor.meshgrid([1, 2], [5, 6, 7], indexing="ij")
    /// >>> columns
    /// Tensor([[5, 6, 7],
    ///         [5, 6, 7]], shape=(2, 3), dtype=i32)
    #[staticmethod]
    #[pyo3(signature = (*tensors, indexing="xy"))]
    fn meshgrid<'py>(
        py: Python<'py>,
        tensors: Vec<AnyTensor>,
        indexing: &str,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let indexing = match indexing {
            "ij" => Indexing::Ij,
            "xy" => Indexing::Xy,
            other => {
                let message = format!("meshgrid: indexing is \"ij\" or \"xy\", not {other:?}");
                return Err(located::<PyValueError>(py, message));
            }
        };
        let tensors: Vec<Tensor> = tensors.into_iter().map(|t| t.0).collect();
        tuple_of(py, build(py, || Tensor::meshgrid(&tensors, indexing))?)
    }
}
