//! Gradients as graphs.

use pyo3::prelude::*;
use uopc::autodiff::gradient_with;

use crate::run::compute;
use crate::uop::{Node, Nodes, PyUOp};

/// The gradients of the sum of root's elements, and a text for each target that got zeros because
/// every path to it is cut. `uopc.gradient.gradient` warns with these.
#[pyfunction]
#[pyo3(name = "gradient")]
fn gradients(
    py: Python<'_>,
    root: Node,
    targets: Nodes,
    strict: bool,
) -> PyResult<(Vec<PyUOp>, Vec<String>)> {
    // A long chain takes a while, in which other threads may run.
    let (gradients, cuts) = compute(py, || gradient_with(&root.0, &targets.0, strict))?;
    let gradients = gradients.into_iter().map(PyUOp).collect();
    Ok((gradients, cuts.iter().map(ToString::to_string).collect()))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(gradients, m)?)
}
