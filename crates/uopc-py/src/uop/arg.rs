//! A node's argument: between its form in Python and the op that holds it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyList, PyTuple};
use uopc::DType;
use uopc::ir::custom::Custom;
use uopc::ir::fold::fold_of;
use uopc::ir::op::{BufferId, Combine, Exec, Fold, LiveBuffer, Op, ParamMode, Space, StageKind};
use uopc::ir::{Scalar, Shape, UOp};
use uopc::tensor::Operand;

use super::ops;
use crate::convert::{Whole, operand};
use crate::dtype::{AnyDType, PyDType};
use crate::tensor::located;

/// An extent or a number of elements.
pub struct Size(pub usize);

impl<'py> FromPyObject<'_, 'py> for Size {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Size> {
        let number = ob.extract::<Whole>()?.0;
        let size = usize::try_from(number);
        size.map(Size).map_err(|_| {
            let message = format!("{number} is negative; a size or position is not");
            located::<PyValueError>(ob.py(), message)
        })
    }
}

impl Size {
    /// As one of the small numbers that slots, loops and names have.
    pub fn number(&self, what: &str) -> PyResult<u32> {
        let number = self.0;
        u32::try_from(number)
            .map_err(|_| PyValueError::new_err(format!("{what} {number} is not below 2^32")))
    }

    /// As a number of axes or of quarter turns.
    fn small(&self, what: &str) -> PyResult<u8> {
        let number = self.0;
        u8::try_from(number)
            .map_err(|_| PyValueError::new_err(format!("{what} {number} is not below 256")))
    }
}

/// Extents or positions of axes.
pub struct Sizes(pub Vec<usize>);

impl<'py> FromPyObject<'_, 'py> for Sizes {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Sizes> {
        sequence::<Size>(&ob, "integers").map(|s| Sizes(s.into_iter().map(|n| n.0).collect()))
    }
}

impl Sizes {
    /// `f(2, 3)` and `f((2, 3))` alike.
    pub fn of_args(args: &Bound<'_, PyTuple>) -> PyResult<Sizes> {
        match args.len() {
            1 if !args.get_item(0)?.is_instance_of::<PyInt>() => args.get_item(0)?.extract(),
            _ => args.extract(),
        }
    }

    fn order(&self) -> PyResult<Arc<[u8]>> {
        let axes = self.0.iter().map(|&k| Size(k).small("axis"));
        Ok(axes.collect::<PyResult<Vec<u8>>>()?.into())
    }
}

/// A (begin, end) or (before, after) for each axis.
pub struct Windows(pub Vec<(usize, usize)>);

impl<'py> FromPyObject<'_, 'py> for Windows {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Windows> {
        let pairs = sequence::<Sizes>(&ob, "pairs of integers")?;
        let pair = |s: Sizes| match s.0[..] {
            [a, b] => Ok((a, b)),
            _ => Err(PyValueError::new_err(format!(
                "a pair of integers is needed for each axis, not {} of them",
                s.0.len()
            ))),
        };
        Ok(Windows(
            pairs.into_iter().map(pair).collect::<PyResult<_>>()?,
        ))
    }
}

fn sequence<T>(ob: &Bound<'_, PyAny>, of: &str) -> PyResult<Vec<T>>
where
    T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
{
    if !ob.is_instance_of::<PyTuple>() && !ob.is_instance_of::<PyList>() {
        let message = format!("a tuple of {of} is needed, not {}", ob.repr()?);
        return Err(PyTypeError::new_err(message));
    }
    ob.try_iter()?.map(|item| item?.extract()).collect()
}

/// The memory behind a buffer that owns some, as a tensor's does. Two are equal if they are one.
///
/// >>> buffer = Tensor([1.0, 2.0]).uop.toposort()[0]
/// >>> n, dtype, memory = buffer.arg
/// >>> n, dtype, memory == buffer.arg[2]
/// (2, uopc.f32, True)
#[pyclass(name = "LiveBuffer", module = "uopc.uop", frozen)]
pub struct PyLiveBuffer(Arc<LiveBuffer>);

#[pymethods]
impl PyLiveBuffer {
    /// Its number, unique in the process.
    #[getter]
    fn id(&self) -> u64 {
        self.0.id
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let other = other.cast::<PyLiveBuffer>();
        other.is_ok_and(|o| o.get().0.id == self.0.id)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        self.0.id.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("LiveBuffer({})", self.0.id)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "memory can't be pickled apart from its tensor; pickle the tensor",
        ))
    }
}

