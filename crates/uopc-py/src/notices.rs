//! The library's notices: warnings become Python warnings, the dumps and timings that the
//! environment asks for go to `sys.stderr`.
//!
//! They may be made without the interpreter's lock and with locks of the library, so they are
//! collected and shown when a call returns to Python.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use uopc_cli::notices::Printer;

struct Collector;

struct Notice {
    level: Level,
    text: String,
    /// Whether it says that a gradient is zero because of what was written.
    of_gradient: bool,
}

/// Whether there is something to show, to be asked without a lock.
static SOME: AtomicBool = AtomicBool::new(false);
static COLLECTED: Mutex<Vec<Notice>> = Mutex::new(Vec::new());
/// Whether the process is the program `uopc`, which prints its notices itself.
static PRINTED: AtomicBool = AtomicBool::new(false);

impl Log for Collector {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.target().starts_with("uopc")
    }

    fn log(&self, record: &Record) {
        if PRINTED.load(Relaxed) {
            Printer.log(record);
        } else if self.enabled(record.metadata()) {
            COLLECTED.lock().push(Notice {
                level: record.level(),
                text: record.args().to_string(),
                of_gradient: record.target() == "uopc::gradient",
            });
            SOME.store(true, Relaxed);
        }
    }

    fn flush(&self) {}
}

/// From now on notices are collected.
pub fn collect() {
    // Nobody else in this extension module logs, so the logger is ours or was set by an earlier
    // import of the same module.
    if log::set_logger(&Collector).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// From now on notices are printed on standard error at once.
pub fn print() {
    PRINTED.store(true, Relaxed);
}

/// Shows what has been collected.
///
/// # Errors
/// When the user has made warnings errors.
pub fn show(py: Python<'_>) -> PyResult<()> {
    if !SOME.swap(false, Relaxed) {
        return Ok(());
    }
    let notices = std::mem::take(&mut *COLLECTED.lock());
    for Notice {
        level,
        text,
        of_gradient,
    } in notices
    {
        if level <= Level::Warn {
            let options = PyDict::new(py);
            options.set_item("stacklevel", 1)?;
            let category = match of_gradient {
                true => py
                    .import(intern!(py, "uopc.gradient"))?
                    .getattr(intern!(py, "GradientWarning"))?,
                false => py.get_type::<PyRuntimeWarning>().into_any(),
            };
            let warnings = py.import(intern!(py, "warnings"))?;
            warnings.call_method("warn", (text, category), Some(&options))?;
        } else {
            let stderr = py
                .import(intern!(py, "sys"))?
                .getattr(intern!(py, "stderr"))?;
            stderr.call_method1("write", (format!("{text}\n"),))?;
        }
    }
    Ok(())
}
