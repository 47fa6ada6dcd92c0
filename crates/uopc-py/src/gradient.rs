//! Gradients as graphs.

use pyo3::prelude::*;
use uopc::autodiff::{self, gradient_with};
use uopc::ir::UOp;

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
    let strict = strict || autodiff::is_strict();
    let (gradients, cuts) = compute(py, || gradient_with(&root.0, &targets.0, strict))?;
    let gradients = gradients.into_iter().map(PyUOp).collect();
    Ok((gradients, cuts.iter().map(ToString::to_string).collect()))
}

/// The tangents of the roots when the targets have these tangents.
#[pyfunction]
fn graph_jvp(
    py: Python<'_>,
    roots: Nodes,
    targets: Nodes,
    tangents: Nodes,
) -> PyResult<Vec<PyUOp>> {
    let pushed = compute(py, || autodiff::jvp_all(&roots.0, &targets.0, &tangents.0))?;
    Ok(pushed.into_iter().map(PyUOp).collect())
}

/// The roots over a batch, each with whether it has one. The other two lists are the nodes that are
/// replaced, and what takes their places.
#[pyfunction]
fn graph_vmap(
    py: Python<'_>,
    roots: Nodes,
    nodes: Nodes,
    batches: Nodes,
) -> PyResult<Vec<(PyUOp, bool)>> {
    let inputs: Vec<(UOp, UOp)> = nodes.0.into_iter().zip(batches.0).collect();
    let results = compute(py, || autodiff::vmap(&roots.0, &inputs))?;
    let pairs = results.into_iter().map(|y| (PyUOp(y.node), y.batched));
    Ok(pairs.collect())
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(gradients, m)?)?;
    m.add_function(wrap_pyfunction!(graph_jvp, m)?)?;
    m.add_function(wrap_pyfunction!(graph_vmap, m)?)
}
