//! The class `Tensor`: a name of one of the library's tensors. Its methods stand in the files of
//! this folder, by kind.

mod arrange;
mod conv;
mod create;
mod draw;
mod elementwise;
mod gather;
mod grad;
mod host;
mod index;
mod layers;
mod matrices;
mod movement;
mod norm;
mod operators;
mod products;
mod reduce;
mod sort;
mod special;

use std::fmt::Display;

use parking_lot::Mutex;
use pyo3::PyTypeInfo;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyTuple, PyWeakrefReference};
use uopc::tensor::Site;
use uopc::{DType, Error, Result, Tensor};

use crate::convert::{AnyOperand, Tensors, shown};
use crate::dtype::{AnyDType, PyDType};
use crate::error::exception;
use crate::run::{build, compute};
use crate::site;

pub use create::Seed;
pub use host::{is_array, tensor_of};

/// A multi-dimensional array that is computed when its values are asked for.
///
/// Operations build a graph and return at once. Values are computed, all that is needed together
/// as few fused kernels, when they are read: by ``numpy()``, ``item()``, ``print``, or by
/// ``realize()``.
///
/// ``data`` is a number, a (nested) list of numbers, a NumPy array or another tensor, and is
/// copied. Python's floats become f32, its integers i32 and its bools bool, unless ``dtype`` says
/// otherwise; arrays keep theirs. With ``requires_grad`` the tensor is a parameter: ``backward``
/// leaves a gradient in its ``grad``.
///
/// Shapes broadcast as in NumPy. A number beside a tensor takes the tensor's dtype, except that a
/// float makes an integer tensor f32.
///
/// Raises TypeError for what holds no numbers and for dtypes without gradients, ValueError for
/// ragged lists and for integers that do not fit.
///
/// >>> w = Tensor([1.0, 2.0], requires_grad=True)
/// >>> loss = (w * w).sum()
/// >>> loss.backward()
/// Tensor(5., shape=(), dtype=f32, requires_grad=True)
/// >>> w.grad
/// Tensor([2., 4.], shape=(2,), dtype=f32, requires_grad=True)
#[pyclass(name = "Tensor", module = "uopc.tensor", frozen, weakref)]
pub struct PyTensor {
    pub tensor: Tensor,
    /// The object that stands for its gradient, as long as somebody holds one, so that
    /// `p.grad is p.grad`.
    grad: Mutex<Option<Py<PyWeakrefReference>>>,
}

impl From<Tensor> for PyTensor {
    fn from(tensor: Tensor) -> PyTensor {
        PyTensor {
            tensor,
            grad: Mutex::new(None),
        }
    }
}

impl PyTensor {
    /// Wraps what the library builds.
    pub fn build(py: Python<'_>, f: impl FnOnce() -> Result<Tensor>) -> PyResult<PyTensor> {
        build(py, f).map(PyTensor::from)
    }

    /// Wraps what the library computes.
    pub fn compute(
        py: Python<'_>,
        f: impl FnOnce() -> Result<Tensor> + Send,
    ) -> PyResult<PyTensor> {
        compute(py, f).map(PyTensor::from)
    }

    /// The single element as an object of Python, computed if need be; `op` is named by the error
    /// if there are others.
    pub fn number<'py>(&self, py: Python<'py>, op: &'static str) -> PyResult<Bound<'py, PyAny>> {
        let tensor = &self.tensor;
        if tensor.numel() != 1 {
            let (shape, n) = (tensor.shape(), tensor.numel());
            let message = format!(
                "shape {shape} has {n} elements, not one; take one by its position, or use tolist"
            );
            return Err(shape_error(py, op, message));
        }
        let value = compute(py, || tensor.scalar_value())?;
        Ok(match tensor.dtype() {
            DType::Bool => PyBool::new(py, value.as_bool()).to_owned().into_any(),
            dtype if dtype.is_float() => PyFloat::new(py, value.as_f64()).into_any(),
            _ => value.as_i128().into_pyobject(py)?.into_any(),
        })
    }

