//! The class `UOp`: a node of a graph. Its methods stand in the files of this folder, by kind.

mod arg;
mod methods;
mod of_tensor;
mod operators;
mod ops;
mod text;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use uopc::ir::UOp;
use uopc::ir::uop::Sources;
use uopc::ir::visit::toposort;
use uopc::{DType, Result};

use crate::dtype::{AnyDType, PyDType};
use crate::run::{build, compute};

pub use arg::{PyLiveBuffer, Size, Sizes, Windows};
pub use text::Roots;

/// A node of a graph: an operation, its argument, and the nodes it is applied to.
///
/// `UOp(op, src, arg, dtype)` makes one; what the argument is for each operation stands in the
/// docstring of `Ops`, and `UOp(u.op, u.src, u.arg, u.dtype) == u` for every node u. The dtype has
/// to be given for constants that are not f32, i32 or bool, and else may be: it is checked then.
/// Nothing is computed, and nothing is simplified.
///
/// Nodes are hash-consed: building a node that exists gives that node, so `==` and `hash` are
/// those of the node itself and cost nothing (`eq` compares elements). Shapes are strict: sources
/// of arithmetic have equal shapes and dtypes; a Python number beside a node stands for a constant
/// of the node's dtype and shape.
///
/// Raises TypeError for dtypes and kinds of arguments that do not fit, ValueError for shapes.
///
/// >>> from uopc.uop import UOp, Ops
/// >>> x = UOp.buffer(3, "f32", 0)
/// >>> UOp(Ops.ADD, (x, x)) == x + x
/// True
/// >>> (x * 2.0).shape, (x < 0.0).dtype
/// ((3,), uopc.bool)
#[pyclass(name = "UOp", module = "uopc.uop", frozen, weakref)]
pub struct PyUOp(pub UOp);

impl PyUOp {
    /// Wraps what the library builds.
    pub fn build(py: Python<'_>, f: impl FnOnce() -> Result<UOp>) -> PyResult<PyUOp> {
        build(py, f).map(PyUOp)
    }
}

/// An argument that is a node.
pub struct Node(pub UOp);

impl<'py> FromPyObject<'_, 'py> for Node {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Node> {
        match ob.cast::<PyUOp>() {
            Ok(node) => Ok(Node(node.get().0.clone())),
            Err(_) => {
                let found = ob.get_type().name()?;
                let remedy = match ob.is_instance_of::<crate::tensor::PyTensor>() {
                    true => "; a tensor's is its attribute uop",
                    false => "",
                };
                let message = format!("a UOp is needed, not {found}{remedy}");
                Err(PyTypeError::new_err(message))
            }
        }
    }
}

/// Nodes in a sequence.
pub struct Nodes(pub Vec<UOp>);

impl<'py> FromPyObject<'_, 'py> for Nodes {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Nodes> {
        if !ob.is_instance_of::<PyTuple>() && !ob.is_instance_of::<PyList>() {
            let found = ob.get_type().name()?;
            let message = format!("a tuple or list of UOps is needed, not {found}");
            return Err(PyTypeError::new_err(message));
        }
        let nodes = ob.try_iter()?.map(|item| Ok(item?.extract::<Node>()?.0));
        Ok(Nodes(nodes.collect::<PyResult<_>>()?))
    }
}

impl Nodes {
    /// `f(a, b)` and `f([a, b])` alike.
    fn of_args(args: &Bound<'_, PyTuple>) -> PyResult<Nodes> {
        match args.len() {
            1 if !args.get_item(0)?.is_instance_of::<PyUOp>() => args.get_item(0)?.extract(),
            _ => args.extract(),
        }
    }
}

#[pymethods]
impl PyUOp {
    #[new]
    #[pyo3(signature = (op, src=None, arg=None, dtype=None))]
    fn new(
        op: &Bound<'_, PyAny>,
        src: Option<Nodes>,
        arg: Option<&Bound<'_, PyAny>>,
        dtype: Option<AnyDType>,
    ) -> PyResult<PyUOp> {
        let py = op.py();
        let (mnemonic, dtype) = (ops::mnemonic(op)?, dtype.map(|d| d.0));
        let src = src.map_or_else(Vec::new, |s| s.0);
        let op = arg::op(mnemonic, &src, arg, dtype)?;
        let node = build(py, || UOp::new(op, Sources::from(src)))?;
        match dtype {
            Some(dtype) if dtype != node.dtype() => Err(PyTypeError::new_err(format!(
                "{mnemonic}: the result is {}, not {dtype}; leave the dtype out, or cast",
                node.dtype()
            ))),
            _ => Ok(PyUOp(node)),
        }
    }

    /// A constant of shape (): floats are f32, integers i32 and bools bool unless a dtype is given.
    ///
    /// Raises OverflowError for an integer that the dtype does not hold, TypeError for a float where
    /// the dtype is none.
    ///
    /// >>> uopc.uop.UOp.const(0.5).dtype, uopc.uop.UOp.const(3, "u8").arg
    /// (uopc.f32, 3)
    #[staticmethod]
    #[pyo3(name = "const", signature = (value, dtype=None))]
    fn constant(value: &Bound<'_, PyAny>, dtype: Option<AnyDType>) -> PyResult<PyUOp> {
        let constant = arg::scalar(value, dtype.map(|d| d.0))?;
        PyUOp::build(value.py(), || Ok(UOp::constant(constant)))
    }

