//! The enumeration `Ops`, which is Python's: between its members and the words of the op table.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use uopc::ir::op::{OPS, ReduceOp};

/// The members of `uopc.uop.Ops`, in the order of the op table.
fn members(py: Python<'_>) -> PyResult<&'static [Py<PyAny>]> {
    static MEMBERS: PyOnceLock<Vec<Py<PyAny>>> = PyOnceLock::new();
    let members = MEMBERS.get_or_try_init(py, || {
        let class = py.import("uopc.uop")?.getattr("Ops")?;
        let member = |word: &str| class.call1((word,)).map(Bound::unbind);
        OPS.iter()
            .map(|row| member(row.mnemonic))
            .collect::<PyResult<_>>()
    })?;
    Ok(members)
}

/// The member for an op.
pub fn member(py: Python<'_>, mnemonic: &str) -> PyResult<Py<PyAny>> {
    let row = OPS.iter().position(|row| row.mnemonic == mnemonic);
    let row = row.expect("every op has a row in the table");
    Ok(members(py)?[row].clone_ref(py))
}

/// The word of a member.
pub fn mnemonic(ob: &Bound<'_, PyAny>) -> PyResult<&'static str> {
    let found = members(ob.py())?.iter().position(|m| m.is(ob));
    match found {
        Some(row) => Ok(OPS[row].mnemonic),
        None => Err(PyTypeError::new_err(format!(
            "a member of Ops is needed, such as Ops.ADD, not {}",
            ob.repr()?
        ))),
    }
}

/// The combining operation that a member stands for.
pub fn reduce_op(ob: &Bound<'_, PyAny>) -> PyResult<ReduceOp> {
    match mnemonic(ob)? {
        "add" => Ok(ReduceOp::Add),
        "max" => Ok(ReduceOp::Max),
        "mul" => Ok(ReduceOp::Mul),
        other => Err(PyTypeError::new_err(format!(
            "reductions combine by Ops.ADD, Ops.MAX or Ops.MUL, not by {other}"
        ))),
    }
}

/// The member for a combining operation.
pub fn reduce_member(py: Python<'_>, op: ReduceOp) -> PyResult<Py<PyAny>> {
    match op {
        ReduceOp::Add => member(py, "add"),
        ReduceOp::Max => member(py, "max"),
        ReduceOp::Mul => member(py, "mul"),
    }
}

/// The op table: for each op its word, the least and the largest number of sources (None: any
/// number) and its meaning.
#[pyfunction]
fn op_table() -> Vec<(&'static str, usize, Option<usize>, &'static str)> {
    let most = |n: usize| (n != usize::MAX).then_some(n);
    let row = |r: &uopc::ir::op::OpInfo| (r.mnemonic, r.arity.0, most(r.arity.1), r.meaning);
    OPS.iter().map(row).collect()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(op_table, m)?)
}
