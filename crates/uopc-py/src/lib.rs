//! The Python package `uopc`: classes and functions that convert their arguments, call the library
//! and convert what it gives back. They hold no logic of their own.
//!
//! All of it is one extension module, `uopc._uopc`; the modules that people import (`uopc.tensor`,
//! `uopc.uop`, ...) are short Python files beside it that give the names their places.

#![warn(clippy::unwrap_used)]
// What the extension module shows is documented for Python, in docstrings and stubs.
#![allow(missing_docs)]
// Methods that a macro of ours writes out are wrapped by PyO3 in code that counts as ours.
#![allow(unsafe_op_in_unsafe_fn)]

mod command;
mod composite;
mod convert;
mod data;
mod diagnose;
mod dtype;
mod error;
mod fork;
mod gradient;
mod interop;
mod io;
mod kernelize;
mod loader;
mod memory;
mod nn;
mod notices;
mod rules;
mod run;
mod signals;
mod site;
mod tensor;
mod transform;
mod uop;

use pyo3::prelude::*;

#[pymodule]
fn _uopc(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    notices::collect();
    fork::register(m)?;
    command::register(m)?;
    dtype::register(m)?;
    tensor::register(m)?;
    uop::register(m)?;
    composite::register(m)?;
    gradient::register(m)?;
    diagnose::register(m)?;
    rules::register(m)?;
    transform::register(m)?;
    memory::register(m)?;
    kernelize::register(m)?;
    nn::register(m)?;
    interop::register(m)?;
    data::register(m)?;
    loader::register(m)?;
    io::register(m)?;
    Ok(())
}
