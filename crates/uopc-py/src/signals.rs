//! Ctrl-C and other signals during a long computation: Python's handlers run when they should, and
//! what one of them raises ends the computation.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use pyo3::prelude::*;
use uopc::runtime::interrupt::{self, Check, Entered};

thread_local! {
    /// What a handler has raised on this thread and nobody has handed to Python yet.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

static CHECK: LazyLock<Arc<Check>> = LazyLock::new(|| Arc::new(handler_raises));

/// Runs the handlers of signals that have arrived. True if one of them raises.
fn handler_raises() -> bool {
    // When the interpreter is about to end, its handlers have run for the last time.
    let outcome = Python::try_attach(|py| py.check_signals()).unwrap_or(Ok(()));
    outcome.is_err_and(|error| {
        RAISED.set(Some(error));
        true
    })
}

/// Until the guard is dropped, a signal whose handler raises stops what this thread computes.
pub fn stoppable() -> Entered {
    interrupt::enter(CHECK.clone())
}

/// What a handler has raised during the computation.
pub fn raised() -> Option<PyErr> {
    RAISED.take()
}
