//! NumPy's universal functions on tensors: `np.exp(t)`, `array * t`, `array += t`.
//!
//! A function that the library has gives a lazy tensor through which gradients flow, with the
//! library's dtypes. One that it has not is refused with a way out: nothing is computed by NumPy
//! behind the user's back.

use numpy::PyUntypedArray;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use uopc::tensor::{DType, Operand, Site};
use uopc::{Error, Result, Tensor};

use super::lists::Sequence;
use super::tensor_of;
use crate::convert::operand;
use crate::run::build;
use crate::tensor::{PyTensor, type_error};

enum Function {
    One(fn(&Tensor) -> Result<Tensor>),
    Two(fn(&Operand, &Operand) -> Result<Tensor>),
    /// Two results.
    Pair(fn(&Operand, &Operand) -> Result<[Tensor; 2]>),
}

use Function::{One, Pair, Two};

/// NumPy's names and the library's functions.
const FUNCTIONS: &[(&str, Function)] = &[
    ("absolute", One(|x| x.abs())),
    ("arccos", One(|x| x.acos())),
    ("arccosh", One(|x| x.acosh())),
    ("arcsin", One(|x| x.asin())),
    ("arcsinh", One(|x| x.asinh())),
    ("arctan", One(|x| x.atan())),
    ("arctanh", One(|x| x.atanh())),
    ("ceil", One(|x| x.ceil())),
    ("cosh", One(|x| x.cosh())),
    ("expm1", One(|x| x.expm1())),
    ("floor", One(|x| x.floor())),
    ("isfinite", One(|x| x.isfinite())),
    ("isinf", One(|x| x.isinf())),
    ("isnan", One(|x| x.isnan())),
    ("log10", One(|x| x.log10())),
    ("log1p", One(|x| x.log1p())),
    ("rint", One(|x| x.round())),
    ("sign", One(|x| x.sign())),
    ("signbit", One(|x| x.signbit())),
    ("sinh", One(|x| x.sinh())),
    ("tan", One(|x| x.tan())),
    ("cos", One(|x| x.cos())),
    ("exp", One(|x| x.exp())),
    ("exp2", One(|x| x.exp2())),
    ("fabs", One(|x| x.abs())),
    ("invert", One(|x| x.not())),
    ("log", One(|x| x.log())),
    ("log2", One(|x| x.log2())),
    ("negative", One(|x| x.neg())),
    ("positive", One(|x| Ok(x.clone()))),
    ("reciprocal", One(|x| x.reciprocal())),
    ("sin", One(|x| x.sin())),
    ("sqrt", One(|x| x.sqrt())),
    ("square", One(|x| x.square())),
    ("tanh", One(|x| x.tanh())),
    ("trunc", One(|x| x.trunc())),
    ("logical_not", One(|x| x.cast(DType::Bool)?.not())),
    ("add", Two(|a, b| a.add(b))),
    ("arctan2", Two(|a, b| a.atan2(b))),
    ("copysign", Two(|a, b| a.copysign(b))),
    ("fmod", Two(|a, b| a.fmod(b))),
    ("hypot", Two(|a, b| a.hypot(b))),
    ("left_shift", Two(|a, b| a.shl(b))),
    ("logaddexp", Two(|a, b| a.logaddexp(b))),
    ("right_shift", Two(|a, b| a.shr(b))),
    ("bitwise_and", Two(|a, b| a.and(b))),
    ("bitwise_or", Two(|a, b| a.or(b))),
    ("bitwise_xor", Two(|a, b| a.xor(b))),
    ("divide", Two(|a, b| a.div(b))),
    ("equal", Two(|a, b| a.eq(b))),
    ("floor_divide", Two(|a, b| a.floordiv(b))),
    ("greater", Two(|a, b| a.gt(b))),
    ("greater_equal", Two(|a, b| a.ge(b))),
    ("less", Two(|a, b| a.lt(b))),
    ("less_equal", Two(|a, b| a.le(b))),
    ("logical_and", Two(|a, b| truth(a)?.and(&truth(b)?))),
    ("logical_or", Two(|a, b| truth(a)?.or(&truth(b)?))),
    ("logical_xor", Two(|a, b| truth(a)?.xor(&truth(b)?))),
    ("matmul", Two(|a, b| matrix(a)?.matmul(matrix(b)?))),
    ("maximum", Two(|a, b| a.maximum(b))),
    ("minimum", Two(|a, b| a.minimum(b))),
    ("multiply", Two(|a, b| a.mul(b))),
    ("not_equal", Two(|a, b| a.ne(b))),
    ("power", Two(|a, b| a.pow(b))),
    ("remainder", Two(|a, b| a.floormod(b))),
    ("subtract", Two(|a, b| a.sub(b))),
    ("divmod", Pair(|a, b| Ok([a.floordiv(b)?, a.floormod(b)?]))),
];

