//! Methods that build nodes: arithmetic by name, movement, structure, markers.

use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use uopc::ir::UOp;
use uopc::ir::op::StageKind;
use uopc::{DType, Result};

use super::arg::{Size, Sizes, Windows, scalar};
use super::operators::beside;
use super::{PyUOp, ops};
use crate::dtype::AnyDType;

/// A node or a number beside `u`.
fn needed(u: &UOp, other: &Bound<'_, PyAny>) -> PyResult<UOp> {
    beside(u, other)?.ok_or_else(|| {
        let found = other.get_type();
        PyTypeError::new_err(format!("a UOp or a number is needed, not {found}"))
    })
}

fn binary(
    node: &PyUOp,
    other: &Bound<'_, PyAny>,
    f: fn(&UOp, &UOp) -> Result<UOp>,
) -> PyResult<PyUOp> {
    let b = needed(&node.0, other)?;
    PyUOp::build(other.py(), || f(&node.0, &b))
}

#[pymethods]
impl PyUOp {
    // ---- arithmetic ----

    /// 1/x, for floats.
    ///
    /// >>> uopc.uop.UOp.buffer(3).recip().op.name
    /// 'RECIP'
    fn recip(&self, py: Python<'_>) -> PyResult<PyUOp> {
        PyUOp::build(py, || self.0.recip())
    }

    /// The same as `recip`.
    fn reciprocal(&self, py: Python<'_>) -> PyResult<PyUOp> {
        self.recip(py)
    }

    /// 2 to the power x, for floats.
    fn exp2(&self, py: Python<'_>) -> PyResult<PyUOp> {
        PyUOp::build(py, || self.0.exp2())
    }

    /// The logarithm to base 2, for floats.
    fn log2(&self, py: Python<'_>) -> PyResult<PyUOp> {
        PyUOp::build(py, || self.0.log2())
    }

    /// e to the power x, for floats.
    fn exp(&self, py: Python<'_>) -> PyResult<PyUOp> {
        PyUOp::build(py, || self.0.exp())
    }

    /// The square root, for floats.
    fn sqrt(&self, py: Python<'_>) -> PyResult<PyUOp> {
        PyUOp::build(py, || self.0.sqrt())
    }

    /// The sine, for floats.
    fn sin(&self, py: Python<'_>) -> PyResult<PyUOp> {
        PyUOp::build(py, || self.0.sin())
    }

    /// The cosine, for floats: a SIN with one quarter turn.
    ///
    /// >>> u = uopc.uop.UOp.buffer(3).cos()
    /// >>> u.op.name, u.arg
    /// ('SIN', 1)
    fn cos(&self, py: Python<'_>) -> PyResult<PyUOp> {
        PyUOp::build(py, || self.0.cos())
    }

    /// Rounds towards zero, for floats.
    fn trunc(&self, py: Python<'_>) -> PyResult<PyUOp> {
        PyUOp::build(py, || self.0.trunc())
    }

    /// The larger of two; NaN if either is.
    ///
    /// >>> uopc.uop.UOp.buffer(3).maximum(0.0).op.name
    /// 'MAX'
    fn maximum(&self, other: &Bound<'_, PyAny>) -> PyResult<PyUOp> {
        binary(self, other, UOp::maximum)
    }

    /// self * b + c, rounded once.
    ///
    /// >>> x = uopc.uop.UOp.buffer(3)
    /// >>> x.mulacc(x, 1.0).op.name
    /// 'MULACC'
    fn mulacc(&self, b: &Bound<'_, PyAny>, c: &Bound<'_, PyAny>) -> PyResult<PyUOp> {
        let (py, b, c) = (b.py(), needed(&self.0, b)?, needed(&self.0, c)?);
        PyUOp::build(py, || self.0.mulacc(&b, &c))
    }

    /// Whether self < other, element by element: a bool, false if either is NaN. `self < other` is
    /// the same.
    ///
    /// >>> x = uopc.uop.UOp.buffer(3)
    /// >>> x.lt(0.0).dtype, x.lt(0.0) == (x < 0.0)
    /// (uopc.bool, True)
    fn lt(&self, other: &Bound<'_, PyAny>) -> PyResult<PyUOp> {
        binary(self, other, UOp::cmplt)
    }

    /// The same as `lt`, under the op's name.
    fn cmplt(&self, other: &Bound<'_, PyAny>) -> PyResult<PyUOp> {
        binary(self, other, UOp::cmplt)
    }

    /// Whether two elements differ: a bool, true if either is NaN. (`!=` asks whether the nodes do.)
    ///
    /// >>> uopc.uop.UOp.buffer(3).ne(0.0).op.name
    /// 'CMPNE'
    fn ne(&self, other: &Bound<'_, PyAny>) -> PyResult<PyUOp> {
        binary(self, other, UOp::cmpne)
    }

    /// The same as `ne`, under the op's name.
    fn cmpne(&self, other: &Bound<'_, PyAny>) -> PyResult<PyUOp> {
        binary(self, other, UOp::cmpne)
    }

