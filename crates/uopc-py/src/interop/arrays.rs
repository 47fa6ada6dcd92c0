//! NumPy's arrays: which of their dtypes are ours, tensors over them and tensors with copies.

use numpy::npyffi::NPY_TYPES;
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use uopc::{DType, Tensor};

use super::memory::{Plain, builtin};
use super::{shape_error, type_error};
use crate::run::build;

/// The dtype of NumPy's descriptor, in whatever byte order.
pub fn dtype_of(descr: &Bound<'_, PyArrayDescr>) -> Option<DType> {
    let size = descr.itemsize();
    if descr.num() >= NPY_TYPES::NPY_USERDEF as i32 {
        // Of the types that other packages add to NumPy one is ours.
        let name = descr.getattr(intern!(descr.py(), "name")).ok()?;
        let is_bf16 = size == 2 && name.eq("bfloat16").is_ok_and(|same| same);
        return is_bf16.then_some(DType::BF16);
    }
    let dtype = match (descr.kind(), size) {
        (b'b', 1) => DType::Bool,
        (b'i', 1) => DType::I8,
        (b'i', 2) => DType::I16,
        (b'i', 4) => DType::I32,
        (b'i', 8) => DType::I64,
        (b'u', 1) => DType::U8,
        (b'u', 2) => DType::U16,
        (b'u', 4) => DType::U32,
        (b'u', 8) => DType::U64,
        (b'f', 2) => DType::F16,
        (b'f', 4) => DType::F32,
        (b'f', 8) => DType::F64,
        _ => return None,
    };
    Some(dtype)
}

/// NumPy's descriptor of a dtype.
///
/// # Errors
/// When the dtype is bf16 and ml_dtypes is not installed.
pub fn descr_of(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyArrayDescr>> {
    let number = match dtype {
        DType::Bool => NPY_TYPES::NPY_BOOL,
        DType::I8 => NPY_TYPES::NPY_BYTE,
        DType::I16 => NPY_TYPES::NPY_SHORT,
        DType::I32 => NPY_TYPES::NPY_INT,
        DType::I64 if size_of::<std::ffi::c_long>() == 8 => NPY_TYPES::NPY_LONG,
        DType::I64 => NPY_TYPES::NPY_LONGLONG,
        DType::U8 => NPY_TYPES::NPY_UBYTE,
        DType::U16 => NPY_TYPES::NPY_USHORT,
        DType::U32 => NPY_TYPES::NPY_UINT,
        DType::U64 if size_of::<std::ffi::c_long>() == 8 => NPY_TYPES::NPY_ULONG,
        DType::U64 => NPY_TYPES::NPY_ULONGLONG,
        DType::F16 => NPY_TYPES::NPY_HALF,
        DType::F32 => NPY_TYPES::NPY_FLOAT,
        DType::F64 => NPY_TYPES::NPY_DOUBLE,
        DType::BF16 => return bf16(py),
    };
    builtin(py, number)
}

fn bf16(py: Python<'_>) -> PyResult<Bound<'_, PyArrayDescr>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let Ok(class) = CLASS.import(py, "ml_dtypes", "bfloat16") else {
        let message = "NumPy has no bf16 of its own; install ml_dtypes, or cast to f32 first";
        return Err(type_error(py, "numpy", message.into()));
    };
    PyArrayDescr::new(py, class)
}

/// The object as an array of elements that a tensor can hold.
///
/// # Errors
/// When it is none.
pub fn checked<'py>(
    op: &'static str,
    array: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = array.py();
    let Ok(array) = array.cast::<PyUntypedArray>() else {
        let class = array.get_type().name()?;
        let message = format!("a NumPy array is needed, not {class}; Tensor(x) takes anything");
        return Err(type_error(py, op, message));
    };
    if is_masked(array)? {
        let message = "a masked array has elements without a value; give them one with \
                       a.filled(value), or pass a.data to ignore the mask";
        return Err(type_error(py, op, message.into()));
    }
    let descr = array.dtype();
    if dtype_of(&descr).is_none() {
        let remedy = match descr.kind() {
            b'O' => {
                "holds Python objects; convert it with a.astype(np.float32) or another number type \
                 (lists of unequal length become objects: pad them first)"
            }
            b'S' | b'U' | b'T' => {
                "holds text; parse it with a.astype(np.float32), or number the words"
            }
            b'M' | b'm' => {
                "holds dates or durations; pass a.astype(np.int64), or divide a duration by \
                 np.timedelta64(1, 's')"
            }
            b'c' => "holds complex numbers; pass a.real and a.imag as two tensors",
            b'V' if descr.has_fields() => "holds records; pass one field at a time, a['name']",
            b'f' => "has no counterpart; convert it with a.astype(np.float64)",
            _ => "has no counterpart; convert it with a.astype(np.float32)",
        };
        let message = format!("an array of dtype {descr} {remedy}");
        return Err(type_error(py, op, message));
    }
    Ok(array.clone())
}

