//! Operators on nodes. A number beside a node is a constant of the node's dtype and shape; for
//! anything else the other side is asked.

use pyo3::IntoPyObjectExt;
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use uopc::Result;
use uopc::ir::{Scalar, UOp};

use super::PyUOp;
use super::arg::scalar;
use crate::tensor::{PyTensor, is_array};

/// The node that something stands for beside `u`, if it is a node or a number.
pub fn beside(u: &UOp, other: &Bound<'_, PyAny>) -> PyResult<Option<UOp>> {
    if let Ok(node) = other.cast::<PyUOp>() {
        return Ok(Some(node.get().0.clone()));
    }
    if !is_number(other)? {
        return Ok(None);
    }
    let value = scalar(other, Some(u.dtype()))?;
    PyUOp::build(other.py(), || UOp::full(value, u.shape())).map(|c| Some(c.0))
}

/// Whether it is one of Python's or NumPy's numbers.
fn is_number(ob: &Bound<'_, PyAny>) -> PyResult<bool> {
    use pyo3::types::{PyBool, PyFloat, PyInt};
    if ob.is_instance_of::<PyFloat>() || ob.is_instance_of::<PyInt>() {
        return Ok(true);
    }
    let not = ob.is_instance_of::<PyTensor>() || is_array(ob)?;
    Ok(ob.is_instance_of::<PyBool>() || !not && ob.hasattr("dtype")? && ob.hasattr("item")?)
}

/// An operation of two nodes; `swapped` if the node is on the right.
fn binary(
    node: &PyUOp,
    other: &Bound<'_, PyAny>,
    swapped: bool,
    f: fn(&UOp, &UOp) -> Result<UOp>,
) -> PyResult<Py<PyAny>> {
    let py = other.py();
    let Some(other) = beside(&node.0, other)? else {
        return Ok(py.NotImplemented());
    };
    let (a, b) = match swapped {
        true => (&other, &node.0),
        false => (&node.0, &other),
    };
    PyUOp::build(py, || f(a, b))?.into_py_any(py)
}

#[pymethods]
impl PyUOp {
    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, false, UOp::add)
    }

    fn __radd__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, true, UOp::add)
    }

    fn __sub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, false, UOp::sub)
    }

    fn __rsub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, true, UOp::sub)
    }

    fn __mul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, false, UOp::mul)
    }

    fn __rmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, true, UOp::mul)
    }

    fn __truediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, false, UOp::div)
    }

    fn __rtruediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, true, UOp::div)
    }

    fn __floordiv__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, false, UOp::floordiv)
    }

    fn __rfloordiv__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, true, UOp::floordiv)
    }

    fn __mod__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, false, UOp::floormod)
    }

    fn __rmod__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, true, UOp::floormod)
    }

    fn __and__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, false, UOp::and)
    }

    fn __rand__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, true, UOp::and)
    }

    fn __or__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, false, UOp::or)
    }

    fn __ror__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, true, UOp::or)
    }

    fn __xor__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, false, UOp::xor)
    }

    fn __rxor__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, true, UOp::xor)
    }

    fn __lshift__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, false, UOp::shl)
    }

    fn __rlshift__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, true, UOp::shl)
    }

    fn __rshift__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, false, UOp::shr)
    }

    fn __rrshift__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, true, UOp::shr)
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<PyUOp> {
        PyUOp::build(py, || self.0.neg())
    }

    fn __pos__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// All bits the other way round; of a bool the other one.
    fn __invert__(&self, py: Python<'_>) -> PyResult<PyUOp> {
        let ones = Scalar::from_i128(self.0.dtype(), -1);
        PyUOp::build(py, || self.0.xor(&UOp::full(ones, self.0.shape())?))
    }

    /// `==` and `!=` ask whether two are one node; `<` and `>` build comparisons of elements.
    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = other.py();
        match op {
            CompareOp::Lt => binary(self, other, false, UOp::cmplt),
            CompareOp::Gt => binary(self, other, true, UOp::cmplt),
            CompareOp::Le | CompareOp::Ge => Ok(py.NotImplemented()),
            CompareOp::Eq | CompareOp::Ne => match other.cast::<PyUOp>() {
                Ok(other) => {
                    let same = other.get().0 == self.0;
                    (same == matches!(op, CompareOp::Eq)).into_py_any(py)
                }
                Err(_) => Ok(py.NotImplemented()),
            },
        }
    }

    fn __bool__(&self) -> PyResult<bool> {
        Err(PyTypeError::new_err(
            "a UOp is an expression and neither true nor false; compare nodes with ==, test with \
             `is None`, or compute the value with Tensor(u).item()",
        ))
    }
}