/// A number as a constant.
pub fn scalar(value: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Scalar> {
    let number = match operand(value)? {
        None | Some(Operand::Tensor(_)) => {
            let found = value.get_type().name()?;
            let message = format!("a constant is a number or a bool, not {found}");
            return Err(PyTypeError::new_err(message));
        }
        Some(number) => number,
    };
    let constant = match number {
        Operand::Float(v) => {
            let dtype = dtype.unwrap_or(DType::F32);
            if !dtype.is_float() {
                let message = format!("the float {v} is no {dtype}; write an integer, or cast");
                return Err(PyTypeError::new_err(message));
            }
            Scalar::from_f64(dtype, v)
        }
        Operand::Int(v) => {
            let dtype = dtype.unwrap_or(DType::I32);
            if let Some((least, greatest)) = dtype.int_range()
                && !(least..=greatest).contains(&v)
            {
                let message = format!("{v} does not fit {dtype}; use a wider dtype, such as i64");
                return Err(PyOverflowError::new_err(message));
            }
            Scalar::from_i128(dtype, v)
        }
        Operand::Bool(v) => Scalar::from_i128(dtype.unwrap_or(DType::Bool), v.into()),
        Operand::Tensor(_) => unreachable!("tensors were refused above"),
    };
    Ok(constant)
}

type Arg<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// The op of a word and an argument. `src` are the sources that it will be applied to.
pub fn op(of: &str, src: &[UOp], arg: Arg, dtype: Option<DType>) -> PyResult<Op> {
    let op = match of {
        "const" => match arg {
            Some(value) => Op::Const(scalar(value, dtype)?),
            None => return Err(missing(of, "a number, as in UOp(Ops.CONST, (), 1.0)")),
        },
        "buffer" => {
            let (n, dtype, id): (Size, AnyDType, Bound<PyAny>) =
                parsed(of, arg, "(n, dtype, slot), as in (3, uopc.f32, 0)")?;
            let id = match id.cast::<PyLiveBuffer>() {
                Ok(memory) => BufferId::Live(memory.get().0.clone()),
                Err(_) => BufferId::Slot(id.extract::<Size>()?.number("slot")?),
            };
            Op::Buffer {
                id,
                dtype: dtype.0,
                n: n.0,
            }
        }
        "param" => {
            let (n, dtype, slot, mode): (Size, AnyDType, Size, String) = parsed(
                of,
                arg,
                "(n, dtype, slot, mode), as in (3, uopc.f32, 0, \"in\")",
            )?;
            let mode = word(&mode, ParamMode::ALL, ParamMode::name)?;
            Op::Param {
                slot: slot.number("slot")?,
                mode,
                dtype: dtype.0,
                n: n.0,
            }
        }
        "iota" => {
            let (n, dtype): (Size, AnyDType) = parsed(of, arg, "(n, dtype), as in (3, uopc.i32)")?;
            Op::Iota {
                n: n.0,
                dtype: dtype.0,
            }
        }
        "local" => {
            let (n, dtype, id, space): (Size, AnyDType, Size, String) = parsed(
                of,
                arg,
                "(n, dtype, id, space), as in (3, uopc.f32, 0, \"reg\")",
            )?;
            let space = word(&space, Space::ALL, Space::name)?;
            Op::Local {
                id: id.number("id")?,
                space,
                dtype: dtype.0,
                n: n.0,
            }
        }
        "sin" => match arg {
            None => Op::Sin(0),
            Some(_) => {
                let turns: Size = parsed(of, arg, "a number of quarter turns, 0 to 3")?;
                Op::Sin(turns.small("turn")?)
            }
        },
        "cast" => Op::Cast(parsed::<AnyDType>(of, arg, "a dtype, as in uopc.f16")?.0),
        "bitcast" => Op::Bitcast(parsed::<AnyDType>(of, arg, "a dtype, as in uopc.i32")?.0),
        "reshape" => Op::Reshape(shape(of, arg)?),
        "expand" => Op::Expand(shape(of, arg)?),
        "scatter_add" => Op::ScatterAdd(shape(of, arg)?),
        "permute" => {
            Op::Permute(parsed::<Sizes>(of, arg, "an order of the axes, as in (1, 0)")?.order()?)
        }
        "shrink" => {
            let example = "a window for each axis, as in ((0, 2), (1, 3))";
            Op::Shrink(parsed::<Windows>(of, arg, example)?.0.into())
        }
        "reduce" => reduce(of, src, arg)?,
        "scan" => match arg {
            Some(by) => Op::Scan(ops::reduce_op(by)?),
            None => return Err(missing(of, "an op, as in Ops.ADD")),
        },
        "custom" => Op::Custom(Arc::new(Custom {
            name: parsed::<String>(of, arg, "a name")?.into(),
            rules: None,
        })),
        "stage" => {
            let kind: String = parsed(of, arg, "a word, as in \"detach\"")?;
            Op::Stage(word(&kind, StageKind::ALL, StageKind::name)?)
        }
        "range" => {
            let (id, exec) = number_and(of, arg, "(id, exec), as in (0, \"serial\")")?;
            let exec = match exec {
                Some(text) => word(&text, Exec::ALL, Exec::name)?,
                None => Exec::Serial,
            };
            Op::Range { id, exec }
        }
        "store" => {
            let (combine, gated): (String, bool) =
                parsed(of, arg, "(combine, gated), as in (\"set\", False)")?;
            let combine = word(&combine, Combine::ALL, Combine::name)?;
            Op::Store { combine, gated }
        }
        "call" => {
            let (name, outs): (String, Size) = parsed(of, arg, "(name, number of outputs)")?;
            Op::Call {
                name: name.into(),
                outs: outs.number("outs")?,
            }
        }
        "let" => Op::Let {
            id: parsed::<Size>(of, arg, "a number")?.number("id")?,
        },
        "declare" => match arg {
            None => Op::Declare(None),
            Some(_) => {
                let combine: String = parsed(of, arg, "None or a word, as in \"add\"")?;
                Op::Declare(Some(word(&combine, Combine::ALL, Combine::name)?))
            }
        },
        _ => {
            let op = without_argument(of);
            if let Some(arg) = arg {
                let message = format!("{of} takes no argument, not {}", arg.repr()?);
                return Err(PyTypeError::new_err(message));
            }
            op
        }
    };
    Ok(op)
}

/// `(Ops.ADD, n)` with the fold that the library chooses, or `(Ops.ADD, n, fold)`.
fn reduce(of: &str, src: &[UOp], arg: Arg) -> PyResult<Op> {
    let example = "(op, number of axes), as in (Ops.ADD, 1)";
    let parts = arg.and_then(|a| a.cast::<PyTuple>().ok());
    let (by, n, fold): (Bound<PyAny>, Size, Option<String>) = match parts.map(|p| p.len()) {
        Some(3) => parsed(of, arg, example)?,
        _ => {
            let (by, n) = parsed(of, arg, example)?;
            (by, n, None)
        }
    };
    let by = ops::reduce_op(&by)?;
    let fold = match fold {
        Some(text) => word(&text, Fold::ALL, Fold::name)?,
        None => src.first().map_or(Fold::Lanes, |x| fold_of(by, x, n.0)),
    };
    Ok(Op::Reduce {
        op: by,
        n: n.small("number of axes")?,
        fold,
    })
}

fn without_argument(of: &str) -> Op {
    match of {
        "add" => Op::Add,
        "mul" => Op::Mul,
        "max" => Op::Max,
        "recip" => Op::Recip,
        "div" => Op::Div,
        "exp2" => Op::Exp2,
        "log2" => Op::Log2,
        "exp" => Op::Exp,
        "sqrt" => Op::Sqrt,
        "trunc" => Op::Trunc,
        "mulacc" => Op::MulAcc,
        "where" => Op::Where,
        "cmplt" => Op::CmpLt,
        "cmpne" => Op::CmpNe,
        "floordiv" => Op::FloorDiv,
        "floormod" => Op::FloorMod,
        "and" => Op::And,
        "or" => Op::Or,
        "xor" => Op::Xor,
        "shl" => Op::Shl,
        "shr" => Op::Shr,
        "stack" => Op::Stack,
        "index" => Op::Index,
        "argsort" => Op::ArgSort,
        "end" => Op::End,
        "load" => Op::Load,
        "sink" => Op::Sink,
        "after" => Op::After,
        "loop" => Op::Loop,
        "endloop" => Op::EndLoop,
        "if" => Op::If,
        "endif" => Op::EndIf,
        "barrier" => Op::Barrier,
        other => unreachable!("{other} has an argument or is no op"),
    }
}

/// The argument of a node, in the form in which [`op`] takes it.
pub fn of_node(py: Python<'_>, u: &UOp) -> PyResult<Py<PyAny>> {
    match u.op() {
        Op::Const(value) => number(py, *value),
        Op::Buffer { id, dtype, n } => {
            let id = match id {
                BufferId::Slot(slot) => slot.into_py_any(py)?,
                BufferId::Live(memory) => PyLiveBuffer(memory.clone()).into_py_any(py)?,
            };
            (*n, PyDType(*dtype), id).into_py_any(py)
        }
        Op::Param {
            slot,
            mode,
            dtype,
            n,
        } => (*n, PyDType(*dtype), *slot, mode.name()).into_py_any(py),
        Op::Iota { n, dtype } => (*n, PyDType(*dtype)).into_py_any(py),
        Op::Local {
            id,
            space,
            dtype,
            n,
        } => (*n, PyDType(*dtype), *id, space.name()).into_py_any(py),
        Op::Sin(turns) => turns.into_py_any(py),
        Op::Cast(dtype) | Op::Bitcast(dtype) => PyDType(*dtype).into_py_any(py),
        Op::Reshape(shape) | Op::Expand(shape) | Op::ScatterAdd(shape) => {
            PyTuple::new(py, shape.iter())?.into_py_any(py)
        }
        Op::Permute(order) => PyTuple::new(py, order.iter())?.into_py_any(py),
        Op::Shrink(bounds) => PyTuple::new(py, bounds.iter())?.into_py_any(py),
        Op::Reduce { op, n, fold } => {
            let by = ops::reduce_member(py, *op)?;
            if *fold == fold_of(*op, &u.src()[0], *n as usize) {
                return (by, *n).into_py_any(py);
            }
            (by, *n, fold.name()).into_py_any(py)
        }
        Op::Scan(op) => ops::reduce_member(py, *op),
        Op::Custom(custom) => custom.name.into_py_any(py),
        Op::Stage(kind) => kind.name().into_py_any(py),
        Op::Range { id, exec } => (*id, exec.name()).into_py_any(py),
        Op::Store { combine, gated } => (combine.name(), *gated).into_py_any(py),
        Op::Call { name, outs } => (&**name, *outs).into_py_any(py),
        Op::Let { id } => id.into_py_any(py),
        Op::Declare(combine) => combine.map(Combine::name).into_py_any(py),
        Op::Add
        | Op::Mul
        | Op::Max
        | Op::Recip
        | Op::Div
        | Op::Exp2
        | Op::Log2
        | Op::Exp
        | Op::Sqrt
        | Op::Trunc
        | Op::MulAcc
        | Op::Where
        | Op::CmpLt
        | Op::CmpNe
        | Op::FloorDiv
        | Op::FloorMod
        | Op::And
        | Op::Or
        | Op::Xor
        | Op::Shl
        | Op::Shr
        | Op::Stack
        | Op::Index
        | Op::ArgSort
        | Op::End
        | Op::Load
        | Op::Sink
        | Op::After
        | Op::Loop
        | Op::EndLoop
        | Op::If
        | Op::EndIf
        | Op::Barrier => Ok(py.None()),
    }
}

fn number(py: Python<'_>, value: Scalar) -> PyResult<Py<PyAny>> {
    match value.dtype() {
        DType::Bool => Ok(PyBool::new(py, value.as_bool())
            .to_owned()
            .into_any()
            .unbind()),
        dtype if dtype.is_float() => value.as_f64().into_py_any(py),
        _ => value.as_i128().into_py_any(py),
    }
}

fn missing(of: &str, example: &str) -> PyErr {
    PyTypeError::new_err(format!("{of} needs an argument: {example}"))
}

fn shape(of: &str, arg: Arg) -> PyResult<Shape> {
    Ok(Shape::new(
        &parsed::<Sizes>(of, arg, "a shape, as in (2, 3)")?.0,
    ))
}

/// The argument as a value of that type, or an error that shows what it looks like.
fn parsed<'a, 'py, T>(of: &str, arg: Arg<'a, 'py>, example: &str) -> PyResult<T>
where
    T: FromPyObject<'a, 'py>,
{
    let arg = arg.ok_or_else(|| missing(of, example))?;
    arg.extract::<T>().map_err(|error| {
        let error: PyErr = error.into();
        let why = error.value(arg.py());
        let message = format!("{of}: its argument is {example}: {why}");
        match error.is_instance_of::<PyValueError>(arg.py()) {
            true => PyValueError::new_err(message),
            false => PyTypeError::new_err(message),
        }
    })
}

/// A number alone, or with a word behind it.
fn number_and(of: &str, arg: Arg, example: &str) -> PyResult<(u32, Option<String>)> {
    if arg.is_some_and(|a| a.is_instance_of::<PyTuple>()) {
        let (id, text): (Size, String) = parsed(of, arg, example)?;
        return Ok((id.number("id")?, Some(text)));
    }
    Ok((parsed::<Size>(of, arg, example)?.number("id")?, None))
}

/// The value that a word names.
fn word<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> PyResult<T> {
    let found = all.iter().find(|v| name(**v) == text);
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|v| name(*v)).collect();
        PyValueError::new_err(format!("{text:?} is none of {}", known.join(", ")))
    })
}