    /// Sets the tensor to another value, for all names that it has.
    pub fn set(&self, py: Python<'_>, set: impl FnOnce() -> Result<()> + Send) -> PyResult<()> {
        // Only a parameter's new value is computed at once.
        match self.tensor.is_parameter() {
            true => compute(py, set),
            false => build(py, set),
        }
    }
}

/// Tensors as a tuple.
pub fn tuple_of<'py>(py: Python<'py>, tensors: Vec<Tensor>) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, tensors.into_iter().map(PyTensor::from))
}

/// An exception that names the user's line, for texts that do not come from the library.
pub fn located<E: PyTypeInfo>(py: Python<'_>, message: impl Display) -> PyErr {
    let _site = site::enter(py);
    let at = Site::current().map_or(String::new(), |site| format!(" (at {site})"));
    PyErr::new::<E, _>(format!("{message}{at}"))
}

/// A ValueError that names the user's line.
pub fn shape_error(py: Python<'_>, op: &'static str, message: String) -> PyErr {
    let _site = site::enter(py);
    let site = Site::current();
    exception(Error::Shape { op, message, site })
}

/// A TypeError that names the user's line.
pub fn type_error(py: Python<'_>, op: &'static str, message: String) -> PyErr {
    let _site = site::enter(py);
    let site = Site::current();
    exception(Error::DType { op, message, site })
}

#[pymethods]
impl PyTensor {
    #[new]
    #[pyo3(signature = (data, *, dtype=None, requires_grad=false))]
    fn new(
        data: &Bound<'_, PyAny>,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let tensor = host::tensor_of(data, dtype.map(|d| d.0))?;
        if requires_grad {
            return PyTensor::compute(data.py(), || tensor.requires_grad());
        }
        Ok(tensor.into())
    }

