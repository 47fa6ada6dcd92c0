//! Between tensors and what Python holds in memory. The parts stand in `interop`.

use numpy::PyUntypedArray;
use pyo3::prelude::*;
use uopc::{DType, Tensor};

use super::PyTensor;
use crate::interop;

/// Whether an object is a NumPy array.
pub fn is_array(ob: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(ob.cast::<PyUntypedArray>().is_ok())
}

impl PyTensor {
    /// A copy of a NumPy array of any layout and byte order.
    pub fn of_array(array: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        interop::arrays::copied(array).map(PyTensor::from)
    }
}

/// The tensor of whatever the constructor is given.
pub fn tensor_of(data: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Tensor> {
    interop::tensor_of(data, dtype)
}
