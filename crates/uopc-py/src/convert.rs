//! Arguments: how shapes, axes and operands are written in Python.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use uopc::Tensor;
use uopc::tensor::{Axes, Dims, Operand, PerAxis};

use crate::tensor::{PyTensor, is_array, located, tensor_of};

/// A size, position or axis: anything with `__index__`, but no bool.
pub struct Whole(pub i64);

impl<'py> FromPyObject<'_, 'py> for Whole {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Whole> {
        whole(&ob).map(Whole).map_err(|wrong| wrong.error(&ob))
    }
}

/// Why an object is no size. The text is made where it is an error and not where it decides what
/// else the object may be.
enum Wrong {
    Bool,
    Far,
    Kind,
}

impl Wrong {
    fn error(self, ob: &Bound<'_, PyAny>) -> PyErr {
        let py = ob.py();
        match self {
            Wrong::Bool => {
                located::<PyTypeError>(py, "an integer is needed, not a bool; write 0 or 1")
            }
            Wrong::Far => located::<PyValueError>(py, beyond(ob)),
            Wrong::Kind => {
                let message = format!("an integer is needed, not {}", shown(ob));
                located::<PyTypeError>(py, message)
            }
        }
    }
}

fn whole(ob: &Bound<'_, PyAny>) -> Result<i64, Wrong> {
    if ob.is_instance_of::<PyBool>() {
        return Err(Wrong::Bool);
    }
    ob.extract().map_err(
        |e: PyErr| match e.is_instance_of::<PyOverflowError>(ob.py()) {
            true => Wrong::Far,
            false => Wrong::Kind,
        },
    )
}

/// What is said of an integer that does not fit 64 bits.
pub fn beyond(ob: &Bound<'_, PyAny>) -> String {
    format!("{} is beyond any size or position", shown(ob))
}

/// A number for which a float is wanted.
pub struct Real(pub f64);

impl<'py> FromPyObject<'_, 'py> for Real {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Real> {
        let refused = |_| {
            let message = format!("a number is needed, not {}", shown(&ob));
            located::<PyTypeError>(ob.py(), message)
        };
        ob.extract().map(Real).map_err(refused)
    }
}

/// A sequence of integers, or one.
pub struct Wholes(pub Vec<i64>);

impl<'py> FromPyObject<'_, 'py> for Wholes {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Wholes> {
        if ob.is_instance_of::<PyTuple>() || ob.is_instance_of::<PyList>() {
            return Wholes::of_items(&ob);
        }
        match whole(&ob) {
            Ok(number) => Ok(Wholes(vec![number])),
            // Ranges, arrays of several numbers and the like; text is a slip.
            Err(wrong) if ob.is_instance_of::<PyString>() => Err(wrong.error(&ob)),
            Err(wrong) => match ob.len() {
                Ok(_) => Wholes::of_items(&ob),
                Err(_) => Err(wrong.error(&ob)),
            },
        }
    }
}

impl Wholes {
    fn of_items(ob: &Bound<'_, PyAny>) -> PyResult<Wholes> {
        let items = ob.try_iter()?.map(|item| Ok(item?.extract::<Whole>()?.0));
        Ok(Wholes(items.collect::<PyResult<_>>()?))
    }

    /// `f(2, 3)` and `f((2, 3))` alike.
    pub fn of_args(args: &Bound<'_, PyTuple>) -> PyResult<Wholes> {
        match args.len() {
            1 => args.get_item(0)?.extract(),
            _ => args.extract(),
        }
    }
}

impl Dims for Wholes {
    fn dims(&self) -> Vec<i64> {
        self.0.clone()
    }
}

/// One axis, several, or `None` for all of them.
#[derive(Default)]
pub struct AnyAxes(pub Option<Vec<i64>>);

impl<'py> FromPyObject<'_, 'py> for AnyAxes {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<AnyAxes> {
        if ob.is_none() {
            return Ok(AnyAxes(None));
        }
        Ok(AnyAxes(Some(ob.extract::<Wholes>()?.0)))
    }
}

impl Axes for AnyAxes {
    fn axes(&self) -> Option<Vec<i64>> {
        self.0.clone()
    }
}

/// One pair of numbers for each axis, `None` where an axis is left as it is: how much to pad, or
/// from where to where to keep.
pub struct Pairs(pub Vec<Option<(usize, usize)>>);

impl<'py> FromPyObject<'_, 'py> for Pairs {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Pairs> {
        let refuse = || {
            let message = "one pair of numbers for each axis is needed, such as ((0, 0), (1, 2))";
            located::<PyTypeError>(ob.py(), format!("{message}, not {}", shown(&ob)))
        };
        let number = |item: Bound<'py, PyAny>| {
            let number = item.extract::<Whole>()?.0;
            usize::try_from(number).map_err(|_| {
                let message = format!("{number} is negative; the numbers of a pair are not");
                located::<PyValueError>(ob.py(), message)
            })
        };
        let mut pairs = Vec::new();
        for item in ob.try_iter().map_err(|_| refuse())? {
            let item = item?;
            if item.is_none() {
                pairs.push(None);
                continue;
            }
            let mut items = item.try_iter().map_err(|_| refuse())?;
            let (Some(first), Some(second), None) = (items.next(), items.next(), items.next())
            else {
                return Err(refuse());
            };
            pairs.push(Some((number(first?)?, number(second?)?)));
        }
        Ok(Pairs(pairs))
    }
}

/// An object as text for a message, if it has one.
pub fn shown(ob: &Bound<'_, PyAny>) -> String {
    ob.repr().map_or("this".into(), |text| text.to_string())
}

