//! The line of the user's program that is being run, for error texts and listings.

use std::collections::HashMap;

use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use uopc::tensor::{Entered, Site};

/// Until the guard is dropped, nodes belong to the line of Python that called into the package.
pub fn enter(py: Python<'_>) -> Option<Entered> {
    Some(caller(py)?.enter())
}

/// How many places are remembered before they are forgotten and found anew.
const REMEMBERED: usize = 1 << 14;

/// What is known about an instruction of a code object.
struct Place {
    /// Keeps the address in use, so that it names no other code.
    _code: Py<PyAny>,
    /// Its line; nothing for code of a library, which stands for its caller.
    site: Option<Site>,
}

static PLACES: Mutex<Option<HashMap<(usize, u32), Place>>> = Mutex::new(None);

/// The user's line: the innermost one outside of this package and NumPy.
fn caller(py: Python<'_>) -> Option<Site> {
    static GETFRAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let getframe = GETFRAME
        .get_or_try_init(py, || {
            py.import(intern!(py, "sys"))?
                .getattr(intern!(py, "_getframe"))
                .map(Bound::unbind)
        })
        .ok()?;
    let mut frame = getframe.bind(py).call0().ok()?;
    // Each frame of a library is passed over; a program without one of its own has no line.
    while !frame.is_none() {
        let code = frame.getattr(intern!(py, "f_code")).ok()?;
        let at: u32 = frame.getattr(intern!(py, "f_lasti")).ok()?.extract().ok()?;
        let key = (code.as_ptr() as usize, at);
        let known = PLACES.lock().as_ref().and_then(|p| Some(p.get(&key)?.site));
        let site = match known {
            Some(site) => site,
            None => {
                let site = look_up(&frame, &code).ok()?;
                remember(key, code.unbind(), site);
                site
            }
        };
        if site.is_some() {
            return site;
        }
        frame = frame.getattr(intern!(py, "f_back")).ok()?;
    }
    None
}

fn look_up(frame: &Bound<'_, PyAny>, code: &Bound<'_, PyAny>) -> PyResult<Option<Site>> {
    let py = frame.py();
    let file = code.getattr(intern!(py, "co_filename"))?;
    let file = file.cast_into::<PyString>()?;
    let file: &str = &file.to_cow()?;
    if libraries(py)?.iter().any(|folder| file.starts_with(folder)) {
        return Ok(None);
    }
    let line: Option<u32> = frame.getattr(intern!(py, "f_lineno"))?.extract()?;
    Ok(Some(Site::script(file, line.unwrap_or(0))))
}

/// The folders, with a separator at their ends, of Python files that stand between the user and
/// the library: those of this package, and NumPy's, whose functions call a tensor's methods.
fn libraries(py: Python<'_>) -> PyResult<&[String]> {
    static FOLDERS: PyOnceLock<Vec<String>> = PyOnceLock::new();
    let folder = |package: &str| {
        let init: String = py.import(package)?.getattr("__file__")?.extract()?;
        let end = init.rfind(std::path::is_separator).map_or(0, |at| at + 1);
        PyResult::Ok(init[..end].to_string())
    };
    let all = || ["uopc", "numpy"].map(folder).into_iter().collect();
    FOLDERS.get_or_try_init(py, all).map(Vec::as_slice)
}

fn remember(key: (usize, u32), code: Py<PyAny>, site: Option<Site>) {
    let mut places = PLACES.lock();
    let table = places.get_or_insert_default();
    // Programs that make code without end would be kept without end.
    let forgotten = match table.len() >= REMEMBERED {
        true => std::mem::take(table),
        false => HashMap::new(),
    };
    table.insert(key, Place { _code: code, site });
    drop(places);
    drop(forgotten);
}
