//! Limits of memory, and marks around what is computed again instead of kept.

use std::cell::RefCell;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use uopc::Tensor;
use uopc::debug::bytes_of;
use uopc::tensor::{MemoryLimit, memory_limit};
use uopc::transform::flat;

use crate::convert::Tensors;
use crate::run::compute;
use crate::tensor::PyTensor;

thread_local! {
    /// Guards that Python has entered and not left, each with its number.
    static LIMITS: RefCell<Vec<(u64, MemoryLimit)>> = const { RefCell::new(Vec::new()) };
}

/// The bytes that are meant by a number, or by a text such as "512M".
#[pyfunction]
fn memory_limit_bytes(limit: &Bound<'_, PyAny>) -> PyResult<u64> {
    let remedy = "use bytes, or a number followed by K, M or G";
    if let Ok(text) = limit.extract::<String>() {
        return bytes_of(&text).ok_or_else(|| {
            PyValueError::new_err(format!("memory_limit: \"{text}\" is no size; {remedy}"))
        });
    }
    let refused = |_| {
        let given = limit
            .repr()
            .map_or_else(|_| "this".into(), |text| text.to_string());
        let message =
            format!("memory_limit: {given} is neither a whole number nor a text; {remedy}");
        PyTypeError::new_err(message)
    };
    let number = limit
        .py()
        .import("operator")?
        .call_method1("index", (limit,))
        .map_err(refused)?;
    number.extract().map_err(|_| {
        PyValueError::new_err(format!(
            "memory_limit: {number} bytes are no size from 0 to 2^64 - 1"
        ))
    })
}

/// From now on computations of this thread keep within that many bytes; gives the guard's number.
#[pyfunction]
fn enter_memory_limit(bytes: u64) -> u64 {
    let guard = memory_limit(bytes);
    LIMITS.with_borrow_mut(|guards| {
        let number = guards.last().map_or(0, |(last, _)| last + 1);
        guards.push((number, guard));
        number
    })
}

/// Undoes the `enter_memory_limit` of this thread that gave the number.
#[pyfunction]
fn leave_memory_limit(number: u64) {
    LIMITS.with_borrow_mut(|guards| guards.retain(|(entry, _)| *entry != number));
}

fn marked(
    py: Python<'_>,
    tensors: &Tensors,
    mark: impl Fn(&[Tensor]) -> uopc::Result<Vec<Tensor>> + Send + Sync,
) -> PyResult<Vec<PyTensor>> {
    let marked = compute(py, || mark(&tensors.0))?;
    Ok(marked.into_iter().map(PyTensor::from).collect())
}

/// The arguments of a part that is computed again, with marks on them.
#[pyfunction]
fn checkpoint_arguments(py: Python<'_>, tensors: Tensors) -> PyResult<Vec<PyTensor>> {
    marked(py, &tensors, flat::checkpoint_arguments)
}

/// Its results, with marks on them.
#[pyfunction]
fn checkpoint_results(py: Python<'_>, tensors: Tensors) -> PyResult<Vec<PyTensor>> {
    marked(py, &tensors, flat::checkpoint_results)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(memory_limit_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(enter_memory_limit, m)?)?;
    m.add_function(wrap_pyfunction!(leave_memory_limit, m)?)?;
    m.add_function(wrap_pyfunction!(checkpoint_arguments, m)?)?;
    m.add_function(wrap_pyfunction!(checkpoint_results, m)?)
}