    /// Whether two elements are equal: a bool, false if either is NaN. (`==` asks whether two are
    /// one node.)
    ///
    /// >>> uopc.uop.UOp.buffer(3).eq(0.0).dtype
    /// uopc.bool
    fn eq(&self, other: &Bound<'_, PyAny>) -> PyResult<PyUOp> {
        binary(self, other, UOp::eq)
    }

    /// a where this bool is true, else b. One of them may be a number.
    ///
    /// Raises TypeError if this is no bool or dtypes differ, ValueError if shapes do.
    ///
    /// >>> x = uopc.uop.UOp.buffer(3)
    /// >>> (x < 0.0).where(0.0, x).dtype
    /// uopc.f32
    #[pyo3(name = "where")]
    fn where_(&self, a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<PyUOp> {
        let py = a.py();
        let (a, b) = match (a.cast::<PyUOp>(), b.cast::<PyUOp>()) {
            (Ok(node), _) => (node.get().0.clone(), needed(&node.get().0, b)?),
            (_, Ok(node)) => (needed(&node.get().0, a)?, node.get().0.clone()),
            _ => {
                return Err(PyTypeError::new_err(
                    "where: one of the two is a UOp, whose dtype the other takes; use UOp.const \
                     and expand",
                ));
            }
        };
        PyUOp::build(py, || self.0.where_(&a, &b))
    }

    /// The value in another dtype; the node itself if it has that dtype.
    ///
    /// >>> x = uopc.uop.UOp.buffer(3)
    /// >>> x.cast("f16").dtype, x.cast("f32") == x
    /// (uopc.f16, True)
    fn cast(&self, py: Python<'_>, dtype: AnyDType) -> PyResult<PyUOp> {
        PyUOp::build(py, || self.0.cast(dtype.0))
    }

    /// The same bits as another dtype of that width.
    ///
    /// Raises TypeError if the widths differ.
    ///
    /// >>> uopc.uop.UOp.buffer(3).bitcast("i32").dtype
    /// uopc.i32
    fn bitcast(&self, py: Python<'_>, dtype: AnyDType) -> PyResult<PyUOp> {
        PyUOp::build(py, || self.0.bitcast(dtype.0))
    }

    /// A constant of this node's dtype and shape.
    ///
    /// >>> print(uopc.uop.UOp.buffer(3).full_like(0.5).to_uir(), end="")
    /// %0 = reshape 0.5, (1,)
    /// %1 = expand %0, (3,)
    fn full_like(&self, value: &Bound<'_, PyAny>) -> PyResult<PyUOp> {
        let constant = scalar(value, Some(self.0.dtype()))?;
        PyUOp::build(value.py(), || UOp::full(constant, self.0.shape()))
    }

    // ---- movement ----

    /// The same elements in row-major order under another shape, which is given as a tuple or one
    /// by one; the node itself if it has that shape.
    ///
    /// Raises ValueError if the numbers of elements differ.
    ///
    /// >>> uopc.uop.UOp.buffer(6).reshape(2, 3).shape
    /// (2, 3)
    #[pyo3(signature = (*shape))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>) -> PyResult<PyUOp> {
        let to = Sizes::of_args(shape)?.0;
        PyUOp::build(shape.py(), || self.0.reshape(&to))
    }

    /// Repeats axes of extent 1. The rank stays.
    ///
    /// Raises ValueError if another axis would change.
    ///
    /// >>> uopc.uop.UOp.buffer(3).reshape(1, 3).expand(2, 3).shape
    /// (2, 3)
    #[pyo3(signature = (*shape))]
    fn expand(&self, shape: &Bound<'_, PyTuple>) -> PyResult<PyUOp> {
        let to = Sizes::of_args(shape)?.0;
        PyUOp::build(shape.py(), || self.0.expand(&to))
    }

    /// Reorders axes: axis k of the result is axis order[k] of this.
    ///
    /// Raises ValueError if that is no order of the axes.
    ///
    /// >>> uopc.uop.UOp.buffer(6).reshape(2, 3).permute(1, 0).shape
    /// (3, 2)
    #[pyo3(signature = (*order))]
    fn permute(&self, order: &Bound<'_, PyTuple>) -> PyResult<PyUOp> {
        let axes = Sizes::of_args(order)?.0;
        PyUOp::build(order.py(), || self.0.permute(&axes))
    }

    /// Keeps begin <= i < end of each axis; bounds has a pair (begin, end) for each.
    ///
    /// Raises ValueError if a window leaves its axis.
    ///
    /// >>> uopc.uop.UOp.buffer(5).shrink([(1, 3)]).shape
    /// (2,)
    fn shrink(&self, py: Python<'_>, bounds: Windows) -> PyResult<PyUOp> {
        PyUOp::build(py, || self.0.shrink(&bounds.0))
    }

    // ---- structure ----

