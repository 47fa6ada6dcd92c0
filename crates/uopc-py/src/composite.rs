//! Ops made of ops.

use pyo3::prelude::*;
use pyo3::types::PyInt;
use uopc::ir::composite;

use crate::uop::{Node, Nodes, PyUOp, Size, Sizes, Windows};

/// Puts `before` zeros in front of and `after` zeros behind each axis; padding has a pair (before,
/// after) for each.
///
/// It is made of RESHAPE, EXPAND, STACK and SHRINK, as many as the logarithm of the padding.
/// Raises ValueError if there is not one pair for each axis.
///
/// >>> from uopc.composite import pad
/// >>> pad(uopc.uop.UOp.buffer(3), ((1, 2),)).shape
/// (6,)
#[pyfunction]
fn pad(py: Python<'_>, u: Node, padding: Windows) -> PyResult<PyUOp> {
    PyUOp::build(py, || composite::pad(&u.0, &padding.0))
}

/// Sums over the axes where the shape has extent 1 and u has more: the reverse of EXPAND.
///
/// Raises ValueError if the ranks differ or another axis differs.
///
/// >>> from uopc.composite import sum_to
/// >>> sum_to(uopc.uop.UOp.buffer(6).reshape(2, 3), (1, 3)).shape
/// (1, 3)
#[pyfunction]
fn sum_to(py: Python<'_>, u: Node, shape: Sizes) -> PyResult<PyUOp> {
    PyUOp::build(py, || composite::sum_to(&u.0, &shape.0))
}

/// Zeros of u's dtype and shape.
///
/// >>> print(uopc.composite.zeros_like(uopc.uop.UOp.buffer(3)).to_uir(), end="")
/// %0 = reshape 0.0, (1,)
/// %1 = expand %0, (3,)
#[pyfunction]
fn zeros_like(py: Python<'_>, u: Node) -> PyResult<PyUOp> {
    PyUOp::build(py, || composite::zeros_like(&u.0))
}

/// Reverses the order along an axis or several, counted from 0.
///
/// It is an INDEX by n-1, ..., 0. Raises ValueError if an axis does not exist.
///
/// >>> uopc.composite.flip(uopc.uop.UOp.buffer(3), 0).op.name
/// 'INDEX'
#[pyfunction]
fn flip(py: Python<'_>, u: Node, axes: &Bound<'_, PyAny>) -> PyResult<PyUOp> {
    let axes = match axes.is_instance_of::<PyInt>() {
        true => vec![axes.extract::<Size>()?.0],
        false => axes.extract::<Sizes>()?.0,
    };
    PyUOp::build(py, || composite::flip(&u.0, &axes))
}

/// Joins nodes along an axis, counted from 0; they agree on dtype and on all other extents.
///
/// Raises ValueError if there are none or shapes do not fit, TypeError if dtypes differ.
///
/// >>> x = uopc.uop.UOp.buffer(3)
/// >>> uopc.composite.cat([x, x, x]).shape
/// (9,)
#[pyfunction]
#[pyo3(signature = (parts, axis=Size(0)))]
fn cat(py: Python<'_>, parts: Nodes, axis: Size) -> PyResult<PyUOp> {
    PyUOp::build(py, || composite::cat(&parts.0, axis.0))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(pad, m)?)?;
    m.add_function(wrap_pyfunction!(sum_to, m)?)?;
    m.add_function(wrap_pyfunction!(zeros_like, m)?)?;
    m.add_function(wrap_pyfunction!(flip, m)?)?;
    m.add_function(wrap_pyfunction!(cat, m)?)
}
