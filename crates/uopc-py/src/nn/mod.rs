//! Neural networks: what layers compute, losses, optimisers, and tensors by name in files. The
//! class `Module` is Python's own.

mod layers;
mod loss;
mod optim;
mod optimisers;
mod schedule;

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use uopc::Tensor;
use uopc::io::safetensors;

use crate::convert::AnyTensor;
use crate::run::compute;
use crate::tensor::PyTensor;

/// The number of a tensor that requires a gradient, equal for all names of it; None for all else.
#[pyfunction]
fn parameter_id(ob: &Bound<'_, PyAny>) -> Option<u64> {
    let tensor = &ob.cast::<PyTensor>().ok()?.get().tensor;
    tensor.is_parameter().then(|| tensor.id())
}

/// Whether a tensor was computed from one that requires a gradient.
#[pyfunction]
fn is_interior(tensor: &Bound<'_, PyTensor>) -> bool {
    let tensor = &tensor.get().tensor;
    tensor.needs_grad() && !tensor.is_parameter()
}

/// The tensor as it is now; an update of it does not change the result.
#[pyfunction]
fn snapshot(py: Python<'_>, tensor: &Bound<'_, PyTensor>) -> PyResult<PyTensor> {
    let tensor = &tensor.get().tensor;
    PyTensor::build(py, || tensor.detach())
}

/// Gives tensors new values, all or none.
#[pyfunction]
fn assign_all(py: Python<'_>, updates: Vec<(AnyTensor, AnyTensor)>) -> PyResult<()> {
    let updates: Vec<(&Tensor, &Tensor)> = updates.iter().map(|(t, v)| (&t.0, &v.0)).collect();
    compute(py, || Tensor::assign_all(&updates, &[] as &[Tensor]))
}

/// Writes tensors to a safetensors file.
#[pyfunction]
fn save_tensors(py: Python<'_>, path: PathBuf, tensors: Vec<(String, AnyTensor)>) -> PyResult<()> {
    let tensors: Vec<(String, Tensor)> = tensors.into_iter().map(|(n, t)| (n, t.0)).collect();
    compute(py, || safetensors::save(path, &tensors))
}

/// Reads the tensors of a safetensors file by name.
#[pyfunction]
fn load_tensors(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let tensors = compute(py, || safetensors::load(path))?;
    by_name(py, tensors)
}

/// Gives tensors the values that a safetensors file has for their names, all or none.
#[pyfunction]
fn load_into(py: Python<'_>, path: PathBuf, tensors: Vec<(String, AnyTensor)>) -> PyResult<()> {
    let tensors: Vec<(String, Tensor)> = tensors.into_iter().map(|(n, t)| (n, t.0)).collect();
    compute(py, || safetensors::load_into(path, &tensors))
}

fn by_name(py: Python<'_>, tensors: Vec<(String, Tensor)>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, tensor) in tensors {
        dict.set_item(name, Bound::new(py, PyTensor::from(tensor))?)?;
    }
    Ok(dict)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    layers::register(m)?;
    loss::register(m)?;
    optimisers::register(m)?;
    schedule::register(m)?;
    m.add_function(wrap_pyfunction!(parameter_id, m)?)?;
    m.add_function(wrap_pyfunction!(is_interior, m)?)?;
    m.add_function(wrap_pyfunction!(snapshot, m)?)?;
    m.add_function(wrap_pyfunction!(assign_all, m)?)?;
    m.add_function(wrap_pyfunction!(save_tensors, m)?)?;
    m.add_function(wrap_pyfunction!(load_tensors, m)?)?;
    m.add_function(wrap_pyfunction!(load_into, m)?)
}