    /// Combines the last n axes, which disappear, by Ops.ADD, Ops.MAX or Ops.MUL.
    ///
    /// Raises ValueError if there are fewer axes.
    ///
    /// >>> from uopc.uop import Ops, UOp
    /// >>> UOp.buffer(6).reshape(2, 3).reduce(Ops.ADD, 1).shape
    /// (2,)
    fn reduce(&self, op: &Bound<'_, PyAny>, n: Size) -> PyResult<PyUOp> {
        let by = ops::reduce_op(op)?;
        PyUOp::build(op.py(), || self.0.reduce(by, n.0))
    }

    /// Indexes the first axes, by integers or by integer nodes of one shape.
    ///
    /// Indices of shape S give S + the rest of this node's shape. An index that a node computes
    /// and that is out of range reads 0; a Python integer out of range raises IndexError.
    ///
    /// >>> x = uopc.uop.UOp.buffer(6).reshape(2, 3)
    /// >>> x.index(1).shape, x.index(1, 2).shape
    /// ((3,), ())
    /// >>> x.index(uopc.uop.UOp.iota(5) % 2).shape
    /// (5, 3)
    #[pyo3(signature = (*indices))]
    fn index(&self, indices: &Bound<'_, PyTuple>) -> PyResult<PyUOp> {
        let given: Vec<Bound<'_, PyAny>> = indices.iter().collect();
        let model = given.iter().find_map(|i| i.cast::<PyUOp>().ok());
        let model = match model {
            Some(node) => node.get().0.clone(),
            // Positions in tensors of up to 2^31 elements an axis are i32, as everywhere.
            None if self.0.shape().iter().all(|&n| n <= i32::MAX as usize) => {
                UOp::int(0, DType::I32)
            }
            None => UOp::int(0, DType::I64),
        };
        let mut nodes = Vec::with_capacity(given.len());
        for (axis, index) in given.iter().enumerate() {
            if !index.is_instance_of::<PyUOp>() {
                self.check_position(axis, &index.extract()?)?;
            }
            nodes.push(needed(&model, index)?);
        }
        PyUOp::build(indices.py(), || self.0.index(&nodes))
    }

    /// Adds the rows of this node into zeros of a shape, each at the place along its first axes that
    /// integer nodes of one shape name: the transpose of `index`.
    ///
    /// Indices of shape S need this node to have the shape S + the axes of ``shape`` that are not
    /// indexed. Rows are added in the row-major order of S; what is out of range, such as a negative
    /// index, adds nothing.
    ///
    /// Raises ValueError if shapes or the number of indices, one at least, do not fit, TypeError for
    /// indices that are no integers.
    ///
    /// >>> rows, at = uopc.uop.UOp.buffer(6).reshape(3, 2), uopc.uop.UOp.buffer(3, "i32", slot=1)
    /// >>> rows.scatter_add(at, shape=(5, 2)).shape
    /// (5, 2)
    #[pyo3(signature = (*indices, shape))]
    fn scatter_add(&self, indices: &Bound<'_, PyTuple>, shape: Sizes) -> PyResult<PyUOp> {
        let node = |index: Bound<'_, PyAny>| match index.cast::<PyUOp>() {
            Ok(node) => Ok(node.get().0.clone()),
            Err(_) => {
                let found = index.get_type();
                let message = format!("scatter_add: an index is a UOp of integers, not {found}");
                Err(PyTypeError::new_err(message))
            }
        };
        let nodes: Vec<UOp> = indices.iter().map(node).collect::<PyResult<_>>()?;
        PyUOp::build(indices.py(), || self.0.scatter_add(&nodes, &shape.0))
    }

    // ---- markers ----

    /// The same value with a request: "detach" stops gradients, "materialise" gives the value a
    /// buffer of its own, "remat_input" and "remat" are on the arguments and the results of a part that is
    /// computed again instead of kept.
    ///
    /// Raises ValueError for another word.
    ///
    /// >>> uopc.uop.UOp.buffer(3).stage("materialise").arg
    /// 'materialise'
    fn stage(&self, py: Python<'_>, kind: &str) -> PyResult<PyUOp> {
        let kind = StageKind::from_name(kind).ok_or_else(|| {
            let known: Vec<&str> = StageKind::ALL.iter().map(|k| k.name()).collect();
            PyValueError::new_err(format!("{kind:?} is none of {}", known.join(", ")))
        })?;
        PyUOp::build(py, || self.0.stage(kind))
    }

    /// The same value, through which no gradient flows. Costs nothing when computed.
    ///
    /// >>> uopc.uop.UOp.buffer(3).detach().arg
    /// 'detach'
    fn detach(&self, py: Python<'_>) -> PyResult<PyUOp> {
        PyUOp::build(py, || self.0.stage(StageKind::Detach))
    }
}

impl PyUOp {
    /// A position that Python writes lies on its axis. Too many positions are the library's error.
    fn check_position(&self, axis: usize, position: &Size) -> PyResult<()> {
        match self.0.shape().get(axis) {
            Some(&n) if position.0 >= n => Err(PyIndexError::new_err(format!(
                "index: position {} of axis {axis} of shape {}, which has {n}",
                position.0,
                self.0.shape()
            ))),
            _ => Ok(()),
        }
    }
}
