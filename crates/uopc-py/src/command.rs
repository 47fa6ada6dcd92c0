//! The command `uopc` that is installed with the wheel.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::notices;

/// Runs the program `uopc` with those arguments, its own name first, and returns its exit code.
///
/// >>> uopc._uopc.main(["uopc", "--version"])
/// 0
#[pyfunction]
fn main(py: Python<'_>, args: Vec<OsString>) -> u8 {
    notices::print();
    py.detach(|| uopc_cli::program::run(args))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(main, m)?)
}