    /// The extents of the axes, ``()`` for a scalar.
    ///
    /// >>> Tensor.zeros(2, 3).shape
    /// (2, 3)
    #[getter]
    pub(crate) fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.shape().iter())
    }

    /// The type of the elements.
    ///
    /// >>> Tensor([1, 2]).dtype
    /// uopc.i32
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.tensor.dtype())
    }

    /// The number of axes.
    ///
    /// >>> Tensor.zeros(2, 3).ndim
    /// 2
    #[getter]
    fn ndim(&self) -> usize {
        self.tensor.rank()
    }

    /// The number of elements, as NumPy's attribute of that name. PyTorch's ``size()`` is ``shape``.
    ///
    /// >>> Tensor.zeros(2, 3).size
    /// 6
    #[getter]
    fn size(&self) -> usize {
        self.tensor.numel()
    }

    /// Bytes an element takes.
    ///
    /// >>> Tensor([1.0]).itemsize
    /// 4
    #[getter]
    fn itemsize(&self) -> usize {
        self.tensor.dtype().size()
    }

    /// Bytes all elements take.
    ///
    /// >>> Tensor.zeros(2, 3).nbytes
    /// 24
    #[getter]
    fn nbytes(&self) -> usize {
        self.tensor.numel().saturating_mul(self.itemsize())
    }

    /// The number of elements.
    ///
    /// >>> Tensor.zeros(2, 3).numel()
    /// 6
    fn numel(&self) -> usize {
        self.tensor.numel()
    }

    /// The number of axes.
    ///
    /// >>> Tensor.zeros(2, 3).dim()
    /// 2
    fn dim(&self) -> usize {
        self.tensor.rank()
    }

    /// Computes the values, if that has not been done, and returns the same tensor.
    ///
    /// Other threads run meanwhile, and Ctrl-C interrupts.
    ///
    /// >>> (Tensor([1.0, 2.0]) + 1).realize()
    /// Tensor([2., 3.], shape=(2,), dtype=f32)
    fn realize<'py>(slf: Bound<'py, Self>, py: Python<'py>) -> PyResult<Bound<'py, Self>> {
        let tensor = &slf.get().tensor;
        compute(py, || tensor.realize().map(|_| ()))?;
        Ok(slf)
    }

    /// Computes several tensors at once; what they share is computed once.
    ///
    /// They are given one by one or as one list.
    ///
    /// >>> a = Tensor([1.0, 2.0]).exp()
    /// >>> Tensor.realize_all(a.sum(), a.max())
    #[staticmethod]
    #[pyo3(signature = (*tensors))]
    fn realize_all(py: Python<'_>, tensors: &Bound<'_, PyTuple>) -> PyResult<()> {
        let tensors = match tensors.len() {
            1 if !tensors.get_item(0)?.is_instance_of::<PyTensor>() => tensors.get_item(0)?,
            _ => tensors.clone().into_any(),
        };
        let tensors = tensors.extract::<Tensors>()?.0;
        compute(py, || Tensor::realize_all(&tensors))
    }

    /// Gives the tensor a new value of its shape and dtype, which is computed now, and returns it.
    ///
    /// The history of the value ends here: no gradient flows through an assignment. Losses that
    /// were computed from the old value have no gradients any more.
    ///
    /// Raises ValueError if the shape and TypeError if the dtype differs.
    ///
    /// >>> t = Tensor([1.0, 2.0])
    /// >>> t.assign(t * 10)
    /// Tensor([10., 20.], shape=(2,), dtype=f32)
    fn assign<'py>(
        slf: Bound<'py, Self>,
        py: Python<'py>,
        value: AnyOperand,
    ) -> PyResult<Bound<'py, Self>> {
        let tensor = &slf.get().tensor;
        compute(py, || tensor.assign(value.0))?;
        Ok(slf)
    }

    /// Assigns to several tensors: ``(tensor, value)`` pairs, all values computed from the old ones.
    ///
    /// The tensors in ``also``, such as the loss, are computed in the same run.
    ///
    /// Raises ValueError if a shape and TypeError if a dtype differs; then nothing is assigned.
    ///
    /// >>> a, b = Tensor([1.0]), Tensor([2.0])
    /// >>> Tensor.assign_all([(a, b), (b, a)])
    /// >>> a, b
    /// (Tensor([2.], shape=(1,), dtype=f32), Tensor([1.], shape=(1,), dtype=f32))
    #[staticmethod]
    #[pyo3(signature = (updates, also=None))]
    fn assign_all(
        py: Python<'_>,
        updates: &Bound<'_, PyAny>,
        also: Option<Tensors>,
    ) -> PyResult<()> {
        let mut pairs: Vec<(Tensor, Tensor)> = Vec::new();
        let refused = |ob: &Bound<'_, PyAny>| {
            let message = format!(
                "pairs (tensor, value) of tensors are needed, not {}",
                shown(ob)
            );
            type_error(py, "assign_all", message)
        };
        for item in updates.try_iter().map_err(|_| refused(updates))? {
            let item = item?;
            let (target, value): (Bound<'_, PyTensor>, Bound<'_, PyTensor>) =
                item.extract().map_err(|_| refused(&item))?;
            pairs.push((target.get().tensor.clone(), value.get().tensor.clone()));
        }
        let pairs: Vec<(&Tensor, &Tensor)> = pairs.iter().map(|(t, v)| (t, v)).collect();
        let also = also.map_or(Vec::new(), |tensors| tensors.0);
        compute(py, || Tensor::assign_all(&pairs, &also))
    }

    /// The values, shape and dtype. Computes them; if that fails, the reason is shown.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let text = compute(py, || Ok(self.tensor.to_string()))?;
        // "tensor(" is what the library writes, and a bool is Python's.
        let mut text = text.replacen("tensor", "Tensor", 1);
        if self.tensor.dtype() == DType::Bool {
            text = text.replace("true", "True").replace("false", "False");
        }
        if self.requires_grad() && text.pop() == Some(')') {
            text.push_str(", requires_grad=True)");
        }
        Ok(text)
    }

    /// A scalar is formatted as its number, as in ``f"{loss:.3f}"``.
    fn __format__<'py>(
        slf: &Bound<'py, Self>,
        py: Python<'py>,
        spec: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        let is_plain = spec.is_empty()?;
        if this.tensor.rank() == 0 || this.tensor.numel() == 1 && !is_plain {
            let number = this.number(py, "format")?;
            return number.call_method1(intern!(py, "__format__"), (spec,));
        }
        if is_plain {
            return Ok(slf.str()?.into_any());
        }
        let shape = this.tensor.shape();
        let message = format!("{spec:?} formats a single number, and shape {shape} holds several");
        Err(type_error(py, "format", message))
    }

    /// Tensors are told apart by identity, as dictionary keys and in sets.
    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        // Objects are aligned, so the lowest bits say nothing.
        slf.as_ptr() as usize >> 4
    }

    /// Whether the single element is not 0.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        compute(py, || self.tensor.truth())
    }

    /// The single element as an integer, rounded towards zero.
    fn __int__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let number = self.number(py, "int")?;
        py.get_type::<PyInt>().call1((number,))
    }

    /// The single element as a float.
    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        self.number(py, "float")?.extract()
    }

    /// The single element of an integer tensor, where Python asks for an integer.
    fn __index__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if !self.tensor.dtype().is_int() {
            let dtype = self.tensor.dtype();
            let message =
                format!("an integer is needed, not {dtype}; use int() or cast the tensor");
            return Err(type_error(py, "index", message));
        }
        self.number(py, "index")
    }
}

