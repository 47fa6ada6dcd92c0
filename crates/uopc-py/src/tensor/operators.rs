//! What Python's operators do with tensors: `+`, `1 - t`, `t += 1`, `<`, `@` and so on.

// What PyO3 generates for a method takes the place of the method's name, here that of the table
// below, and is then taken for written by hand.
#![allow(unsafe_op_in_unsafe_fn)]

use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use uopc::Tensor;
use uopc::tensor::Operand;

use super::{PyTensor, type_error};
use crate::convert::Other;
use crate::run::build;

/// What a product takes beside a tensor. A number becomes a scalar tensor, which it refuses.
fn tensor(py: Python<'_>, operand: Operand) -> PyResult<Tensor> {
    match operand {
        Operand::Tensor(tensor) => Ok(tensor),
        number => build(py, || Tensor::scalar(number)),
    }
}

macro_rules! operators {
    ($($method:ident $reflected:ident $in_place:ident => $twin:ident;)*) => {
        #[pymethods]
        impl PyTensor {
            $(
                fn $method(&self, py: Python<'_>, other: Other) -> PyResult<PyTensor> {
                    let other = other.0?;
                    PyTensor::build(py, || self.tensor.$twin(other))
                }

                fn $reflected(&self, py: Python<'_>, other: Other) -> PyResult<PyTensor> {
                    let other = other.0?;
                    PyTensor::build(py, || other.$twin(&self.tensor))
                }

                fn $in_place(&self, py: Python<'_>, other: Other) -> PyResult<()> {
                    let (t, other) = (&self.tensor, other.0?);
                    self.set(py, || t.set(&t.$twin(other)?))
                }
            )*

            fn __matmul__(&self, py: Python<'_>, other: Other) -> PyResult<PyTensor> {
                let other = tensor(py, other.0?)?;
                PyTensor::build(py, || self.tensor.matmul(&other))
            }

            fn __rmatmul__(&self, py: Python<'_>, other: Other) -> PyResult<PyTensor> {
                let other = tensor(py, other.0?)?;
                PyTensor::build(py, || other.matmul(&self.tensor))
            }

            fn __imatmul__(&self, py: Python<'_>, other: Other) -> PyResult<()> {
                let (t, other) = (&self.tensor, tensor(py, other.0?)?);
                self.set(py, || t.set(&t.matmul(&other)?))
            }

            fn __pow__(
                &self,
                py: Python<'_>,
                power: Other,
                modulo: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<PyTensor> {
                if modulo.is_some() {
                    let message = "a power modulo a number is not defined for tensors".into();
                    return Err(type_error(py, "pow", message));
                }
                let power = power.0?;
                PyTensor::build(py, || self.tensor.pow(power))
            }

            fn __ipow__(
                &self,
                py: Python<'_>,
                power: Other,
                _modulo: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<()> {
                let (t, power) = (&self.tensor, power.0?);
                self.set(py, || t.set(&t.pow(power)?))
            }

            fn __rpow__(
                &self,
                py: Python<'_>,
                base: Other,
                _modulo: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<PyTensor> {
                let base = base.0?;
                PyTensor::build(py, || base.pow(&self.tensor))
            }

            fn __divmod__(&self, py: Python<'_>, other: Other) -> PyResult<(PyTensor, PyTensor)> {
                let other = other.0?;
                let quotient = PyTensor::build(py, || self.tensor.floordiv(&other))?;
                Ok((quotient, PyTensor::build(py, || self.tensor.floormod(other))?))
            }

            fn __rdivmod__(&self, py: Python<'_>, other: Other) -> PyResult<(PyTensor, PyTensor)> {
                let other = other.0?;
                let quotient = PyTensor::build(py, || other.floordiv(&self.tensor))?;
                Ok((quotient, PyTensor::build(py, || other.floormod(&self.tensor))?))
            }

            fn __neg__(&self, py: Python<'_>) -> PyResult<PyTensor> {
                PyTensor::build(py, || self.tensor.neg())
            }

            fn __pos__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
                slf
            }

            fn __abs__(&self, py: Python<'_>) -> PyResult<PyTensor> {
                PyTensor::build(py, || self.tensor.abs())
            }

            fn __invert__(&self, py: Python<'_>) -> PyResult<PyTensor> {
                PyTensor::build(py, || self.tensor.not())
            }

            fn __richcmp__(
                &self,
                py: Python<'_>,
                other: Other,
                op: CompareOp,
            ) -> PyResult<PyTensor> {
                let (t, other) = (&self.tensor, other.0?);
                PyTensor::build(py, || match op {
                    CompareOp::Lt => t.lt(other),
                    CompareOp::Le => t.le(other),
                    CompareOp::Eq => t.eq(other),
                    CompareOp::Ne => t.ne(other),
                    CompareOp::Gt => t.gt(other),
                    CompareOp::Ge => t.ge(other),
                })
            }
        }
    };
}

operators! {
    __add__ __radd__ __iadd__ => add;
    __sub__ __rsub__ __isub__ => sub;
    __mul__ __rmul__ __imul__ => mul;
    __truediv__ __rtruediv__ __itruediv__ => div;
    __floordiv__ __rfloordiv__ __ifloordiv__ => floordiv;
    __mod__ __rmod__ __imod__ => floormod;
    __and__ __rand__ __iand__ => and;
    __or__ __ror__ __ior__ => or;
    __xor__ __rxor__ __ixor__ => xor;
    __lshift__ __rlshift__ __ilshift__ => shl;
    __rshift__ __rrshift__ __irshift__ => shr;
}
