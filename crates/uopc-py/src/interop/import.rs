//! What the constructor takes: numbers, lists, arrays, tensors of any library.

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyMemoryView, PySequence, PyString,
};
use uopc::ir::UOp;
use uopc::tensor::Shape;
use uopc::{DType, Tensor};

use super::lists::{self, Item};
use super::{arrays, copy_of, dlpack, type_error};
use crate::run::build;
use crate::tensor::{PyTensor, is_array};
use crate::uop::PyUOp;

/// The tensor of whatever the constructor is given: always a copy. Without `dtype`, Python's
/// floats are f32, its integers i32 and its bools bool; arrays keep theirs.
///
/// # Errors
/// When there is no tensor of it.
pub fn tensor_of(data: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Tensor> {
    let py = data.py();
    if let Some(list) = lists::Sequence::of(data) {
        return lists::tensor_of(list, dtype);
    }
    if let Ok(node) = data.cast::<PyUOp>() {
        let tensor = Tensor::from_uop(node.get().0.clone());
        return match dtype {
            Some(dtype) => build(py, || tensor.cast(dtype)),
            None => Ok(tensor),
        };
    }
    let tensor = match read(data)? {
        Entry::Item(Item::Tensor(tensor)) => tensor,
        Entry::Item(Item::Array(array)) => arrays::copied(array.as_any())?,
        Entry::Item(number) => return constant(py, &number, dtype),
        Entry::Sequence(list) => return lists::tensor_of(list, dtype),
    };
    match dtype {
        Some(dtype) => build(py, || tensor.cast(dtype)),
        None => Ok(tensor),
    }
}

/// A number in a graph of its own.
fn constant(py: Python<'_>, number: &Item<'_>, dtype: Option<DType>) -> PyResult<Tensor> {
    let dtype = dtype.unwrap_or_else(|| lists::common_dtype([number]));
    let value = lists::scalar(py, number, dtype, &[])?;
    build(py, || {
        Ok(Tensor::from_uop(UOp::full(value, &Shape::scalar())?))
    })
}

/// What an object is that is no list.
pub enum Entry<'py> {
    /// A number, an array or a tensor.
    Item(Item<'py>),
    /// A sequence after all.
    Sequence(lists::Sequence<'py>),
}

/// Finds out what an object is that is no list. Arrays of other libraries are copied.
///
/// # Errors
/// When it is nothing that a tensor can be made of.
pub fn read<'py>(ob: &Bound<'py, PyAny>) -> PyResult<Entry<'py>> {
    let py = ob.py();
    if let Ok(tensor) = ob.cast::<PyTensor>() {
        let copy = build(py, || copy_of(&tensor.get().tensor))?;
        return Ok(Entry::Item(Item::Tensor(copy)));
    }
    // NumPy's float64 is a Python float, too, but says its precision.
    if ob.is_exact_instance_of::<PyFloat>() {
        return Ok(Entry::Item(Item::Float(ob.extract()?)));
    }
    if ob.is_instance_of::<PyBool>() {
        return Ok(Entry::Item(Item::Bool(ob.extract()?)));
    }
    if ob.is_instance_of::<PyInt>() {
        return Ok(Entry::Item(lists::integer(ob)?));
    }
    if is_array(ob)? {
        return array(ob);
    }
    if ob.is_instance_of::<PyString>() || ob.is_instance_of::<PyBytes>() {
        let message = "text and bytes hold no numbers as they are; np.frombuffer(data, dtype) says \
                       what bytes mean, float(text) reads a number";
        return Err(type_error(py, "Tensor", message.into()));
    }
    if ob.hasattr(intern!(py, "__dlpack__"))? {
        match dlpack::import(ob, Some(true)) {
            Ok(tensor) => return Ok(Entry::Item(Item::Tensor(tensor))),
            // Some export themselves in one way only.
            Err(error) if error.is_instance_of::<PyBufferError>(py) && has_array(ob)? => {
                return through_numpy(ob).map_err(|_| error);
            }
            Err(error) => return Err(error),
        }
    }
    if has_array(ob)? || ob.is_instance_of::<PyByteArray>() || PyMemoryView::from(ob).is_ok() {
        return through_numpy(ob);
    }
    if ob.is_instance_of::<PyFloat>() {
        return Ok(Entry::Item(Item::Float(ob.extract()?)));
    }
    if let Ok(sequence) = ob.cast::<PySequence>() {
        return Ok(Entry::Sequence(lists::Sequence::List(sequence.to_list()?)));
    }
    let class = ob.get_type().name()?;
    let message = format!(
        "no tensor can be made of an object of type {class}; numbers, lists of numbers, arrays and \
         what exports one (DLPack, __array__, buffers) will do, of an iterator take list(x)"
    );
    Err(type_error(py, "Tensor", message))
}

fn has_array(ob: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = ob.py();
    Ok(ob.hasattr(intern!(py, "__array__"))?
        || ob.hasattr(intern!(py, "__array_interface__"))?
        || ob.hasattr(intern!(py, "__array_struct__"))?)
}

fn through_numpy<'py>(ob: &Bound<'py, PyAny>) -> PyResult<Entry<'py>> {
    let numpy = ob.py().import(intern!(ob.py(), "numpy"))?;
    array(&numpy.call_method1(intern!(ob.py(), "asarray"), (ob,))?)
}

fn array<'py>(ob: &Bound<'py, PyAny>) -> PyResult<Entry<'py>> {
    Ok(Entry::Item(Item::Array(arrays::checked("Tensor", ob)?)))
}
