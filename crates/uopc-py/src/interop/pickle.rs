//! Pickles and copies of tensors.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use uopc::{DType, Tensor};

use crate::dtype::AnyDType;
use crate::run::compute;
use crate::tensor::PyTensor;

/// The function that a pickle calls.
const REBUILD: &str = "_rebuild_tensor";

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_rebuild_tensor, m)?)
}

/// A tensor from what a pickle holds: elements in little-endian order, dtype, shape, and whether
/// it is a parameter.
#[pyfunction]
fn _rebuild_tensor(
    data: &Bound<'_, PyBytes>,
    dtype: AnyDType,
    shape: Vec<i64>,
    requires_grad: bool,
) -> PyResult<PyTensor> {
    let AnyDType(dtype) = dtype;
    let bytes = little_endian(data.as_bytes(), dtype);
    PyTensor::compute(data.py(), || {
        let tensor = Tensor::from_bytes(&bytes, dtype, shape)?;
        match requires_grad {
            true => tensor.requires_grad(),
            false => Ok(tensor),
        }
    })
}

/// Elements between the machine's order and that of pickles.
fn little_endian(bytes: &[u8], dtype: DType) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if cfg!(target_endian = "big") {
        for element in bytes.chunks_exact_mut(dtype.size()) {
            element.reverse();
        }
    }
    bytes
}

/// A tensor with memory of its own; a parameter if this is one. The gradient is copied, too.
fn deep(tensor: &Tensor) -> uopc::Result<Tensor> {
    let values = |t: &Tensor| -> uopc::Result<Tensor> {
        Tensor::from_bytes(t.memory()?.as_bytes(), t.dtype(), t.shape())
    };
    let copy = values(tensor)?;
    if !tensor.is_parameter() {
        return Ok(copy);
    }
    let copy = copy.requires_grad()?;
    if let Some(grad) = tensor.grad() {
        copy.set_grad(Some(values(&grad)?));
    }
    Ok(copy)
}

#[pymethods]
impl PyTensor {
    /// For pickle: values, dtype, shape and whether it is a parameter.
    ///
    /// The gradient and how the values were computed are not kept, so a computed tensor comes back
    /// as a constant.
    ///
    /// >>> import pickle
    /// >>> pickle.loads(pickle.dumps(Tensor([1.0, 2.0]))).tolist()
    /// [1.0, 2.0]
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let storage = compute(py, || self.tensor.memory())?;
        let dtype = self.tensor.dtype();
        let data = match cfg!(target_endian = "big") {
            true => PyBytes::new(py, &little_endian(storage.as_bytes(), dtype)),
            false => PyBytes::new(py, storage.as_bytes()),
        };
        let rebuild = py.import("uopc._uopc")?.getattr(REBUILD)?;
        let shape = self.shape(py)?;
        let parts = (data, dtype.name(), shape, self.tensor.is_parameter());
        Ok((rebuild, parts.into_pyobject(py)?))
    }

    /// ``copy.copy(t)``: a tensor with the same values and history. Changing one of the two in place
    /// does not change the other. The copy of a parameter is a parameter without a gradient.
    ///
    /// >>> import copy
    /// >>> copy.copy(Tensor([1.0])).tolist()
    /// [1.0]
    fn __copy__(&self, py: Python<'_>) -> PyResult<PyTensor> {
        PyTensor::compute(py, || self.tensor.copy())
    }

    /// ``copy.deepcopy(t)``: the values in memory of their own. The copy of a parameter is a
    /// parameter with a copy of the gradient; that of a computed tensor is a constant.
    ///
    /// >>> import copy
    /// >>> w = Tensor([1.0], requires_grad=True)
    /// >>> copy.deepcopy(w).requires_grad
    /// True
    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyDict>) -> PyResult<PyTensor> {
        PyTensor::compute(py, || deep(&self.tensor))
    }
}
