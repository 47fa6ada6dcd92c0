//! Tensors from nothing: constants, sequences, random numbers.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use uopc::tensor::Operand;
use uopc::{DType, Result, Tensor};

use super::{PyTensor, located};
use crate::convert::{AnyOperand, Real, Wholes, shown};
use crate::dtype::AnyDType;

/// A new tensor, or a parameter.
pub(super) fn create(
    py: Python<'_>,
    requires_grad: bool,
    f: impl FnOnce() -> Result<Tensor>,
) -> PyResult<PyTensor> {
    let tensor = PyTensor::build(py, f)?;
    if requires_grad {
        return PyTensor::compute(py, || tensor.tensor.clone().requires_grad());
    }
    Ok(tensor)
}

/// The 64 bits from which random numbers follow.
pub struct Seed(pub u64);

impl<'py> FromPyObject<'_, 'py> for Seed {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Seed> {
        let py = ob.py();
        let seed = match ob.extract::<i128>() {
            Ok(seed) => Some(seed),
            Err(e) if e.is_instance_of::<PyOverflowError>(py) => None,
            Err(_) => {
                let message = format!("a seed is an integer, not {}", shown(&ob));
                return Err(located::<PyTypeError>(py, message));
            }
        };
        let bits = seed.and_then(|seed| match seed < 0 {
            true => i64::try_from(seed).ok().map(|seed| seed as u64),
            false => u64::try_from(seed).ok(),
        });
        bits.map(Seed).ok_or_else(|| {
            let message = format!("the seed {} has more than 64 bits", shown(&ob));
            located::<PyValueError>(py, message)
        })
    }
}

/// The dtype that is asked for, or another.
pub(super) fn dtype_or(dtype: Option<AnyDType>, otherwise: DType) -> DType {
    dtype.map_or(otherwise, |dtype| dtype.0)
}

#[pymethods]
impl PyTensor {
    /// Zeros of a shape, f32 unless ``dtype`` says otherwise.
    ///
    /// The shape is given as numbers or as one tuple.
    ///
    /// Raises ValueError if it is none.
    ///
    /// >>> Tensor.zeros(2, 2)
    /// Tensor([[0., 0.],
    ///         [0., 0.]], shape=(2, 2), dtype=f32)
    #[staticmethod]
    #[pyo3(signature = (*shape, dtype=None, requires_grad=false))]
    fn zeros(
        py: Python<'_>,
        shape: &Bound<'_, PyTuple>,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let shape = Wholes::of_args(shape)?;
        let dtype = dtype_or(dtype, DType::F32);
        create(py, requires_grad, || Tensor::full_as(dtype, shape, 0))
    }

    /// Ones of a shape, f32 unless ``dtype`` says otherwise.
    ///
    /// The shape is given as numbers or as one tuple.
    ///
    /// Raises ValueError if it is none.
    ///
    /// >>> Tensor.ones(3, dtype="i64")
    /// Tensor([1, 1, 1], shape=(3,), dtype=i64)
    #[staticmethod]
    #[pyo3(signature = (*shape, dtype=None, requires_grad=false))]
    fn ones(
        py: Python<'_>,
        shape: &Bound<'_, PyTuple>,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let shape = Wholes::of_args(shape)?;
        let dtype = dtype_or(dtype, DType::F32);
        create(py, requires_grad, || Tensor::full_as(dtype, shape, 1))
    }

    /// One number everywhere: f32, i32 or bool as the number, unless ``dtype`` says otherwise.
    ///
    /// ``shape`` is a number or a tuple. A scalar tensor is repeated likewise.
    ///
    /// Raises ValueError if the shape is none, TypeError if an integer does not fit the dtype.
    ///
    /// >>> Tensor.full((2, 2), 7)
    /// Tensor([[7, 7],
    ///         [7, 7]], shape=(2, 2), dtype=i32)
    #[staticmethod]
    #[pyo3(signature = (shape, fill_value, *, dtype=None, requires_grad=false))]
    fn full(
        py: Python<'_>,
        shape: Wholes,
        fill_value: AnyOperand,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        create(py, requires_grad, || match dtype {
            Some(dtype) => Tensor::full_as(dtype.0, shape, fill_value.0),
            None => Tensor::full(shape, fill_value.0),
        })
    }

    /// A scalar tensor of a number: f32, i32 or bool as the number, unless ``dtype`` says otherwise.
    ///
    /// Raises TypeError if an integer does not fit the dtype.
    ///
    /// >>> Tensor.scalar(2.5)
    /// Tensor(2.5, shape=(), dtype=f32)
    #[staticmethod]
    #[pyo3(signature = (value, *, dtype=None, requires_grad=false))]
    fn scalar(
        py: Python<'_>,
        value: AnyOperand,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        PyTensor::full(py, Wholes(Vec::new()), value, dtype, requires_grad)
    }