/// An operand as truth values.
fn truth(operand: &Operand) -> Result<Operand> {
    Ok(match operand {
        Operand::Tensor(tensor) => tensor.cast(DType::Bool)?.into(),
        Operand::Float(number) => Operand::Bool(*number != 0.0),
        Operand::Int(number) => Operand::Bool(*number != 0),
        Operand::Bool(truth) => Operand::Bool(*truth),
    })
}

fn matrix(operand: &Operand) -> Result<&Tensor> {
    match operand {
        Operand::Tensor(tensor) => Ok(tensor),
        _ => Err(Error::Shape {
            op: "matmul",
            message: "a number is no matrix; use * for scaling".into(),
            site: Site::current(),
        }),
    }
}

/// The function of the library that stands for one of NumPy's, found by the object and not by its
/// name, which anybody may give to a function of theirs.
fn known(ufunc: &Bound<'_, PyAny>) -> PyResult<Option<&'static Function>> {
    static TABLE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let py = ufunc.py();
    let table = TABLE.get_or_try_init(py, || {
        let numpy = py.import(intern!(py, "numpy"))?;
        let table = PyDict::new(py);
        for (k, (name, _)) in FUNCTIONS.iter().enumerate() {
            table.set_item(numpy.getattr(*name)?, k)?;
        }
        PyResult::Ok(table.unbind())
    })?;
    let Some(k) = table.bind(py).get_item(ufunc)? else {
        return Ok(None);
    };
    Ok(FUNCTIONS
        .get(k.extract::<usize>()?)
        .map(|(_, function)| function))
}

/// What an input of a ufunc is; nothing if it belongs to somebody else.
fn input(ob: &Bound<'_, PyAny>) -> PyResult<Option<Operand>> {
    match operand(ob)? {
        None if Sequence::of(ob).is_some() => Ok(Some(tensor_of(ob, None)?.into())),
        operand => Ok(operand),
    }
}

#[pymethods]
impl PyTensor {
    /// What NumPy's universal functions do with tensors.
    ///
    /// Those that uopc has (``np.exp(t)``, ``np.add(a, t)``, ``a * t`` with an array ``a``,
    /// comparisons and so on) give a lazy tensor of the dtype that uopc's own function gives, and
    /// gradients flow through it; arrays among the inputs are copied. ``out=`` may be an array, into
    /// which NumPy writes the result as ``casting`` allows, so ``a += t`` works.
    ///
    /// Raises TypeError if uopc has no such function, or the call is a reduction or has arguments
    /// that only arrays can follow; the text says what to do instead.
    ///
    /// >>> w = Tensor([1.0, 4.0], requires_grad=True)
    /// >>> loss = np.sqrt(w).sum().backward([w])
    /// >>> w.grad
    /// Tensor([0.50, 0.25], shape=(2,), dtype=f32)
    #[pyo3(signature = (ufunc, method, *inputs, **kwargs))]
    fn __array_ufunc__<'py>(
        &self,
        py: Python<'py>,
        ufunc: &Bound<'py, PyAny>,
        method: &str,
        inputs: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let name: String = ufunc.getattr(intern!(py, "__name__"))?.extract()?;
        if method != "__call__" {
            return Err(type_error(py, "numpy", refusal(&name, method)));
        }
        let out = outputs(py, &name, kwargs)?;
        let Some(function) = known(ufunc)? else {
            let message = format!(
                "np.{name} has no counterpart for tensors; np.{name}(t.numpy()) computes with \
                 arrays, without gradients"
            );
            return Err(type_error(py, "numpy", message));
        };
        let mut operands = Vec::with_capacity(inputs.len());
        for ob in inputs.iter() {
            match input(&ob)? {
                Some(operand) => operands.push(operand),
                None => return Ok(py.NotImplemented()),
            }
        }
        let results = match (function, &operands[..]) {
            (One(f), [Operand::Tensor(x)]) => vec![build(py, || f(x))?],
            (Two(f), [a, b]) => vec![build(py, || f(a, b))?],
            (Pair(f), [a, b]) => build(py, || f(a, b))?.into(),
            _ => return Ok(py.NotImplemented()),
        };
        let mut objects = Vec::with_capacity(results.len());
        for (k, result) in results.into_iter().enumerate() {
            let result = PyTensor::from(result);
            objects.push(match out.get(k).filter(|out| !out.is_none()) {
                Some(out) => {
                    fill(out, &result, kwargs)?;
                    out.clone()
                }
                None => Bound::new(py, result)?.into_any(),
            });
        }
        match objects.len() {
            1 => Ok(objects.remove(0).unbind()),
            _ => Ok(PyTuple::new(py, objects)?.into_any().unbind()),
        }
    }
}

