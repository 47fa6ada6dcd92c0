//! Forks: a child process has only the thread that forked, so no other thread may hold one of the
//! library's locks at that moment.
//!
//! Threads that hold the interpreter's lock while they are in the library can't be there when
//! another one forks, which takes that lock. Threads that compute without it are counted here;
//! a fork waits until there are none, and new ones wait for the fork. It waits as well for what
//! such a thread has left to a helper when a signal took it away.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use uopc::runtime::interrupt::{forget_abandoned, wait_for_abandoned};

/// What threads without the interpreter's lock do.
struct Threads {
    /// How many compute.
    computing: usize,
    /// How many wait to fork, or fork.
    forking: usize,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads {
    computing: 0,
    forking: 0,
});
/// Signalled when a thread ends computing.
static ENDED: Condvar = Condvar::new();
/// Signalled when a fork is over.
static FORKED: Condvar = Condvar::new();

thread_local! {
    /// How often this thread has entered: a signal's handler may call the library again.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Held by the thread that forks, from before the fork until after it.
    static FORKING: RefCell<Option<MutexGuard<'static, Threads>>> = const { RefCell::new(None) };
}

fn threads() -> MutexGuard<'static, Threads> {
    // The numbers are right also after a panic elsewhere: nothing can fail between their changes.
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<'a>(on: &Condvar, threads: MutexGuard<'a, Threads>) -> MutexGuard<'a, Threads> {
    on.wait(threads).unwrap_or_else(PoisonError::into_inner)
}

/// Counts this thread as computing until the guard is dropped. While another one waits to fork, it
/// waits for that one, unless it was computing already.
pub fn running() -> Running {
    if DEPTH.replace(DEPTH.get() + 1) == 0 {
        started();
    }
    Running(PhantomData)
}

/// Counts a thread, once no other one forks.
fn started() {
    let mut threads = threads();
    while threads.forking > 0 {
        threads = wait(&FORKED, threads);
    }
    threads.computing += 1;
}

/// No longer counts a thread.
fn stopped() {
    let mut threads = threads();
    threads.computing -= 1;
    if threads.forking > 0 {
        ENDED.notify_all();
    }
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
            stopped();
        }
    }
}

/// Does not count this thread as computing until the guard is dropped: the library has called
/// Python, which may wait for a thread that forks. The guard must not be dropped with the
/// interpreter's lock, which the thread that forks needs.
pub fn paused() -> Paused {
    let depth = DEPTH.replace(0);
    if depth > 0 {
        stopped();
    }
    Paused {
        depth,
        _stays: PhantomData,
    }
}

/// See [`paused`].
#[must_use]
pub struct Paused {
    depth: usize,
    /// A guard stays on its thread.
    _stays: PhantomData<*const ()>,
}

impl Drop for Paused {
    fn drop(&mut self) {
        if self.depth > 0 {
            started();
            DEPTH.set(self.depth);
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
        let mut threads = threads();
        threads.forking += 1;
        while threads.computing > own {
            threads = wait(&ENDED, threads);
        }
        // In the middle of its own computation, the thread would wait for its own helper.
        if own == 0 {
            wait_for_abandoned();
        }
        FORKING.set(Some(threads));
    });
}

/// Lets threads compute again in the parent.
#[pyfunction]
fn after_fork_in_parent() {
    if let Some(mut threads) = FORKING.take() {
        threads.forking -= 1;
        drop(threads);
        FORKED.notify_all();
    }
}

/// Lets the only thread of the child compute. Others that waited to fork are not there.
#[pyfunction]
fn after_fork_in_child() {
    forget_abandoned();
    if let Some(mut threads) = FORKING.take() {
        threads.forking = 0;
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    let os = py.import("os")?;
    if !os.hasattr("register_at_fork")? {
        return Ok(());
    }
    let hooks = PyDict::new(py);
    hooks.set_item("before", wrap_pyfunction!(before_fork, m)?)?;
    hooks.set_item(
        "after_in_parent",
        wrap_pyfunction!(after_fork_in_parent, m)?,
    )?;
    hooks.set_item("after_in_child", wrap_pyfunction!(after_fork_in_child, m)?)?;
    os.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}
