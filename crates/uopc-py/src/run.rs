//! How the library is called: with the user's line at hand, and without the interpreter's lock
//! while it compiles and computes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use uopc::Result;

use crate::error::exception;
use crate::{fork, notices, signals, site};

/// Calls the library where it only builds graphs, which takes microseconds.
pub fn build<T>(py: Python<'_>, f: impl FnOnce() -> Result<T>) -> PyResult<T> {
    let site = site::enter(py);
    let outcome = catch_unwind(AssertUnwindSafe(f));
    drop(site);
    finish(py, outcome)
}

/// Calls the library where it may compile and compute. Other Python threads run meanwhile, signals
/// are looked after, and a fork waits for the end.
pub fn compute<T: Send>(py: Python<'_>, f: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let site = site::enter(py);
    let outcome = py.detach(|| {
        let _running = fork::running();
        let _stoppable = signals::stoppable();
        catch_unwind(AssertUnwindSafe(f))
    });
    drop(site);
    if let Some(error) = signals::raised() {
        return Err(error);
    }
    finish(py, outcome)
}

/// The result as Python sees it. The library does not panic; if it does, that is an exception like
/// any other and not the end of the process.
fn finish<T>(py: Python<'_>, outcome: std::thread::Result<Result<T>>) -> PyResult<T> {
    notices::show(py)?;
    match outcome {
        Ok(result) => result.map_err(exception),
        Err(panic) => Err(PyRuntimeError::new_err(format!(
            "a defect of uopc, please report it: {}",
            text(&*panic)
        ))),
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    let borrowed = panic.downcast_ref::<&str>().copied();
    owned.or(borrowed).unwrap_or("it said nothing")
}
