//! The library's failures as Python exceptions.

use pyo3::PyErr;
use pyo3::exceptions::{
    PyFloatingPointError, PyIndexError, PyMemoryError, PyNotImplementedError, PyOSError,
    PyRuntimeError, PyTypeError, PyValueError,
};
use uopc::Error;

/// The exception for a failure: the type that a Python programmer expects, the library's text.
pub fn exception(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::DType { .. } => PyTypeError::new_err(text),
        Error::Index { .. } => PyIndexError::new_err(text),
        Error::Gradient { .. } | Error::Compile { .. } => PyRuntimeError::new_err(text),
        Error::NonFinite(_) => PyFloatingPointError::new_err(text),
        Error::Memory { .. } | Error::MemoryLimit { .. } => PyMemoryError::new_err(text),
        Error::File { .. } => PyOSError::new_err(text),
        Error::Unsupported { .. } => PyNotImplementedError::new_err(text),
        // Shapes, graphs, text and settings: a value that does not fit.
        _ => PyValueError::new_err(text),
    }
}