fn is_masked(array: &Bound<'_, PyUntypedArray>) -> PyResult<bool> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    // The usual array needs no look at `numpy.ma`, whose import takes a while.
    let plain = array.is_exact_instance_of::<PyUntypedArray>();
    Ok(!plain && array.is_instance(CLASS.import(array.py(), "numpy.ma", "MaskedArray")?)?)
}

/// A tensor with a copy of the elements of an array of any layout.
///
/// # Errors
/// When a tensor can't hold such elements, or memory runs out.
pub fn copied(array: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    copy(&checked("Tensor", array)?)
}

fn copy(array: &Bound<'_, PyUntypedArray>) -> PyResult<Tensor> {
    match Plain::new(array) {
        Some(plain) => build(array.py(), || {
            plain.read(|bytes| Tensor::from_bytes(bytes, plain.dtype(), plain.shape()))
        }),
        // NumPy copies strided memory well. The copy is nobody else's, so it may as well stay.
        None => over(plain_copy(array)?),
    }
}

/// A copy of an array that lies as the library wants it.
pub fn plain_copy<'py>(array: &Bound<'py, PyUntypedArray>) -> PyResult<Plain<'py>> {
    let py = array.py();
    let native = array
        .dtype()
        .call_method1(intern!(py, "newbyteorder"), ("=",))?;
    let options = PyDict::new(py);
    options.set_item("dtype", native)?;
    options.set_item("order", "C")?;
    options.set_item("copy", true)?;
    let numpy = py.import(intern!(py, "numpy"))?;
    let copy = numpy.call_method("array", (array,), Some(&options))?;
    Plain::new(copy.cast::<PyUntypedArray>()?)
        .ok_or_else(|| PyTypeError::new_err("NumPy's copy of the array has another layout"))
}

/// A tensor over the memory of an array.
fn over(plain: Plain<'_>) -> PyResult<Tensor> {
    let py = plain.py();
    let (dtype, shape) = (plain.dtype(), plain.shape().to_vec());
    let storage = plain.storage();
    build(py, || Tensor::from_storage(storage, dtype, shape))
}

/// A tensor over the memory of an array where its layout allows, else with a copy, as `copy` says.
///
/// # Errors
/// When it is no array, holds what a tensor can't, or must not be copied and can't be shared.
pub fn from_numpy(array: &Bound<'_, PyAny>, copy_it: Option<bool>) -> PyResult<Tensor> {
    let array = checked("from_numpy", array)?;
    match Plain::new(&array) {
        Some(plain) if copy_it != Some(true) => over(plain),
        None if copy_it == Some(false) => Err(must_copy(array.py(), "from_numpy")),
        _ => copy(&array),
    }
}

/// The exception for `copy=False` where memory can't be shared.
pub fn must_copy(py: Python<'_>, op: &'static str) -> PyErr {
    let message = "the memory can't be shared: it is not in row-major order, not aligned or not in \
                   the machine's byte order; leave copy=False out";
    shape_error(py, op, message.into())
}
