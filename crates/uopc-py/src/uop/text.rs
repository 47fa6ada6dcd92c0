//! Nodes as `.uir` text and back, and pickling, which is the same.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use uopc::ir::UOp;
use uopc::ir::op::{BufferId, Op};
use uopc::ir::parse::parse;
use uopc::ir::print;
use uopc::ir::visit::toposort;

use super::{Node, PyUOp};
use crate::run::compute;
use crate::tensor::PyTensor;

/// What is printed, planned or lowered: a node or a tensor, or several of them in a sequence.
pub struct Roots(pub Vec<UOp>);

impl<'py> FromPyObject<'_, 'py> for Roots {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Roots> {
        if !ob.is_instance_of::<PyTuple>() && !ob.is_instance_of::<PyList>() {
            return Ok(Roots(vec![root(&ob)?]));
        }
        let roots = ob.try_iter()?.map(|item| root(&item?));
        Ok(Roots(roots.collect::<PyResult<_>>()?))
    }
}

fn root(ob: &Bound<'_, PyAny>) -> PyResult<UOp> {
    match ob.cast::<PyTensor>() {
        Ok(tensor) => Ok(tensor.get().tensor.uop()),
        Err(_) => Ok(ob.extract::<Node>()?.0),
    }
}

/// The text of the graph under a node or a tensor, or under several in a sequence, in the form of
/// docs/reference/uir.md. Live buffers are printed as slots.
///
/// >>> x = uopc.uop.UOp.buffer(3)
/// >>> print(uopc.uop.to_uir([x + x, x]), end="")
/// %0 = buffer 3 : dtype=f32 slot=0
/// %1 = add %0, %0
/// ; roots: %1, %0
#[pyfunction]
fn to_uir(py: Python<'_>, roots: Roots) -> PyResult<String> {
    compute(py, || Ok(print::to_uir(&roots.0)))
}

/// The node that a text describes; a list of them if it names another number of roots than one.
///
/// Reading what was printed gives the same nodes, but for live buffers, which come back as slots.
/// Raises ValueError for text that is malformed or breaks the type rules, with the line.
///
/// >>> x = uopc.uop.UOp.buffer(3)
/// >>> uopc.uop.from_uir((x * x).to_uir()) == x * x
/// True
#[pyfunction]
fn from_uir(py: Python<'_>, text: &str) -> PyResult<Py<PyAny>> {
    let parsed = compute(py, || parse(text, "text"))?;
    let mut roots: Vec<PyUOp> = parsed.roots.into_iter().map(PyUOp).collect();
    match roots.len() {
        1 => roots.remove(0).into_py_any(py),
        _ => roots.into_py_any(py),
    }
}

#[pymethods]
impl PyUOp {
    /// The text of the graph under this node, in the form of docs/reference/uir.md.
    ///
    /// >>> print((uopc.uop.UOp.buffer(3) * 2.0).to_uir(), end="")
    /// %0 = buffer 3 : dtype=f32 slot=0
    /// %1 = reshape 2.0, (1,)
    /// %2 = expand %1, (3,)
    /// %3 = mul %0, %2
    fn to_uir(&self, py: Python<'_>) -> PyResult<String> {
        compute(py, || Ok(self.0.to_uir()))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let is_live = |u: &UOp| {
            let id = match u.op() {
                Op::Buffer { id, .. } => Some(id),
                _ => None,
            };
            matches!(id, Some(BufferId::Live(_)))
        };
        let graph = compute(py, || Ok(toposort(std::slice::from_ref(&self.0))))?;
        if graph.iter().any(is_live) {
            return Err(PyTypeError::new_err(
                "a graph that reads tensors' memory can't be pickled; pickle the computed tensors, \
                 or write the graph over slots (UOp.buffer)",
            ));
        }
        let read = py.import("uopc.uop")?.getattr("from_uir")?;
        Ok((read, (self.to_uir(py)?,)))
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(to_uir, m)?)?;
    m.add_function(wrap_pyfunction!(from_uir, m)?)
}
