//! Forks: a child process has only the thread that forked, so no other thread may hold one of the
//! library's locks at that moment.
//!
//! Threads that hold the interpreter's lock while they are in the library can't be there when
//! another one forks, which takes that lock. Threads that compute without it are counted here;
//! a fork waits until there are none, and new ones wait for the fork.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// How many threads compute without the interpreter's lock.
static RUNNING: Mutex<usize> = Mutex::new(0);
/// Signalled when there are none.
static IDLE: Condvar = Condvar::new();

thread_local! {
    /// How often this thread has entered: a signal's handler may call the library again.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Held by the thread that forks, from before the fork until after it.
    static FORKING: RefCell<Option<MutexGuard<'static, usize>>> = const { RefCell::new(None) };
}

fn count() -> MutexGuard<'static, usize> {
    // The number is right also after a panic elsewhere: nothing can fail between its changes.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts this thread until the guard is dropped.
pub fn running() -> Running {
    if DEPTH.replace(DEPTH.get() + 1) == 0 {
        *count() += 1;
    }
    Running(PhantomData)
}

/// See [`running`].
#[must_use]
pub struct Running(
    /// A guard stays on its thread.
    PhantomData<*const ()>,
);

impl Drop for Running {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            let mut running = count();
            *running -= 1;
            if *running == 0 {
                IDLE.notify_all();
            }
        }
    }
}

/// Waits until no thread computes, and keeps it so.
#[pyfunction]
fn before_fork(py: Python<'_>) {
    // A thread that forks in the middle of its own computation, in a handler of a signal, does not
    // wait for itself.
    let own = usize::from(DEPTH.get() > 0);
    py.detach(|| {
        let mut running = count();
        while *running > own {
            running = IDLE
                .wait_timeout(running, PATIENCE)
                .map_or_else(|e| e.into_inner().0, |(guard, _)| guard);
        }
        FORKING.set(Some(running));
    });
}

/// How long a waiting fork sleeps before it looks again.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(50);

/// Lets threads compute again, in the parent and in the child.
#[pyfunction]
fn after_fork() {
    FORKING.set(None);
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    let os = py.import("os")?;
    if !os.hasattr("register_at_fork")? {
        return Ok(());
    }
    let hooks = PyDict::new(py);
    hooks.set_item("before", wrap_pyfunction!(before_fork, m)?)?;
    hooks.set_item("after_in_parent", wrap_pyfunction!(after_fork, m)?)?;
    hooks.set_item("after_in_child", wrap_pyfunction!(after_fork, m)?)?;
    os.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}