/// Other names of methods, where NumPy, PyTorch or tinygrad have one and agree on what it means.
const ALIASES: &[(&str, &str)] = &[
    ("subtract", "sub"),
    ("multiply", "mul"),
    ("divide", "div"),
    ("true_divide", "div"),
    ("truediv", "div"),
    ("floor_divide", "floordiv"),
    ("remainder", "mod"),
    ("floormod", "mod"),
    ("negative", "neg"),
    ("absolute", "abs"),
    ("swish", "silu"),
    ("fix", "trunc"),
    ("arcsin", "asin"),
    ("arccos", "acos"),
    ("arctan", "atan"),
    ("arctan2", "atan2"),
    ("arcsinh", "asinh"),
    ("arccosh", "acosh"),
    ("arctanh", "atanh"),
    ("clip", "clamp"),
    ("power", "pow"),
    ("not_equal", "ne"),
    ("less", "lt"),
    ("less_equal", "le"),
    ("greater", "gt"),
    ("greater_equal", "ge"),
    ("bitwise_invert", "bitwise_not"),
    ("astype", "cast"),
    ("to", "cast"),
    ("view", "reshape"),
    ("ravel", "flatten"),
    ("swapdims", "swapaxes"),
    ("swap_axes", "swapaxes"),
    ("broadcast_to", "expand"),
    ("amax", "max"),
    ("amin", "min"),
    ("concatenate", "cat"),
    ("concat", "cat"),
    ("row_stack", "vstack"),
    ("movedim", "moveaxis"),
    ("expand_dims", "unsqueeze"),
    ("broadcast_arrays", "broadcast_tensors"),
    ("array_split", "tensor_split"),
    ("take_along_dim", "take_along_axis"),
    ("argwhere", "nonzero"),
];

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTensor>()?;
    let class = m.py().get_type::<PyTensor>();
    for (alias, name) in ALIASES {
        class.setattr(*alias, class.getattr(*name)?)?;
    }
    // Read by layers that behave differently in training, such as dropout.
    class.setattr("training", false)?;
    grad::register(m)
}