    /// Zeros of this tensor's shape, and of its dtype unless another one is given.
    ///
    /// >>> Tensor([1, 2]).zeros_like()
    /// Tensor([0, 0], shape=(2,), dtype=i32)
    #[pyo3(signature = (*, dtype=None, requires_grad=false))]
    fn zeros_like(
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

    /// Ones of this tensor's shape, and of its dtype unless another one is given.
    ///
    /// >>> Tensor([5, 6]).ones_like()
    /// Tensor([1, 1], shape=(2,), dtype=i32)
    #[pyo3(signature = (*, dtype=None, requires_grad=false))]
    fn ones_like(
        &self,
        py: Python<'_>,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let dtype = dtype_or(dtype, self.tensor.dtype());
        create(py, requires_grad, || {
            Tensor::full_as(dtype, self.tensor.shape(), 1)
        })
    }

    /// One number in this tensor's shape, and in its dtype unless another one is given.
    ///
    /// Raises TypeError if an integer does not fit the dtype.
    ///
    /// >>> Tensor([1.0, 2.0]).full_like(7)
    /// Tensor([7., 7.], shape=(2,), dtype=f32)
    #[pyo3(signature = (fill_value, *, dtype=None, requires_grad=false))]
    fn full_like(
        &self,
        py: Python<'_>,
        fill_value: AnyOperand,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let dtype = dtype_or(dtype, self.tensor.dtype());
        create(py, requires_grad, || {
            Tensor::full_as(dtype, self.tensor.shape(), fill_value.0)
        })
    }

    /// Numbers from ``start`` (0 if left out) by ``step`` up to but without ``stop``.
    ///
    /// f32 if one of the three is a float, else i32, unless ``dtype`` says otherwise. Element k is
    /// start + k * step, rounded once.
    ///
    /// Raises ValueError for a step of 0, TypeError if an integer does not fit the dtype.
    ///
    /// >>> Tensor.arange(3), Tensor.arange(1, 2.5, 0.5)
    /// (Tensor([0, 1, 2], shape=(3,), dtype=i32), Tensor([1.0, 1.5, 2.0], shape=(3,), dtype=f32))
    #[staticmethod]
    #[pyo3(signature = (start, stop=None, step=None, *, dtype=None, requires_grad=false))]
    fn arange(
        py: Python<'_>,
        start: AnyOperand,
        stop: Option<AnyOperand>,
        step: Option<AnyOperand>,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let step = step.map_or(Operand::Int(1), |step| step.0);
        let (start, stop) = match stop {
            Some(stop) => (start.0, stop.0),
            None => (Operand::Int(0), start.0),
        };
        create(py, requires_grad, || match dtype {
            Some(dtype) => Tensor::arange_as(dtype.0, start, stop, step),
            None => Tensor::arange_from(start, stop, step),
        })
    }

    /// Random numbers of the normal distribution with mean 0 and variance 1, f32 unless ``dtype``
    /// says otherwise.
    ///
    /// The shape is given as numbers or as one tuple. The numbers are those of the seed.
    ///
    /// Raises ValueError if the shape is none, TypeError for a dtype that is no float.
    ///
    /// >>> Tensor.manual_seed(0)
    /// >>> Tensor.randn(2, 3).shape
    /// (2, 3)
    #[staticmethod]
    #[pyo3(signature = (*shape, dtype=None, requires_grad=false))]
    fn randn(
        py: Python<'_>,
        shape: &Bound<'_, PyTuple>,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let shape = Wholes::of_args(shape)?;
        let dtype = dtype_or(dtype, DType::F32);
        create(py, requires_grad, || Tensor::randn_as(dtype, shape))
    }

    /// Random numbers evenly distributed from 0 up to 1, f32 unless ``dtype`` says otherwise.
    ///
    /// The shape is given as numbers or as one tuple. The numbers are those of the seed.
    ///
    /// Raises ValueError if the shape is none, TypeError for a dtype that is no float.
    ///
    /// >>> Tensor.manual_seed(0)
    /// >>> bool((Tensor.rand(100) < 1).min())
    /// True
    #[staticmethod]
    #[pyo3(signature = (*shape, dtype=None, requires_grad=false))]
    fn rand(
        py: Python<'_>,
        shape: &Bound<'_, PyTuple>,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        PyTensor::uniform(py, shape, Real(0.0), Real(1.0), dtype, requires_grad)
    }

    /// Random numbers evenly distributed from ``low`` up to ``high``, f32 unless ``dtype`` says
    /// otherwise.
    ///
    /// The shape is given as numbers or as one tuple. The numbers are those of the seed.
    ///
    /// Raises ValueError if the shape is none, TypeError for a dtype that is no float and for bounds
    /// that are not finite in it.
    ///
    /// >>> Tensor.manual_seed(0)
    /// >>> bool((Tensor.uniform(100, low=-1.0, high=1.0).abs() <= 1).min())
    /// True
    #[staticmethod]
    #[pyo3(
        signature = (*shape, low=Real(0.0), high=Real(1.0), dtype=None, requires_grad=false),
        text_signature = "(*shape, low=0.0, high=1.0, dtype=None, requires_grad=False)"
    )]
    fn uniform(
        py: Python<'_>,
        shape: &Bound<'_, PyTuple>,
        low: Real,
        high: Real,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let shape = Wholes::of_args(shape)?;
        let dtype = dtype_or(dtype, DType::F32);
        create(py, requires_grad, || {
            Tensor::uniform_as(dtype, shape, low.0, high.0)
        })
    }

    /// Seeds this thread's random numbers, those of randn, rand, uniform and of new layers.
    ///
    /// Threads that never call it share one generator, which begins with seed 0.
    ///
    /// Raises ValueError for a seed of more than 64 bits.
    ///
    /// >>> Tensor.manual_seed(7)
    /// >>> a = Tensor.rand(3)
    /// >>> Tensor.manual_seed(7)
    /// >>> bool((a == Tensor.rand(3)).min())
    /// True
    #[staticmethod]
    fn manual_seed(seed: Seed) {
        Tensor::manual_seed(seed.0);
    }
}