    /// One-dimensional storage of n elements, known by the number of its slot.
    ///
    /// Graphs over slots are for reading: they print and lower, but hold no numbers. The buffers of
    /// tensors are nodes of the same kind that own memory.
    ///
    /// >>> print(uopc.uop.UOp.buffer(3, "f32", slot=1).to_uir(), end="")
    /// %0 = buffer 3 : dtype=f32 slot=1
    #[staticmethod]
    #[pyo3(signature = (n, dtype=AnyDType(DType::F32), slot=Size(0)))]
    fn buffer(py: Python<'_>, n: Size, dtype: AnyDType, slot: Size) -> PyResult<PyUOp> {
        let slot = slot.number("slot")?;
        PyUOp::build(py, || Ok(UOp::slot(slot, dtype.0, n.0)))
    }

    /// The integers 0, 1, ..., n-1, of shape (n,).
    ///
    /// Raises TypeError if the dtype is no integer or too narrow.
    ///
    /// >>> uopc.uop.UOp.iota(4).shape
    /// (4,)
    #[staticmethod]
    #[pyo3(signature = (n, dtype=AnyDType(DType::I32)))]
    fn iota(py: Python<'_>, n: Size, dtype: AnyDType) -> PyResult<PyUOp> {
        PyUOp::build(py, || UOp::iota(n.0, dtype.0))
    }

    /// Joins nodes of one dtype and shape along a new first axis; takes them one by one or as a
    /// sequence.
    ///
    /// Raises ValueError if there are none or shapes differ, TypeError if dtypes differ.
    ///
    /// >>> x = uopc.uop.UOp.buffer(3)
    /// >>> uopc.uop.UOp.stack(x, x * 2.0).shape
    /// (2, 3)
    #[staticmethod]
    #[pyo3(signature = (*parts))]
    fn stack(parts: &Bound<'_, PyTuple>) -> PyResult<PyUOp> {
        let nodes = Nodes::of_args(parts)?.0;
        PyUOp::build(parts.py(), || UOp::stack(&nodes))
    }

    /// What the node does: a member of `Ops`.
    ///
    /// >>> (uopc.uop.UOp.buffer(3) * 2.0).op
    /// Ops.MUL
    #[getter]
    fn op(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        ops::member(py, self.0.op().mnemonic())
    }

    /// The nodes that it is applied to, a tuple.
    ///
    /// >>> x = uopc.uop.UOp.buffer(3)
    /// >>> x.sqrt().src == (x,)
    /// True
    #[getter]
    fn src<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.src().iter().cloned().map(PyUOp))
    }

    /// The argument, as the docstring of `Ops` says for each operation; None where there is none.
    ///
    /// >>> uopc.uop.UOp.buffer(6).reshape(2, 3).arg
    /// (2, 3)
    #[getter]
    fn arg(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        arg::of_node(py, &self.0)
    }

    /// The dtype of its elements. Effects such as stores count as bools of shape ().
    ///
    /// >>> uopc.uop.UOp.buffer(3, "f16", 0).dtype
    /// uopc.f16
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.0.dtype())
    }

    /// The extents of its axes, () for a scalar.
    ///
    /// >>> uopc.uop.UOp.buffer(3).shape
    /// (3,)
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape().iter())
    }

    /// All nodes that this one depends on, each once, sources before the nodes that read them,
    /// this one last: depth first, sources left to right.
    ///
    /// >>> x = uopc.uop.UOp.buffer(3)
    /// >>> [u.op.name for u in (x * x).toposort()]
    /// ['BUFFER', 'MUL']
    fn toposort<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let nodes = compute(py, || Ok(toposort(std::slice::from_ref(&self.0))))?;
        PyList::new(py, nodes.into_iter().map(PyUOp))
    }

    fn __hash__(&self) -> usize {
        // Nodes are aligned, so the lowest bits say nothing.
        self.0.address() >> 4
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = self.0.op().mnemonic().to_uppercase();
        let (dtype, shape) = (self.0.dtype(), self.0.shape());
        let arg = arg::of_node(py, &self.0)?.into_bound(py);
        if arg.is_none() {
            return Ok(format!("UOp(Ops.{name}, dtype={dtype}, shape={shape})"));
        }
        let arg = arg.repr()?;
        Ok(format!(
            "UOp(Ops.{name}, arg={arg}, dtype={dtype}, shape={shape})"
        ))
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyUOp>()?;
    m.add_class::<PyLiveBuffer>()?;
    // NumPy's arrays and scalars leave operations with a node to the node.
    m.getattr("UOp")?
        .setattr("__array_ufunc__", m.py().None())?;
    ops::register(m)?;
    text::register(m)
}