/// Why a method of a ufunc other than its call does not take tensors.
fn refusal(name: &str, method: &str) -> String {
    let own = match (name, method) {
        ("add", "reduce") => Some("t.sum(axis)"),
        ("multiply", "reduce") => Some("t.prod(axis)"),
        ("maximum", "reduce") => Some("t.max(axis)"),
        ("minimum", "reduce") => Some("t.min(axis)"),
        ("logical_and", "reduce") => Some("t.all(axis)"),
        ("logical_or", "reduce") => Some("t.any(axis)"),
        _ => None,
    };
    match own {
        Some(own) => format!("np.{name}.{method} does not take tensors; write {own}"),
        None => format!(
            "np.{name}.{method} does not take tensors; np.{name}.{method}(t.numpy(), ...) computes \
             with arrays, without gradients"
        ),
    }
}

/// The arrays that a call wants filled, one for each result; an error for other wishes.
fn outputs<'py>(
    py: Python<'py>,
    name: &str,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut out = Vec::new();
    let Some(kwargs) = kwargs else {
        return Ok(out);
    };
    for (key, value) in kwargs {
        let key: String = key.extract()?;
        let refused = match key.as_str() {
            "out" => {
                out = value.extract()?;
                let other =
                    |ob: &&Bound<PyAny>| !ob.is_none() && ob.cast::<PyUntypedArray>().is_err();
                match out.iter().find(other) {
                    Some(ob) if ob.cast::<PyTensor>().is_ok() => {
                        Some("out= is an array; a tensor takes a value by t[...] = value")
                    }
                    Some(_) => Some("out= is a NumPy array"),
                    None => None,
                }
            }
            // How an array is laid out, and how `out` is filled.
            "casting" | "order" | "subok" => None,
            "where" if value.is(py.get_type::<pyo3::types::PyBool>().call1((true,))?) => None,
            "where" => Some("where= does not take tensors; use condition.where(a, b)"),
            "dtype" | "sig" | "signature" => {
                Some("the dtype of a result follows from the inputs; cast it with .cast(dtype)")
            }
            _ => Some("the argument is for arrays; use the method of the tensor, or t.numpy()"),
        };
        if let Some(why) = refused {
            let message = format!("np.{name} with tensors: {key}: {why}");
            return Err(type_error(py, "numpy", message));
        }
    }
    Ok(out)
}

/// Writes a result into an array by NumPy's rules of casting and broadcasting.
fn fill(
    out: &Bound<'_, PyAny>,
    result: &PyTensor,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let py = out.py();
    let options = PyDict::new(py);
    if let Some(casting) = kwargs.map(|k| k.get_item("casting")).transpose()?.flatten() {
        options.set_item("casting", casting)?;
    }
    let numpy = py.import(intern!(py, "numpy"))?;
    numpy.call_method("copyto", (out, result.array(py)?), Some(&options))?;
    Ok(())
}