/// A tensor, or what one is made of: numbers, arrays, lists of numbers.
pub struct AnyTensor(pub Tensor);

impl<'py> FromPyObject<'_, 'py> for AnyTensor {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<AnyTensor> {
        match ob.cast::<PyTensor>() {
            Ok(tensor) => Ok(AnyTensor(tensor.get().tensor.clone())),
            Err(_) => Ok(AnyTensor(tensor_of(&ob, None)?)),
        }
    }
}

/// Tensors in a list, a tuple or any other iterable.
pub struct Tensors(pub Vec<Tensor>);

impl<'py> FromPyObject<'_, 'py> for Tensors {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Tensors> {
        let items = ob.try_iter().map_err(|_| {
            let message = format!("a list of tensors is needed, not {}", shown(&ob));
            located::<PyTypeError>(ob.py(), message)
        })?;
        let tensors = items.map(|item| Ok(item?.extract::<AnyTensor>()?.0));
        Ok(Tensors(tensors.collect::<PyResult<_>>()?))
    }
}

/// Of two names of one argument the value of the one that is used.
pub fn either<T>(names: [&str; 2], values: [Option<T>; 2]) -> PyResult<Option<T>> {
    match values {
        [Some(_), Some(_)] => Err(Python::attach(|py| {
            let [a, b] = names;
            let message = format!("{a} and {b} are two names of one argument; give one of them");
            located::<PyTypeError>(py, message)
        })),
        [value, None] | [None, value] => Ok(value),
    }
}

/// What stands beside a tensor: a tensor, a number, or an array, which is copied.
///
/// NumPy's scalars count as Python's numbers, so that `t * np.sqrt(2)` keeps the dtype of `t`.
pub struct AnyOperand(pub Operand);

impl<'py> FromPyObject<'_, 'py> for AnyOperand {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<AnyOperand> {
        match operand(&ob)? {
            Some(operand) => Ok(AnyOperand(operand)),
            None => {
                let class = ob.get_type().name()?;
                let message = format!("a tensor, a number or an array is needed, not {class}");
                Err(located::<PyTypeError>(ob.py(), message))
            }
        }
    }
}

/// What stands beside a tensor in an operator. What is no operand fails to be one, and Python asks
/// the other side; an operand that can't be converted is an error for the operator to report.
pub struct Other(pub PyResult<Operand>);

impl<'py> FromPyObject<'_, 'py> for Other {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Other> {
        match operand(&ob) {
            Ok(Some(operand)) => Ok(Other(Ok(operand))),
            Ok(None) => Err(PyTypeError::new_err("no operand")),
            Err(e) => Ok(Other(Err(e))),
        }
    }
}

/// The operand that an object is, if it is one.
///
/// # Errors
/// When it is one that can't be converted, such as an integer that no dtype holds.
pub fn operand(ob: &Bound<'_, PyAny>) -> PyResult<Option<Operand>> {
    if let Ok(tensor) = ob.cast::<PyTensor>() {
        return Ok(Some(tensor.get().tensor.clone().into()));
    }
    if ob.is_instance_of::<PyBool>() {
        return Ok(Some(Operand::Bool(ob.extract()?)));
    }
    if ob.is_instance_of::<PyFloat>() {
        return Ok(Some(Operand::Float(ob.extract()?)));
    }
    if ob.is_instance_of::<PyInt>() {
        return integer(ob).map(Some);
    }
    if is_array(ob)? {
        return Ok(Some(PyTensor::of_array(ob)?.tensor.into()));
    }
    // NumPy's scalars give Python's numbers.
    if is_number(ob)? {
        let number = ob.call_method0(intern!(ob.py(), "item"))?;
        if number.is_instance_of::<PyBool>() {
            return Ok(Some(Operand::Bool(number.extract()?)));
        }
        if number.is_instance_of::<PyInt>() {
            return integer(&number).map(Some);
        }
        // Also what no Python number stands for, such as bfloat16.
        if let Ok(number) = number.extract::<f64>() {
            return Ok(Some(Operand::Float(number)));
        }
    }
    Ok(None)
}

/// Whether an object is a scalar of NumPy, or of ml_dtypes, that may be a number.
fn is_number(ob: &Bound<'_, PyAny>) -> PyResult<bool> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static SPAN: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = ob.py();
    // A span of time would pass for the number of its units.
    Ok(ob.is_instance(CLASS.import(py, "numpy", "generic")?)?
        && !ob.is_instance(SPAN.import(py, "numpy", "timedelta64")?)?)
}

fn integer(ob: &Bound<'_, PyAny>) -> PyResult<Operand> {
    let number = ob.extract::<i128>().map_err(|_| {
        let message = format!("{} does not fit the integers that tensors hold", shown(ob));
        located::<PyOverflowError>(ob.py(), message)
    })?;
    Ok(Operand::Int(number))
}

/// A number for each axis along which a window slides: one for all, or one for each.
pub struct AnyPerAxis(pub PerAxis);

impl AnyPerAxis {
    /// The same for all.
    pub fn all(number: i64) -> AnyPerAxis {
        AnyPerAxis(number.into())
    }
}

impl<'py> FromPyObject<'_, 'py> for AnyPerAxis {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<AnyPerAxis> {
        match whole(&ob) {
            Ok(number) => Ok(AnyPerAxis::all(number)),
            Err(_) => Ok(AnyPerAxis(ob.extract::<Wholes>()?.0.into())),
        }
    }
}
