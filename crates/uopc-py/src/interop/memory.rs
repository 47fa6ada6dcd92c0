//! Memory that NumPy's arrays and the library's storages share. Nowhere else are the elements of
//! an array seen as bytes.
//!
//! Both sides count owners: a [`Storage`] over an array owns the array, an array over a storage
//! has it as its base. What nobody can count is who writes. An array may be written while a tensor
//! shows its memory; the documentation of `from_numpy` says what that does, and as between two
//! views of one array, writing it on one thread while another computes with it is a race.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use numpy::npyffi::{_PyArray_GET_ITEM_DATA, NPY_TYPES, PY_ARRAY_API, PyArray_Descr, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::PyTypeInfo;
use pyo3::prelude::*;
use uopc::DType;
use uopc::runtime::Storage;

use super::arrays;

/// An array whose elements lie as the library wants them: in row-major order, aligned, in the
/// machine's byte order, of a dtype that there is.
pub struct Plain<'py> {
    array: Bound<'py, PyUntypedArray>,
    dtype: DType,
    bytes: usize,
}

impl<'py> Plain<'py> {
    /// The array, if its elements lie like that.
    pub fn new(array: &Bound<'py, PyUntypedArray>) -> Option<Plain<'py>> {
        let descr = array.dtype();
        let dtype = arrays::dtype_of(&descr)?;
        if descr.is_native_byteorder() == Some(false) || !array.is_c_contiguous() {
            return None;
        }
        let extents = array.shape().iter();
        let bytes = extents
            .copied()
            .try_fold(dtype.size(), usize::checked_mul)?;
        let array = array.clone();
        let plain = Plain {
            array,
            dtype,
            bytes,
        };
        // NumPy calls some memory aligned that is not aligned to the element's size.
        let aligned = bytes == 0 || plain.pointer().addr().get().is_multiple_of(dtype.size());
        aligned.then_some(plain)
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The interpreter.
    pub fn py(&self) -> Python<'py> {
        self.array.py()
    }

    /// Its extents.
    pub fn shape(&self) -> &[usize] {
        self.array.shape()
    }

    fn pointer(&self) -> NonNull<u8> {
        // SAFETY: `array` is an array, as its type says, so the pointer is to its structure.
        let data = unsafe { (*_PyArray_GET_ITEM_DATA(self.array.as_array_ptr())).data };
        NonNull::new(data.cast()).unwrap_or(NonNull::dangling())
    }

    /// Calls `f` with the elements. `f` must not run Python code, which could write them.
    pub fn read<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: a contiguous array has that many bytes at its pointer (with none, the pointer may
        // be any), it lives as long as `self`, and the interpreter's lock is held until `f` is done.
        f(unsafe { std::slice::from_raw_parts(self.pointer().as_ptr(), self.bytes) })
    }

    /// The array's memory, without a copy. It owns the array from now on.
    pub fn storage(self) -> Arc<Storage> {
        let (pointer, bytes) = (self.pointer(), self.bytes);
        // Dropped without the interpreter's lock, its reference is given back when that is next held.
        let owner: Box<Py<PyAny>> = Box::new(self.array.into_any().unbind());
        // SAFETY: the array keeps its memory where it is as long as someone else refers to it,
        // which `owner` does; who writes it is answered for by the caller of `from_numpy`.
        unsafe { Storage::foreign(pointer, bytes, owner) }
    }
}

/// The base of an array over a storage. Being an object with methods of ours, it is dropped with
/// the interpreter's lock at hand, so that memory of another array goes at once.
#[pyclass(name = "_Memory", module = "uopc._uopc", frozen)]
struct Held(#[expect(dead_code, reason = "held for its Drop")] Arc<Storage>);

/// A read-only array over a storage, without a copy. It owns the storage through its base.
///
/// # Errors
/// When NumPy has no such dtype, or arrays of fewer axes only.
pub fn array_of<'py>(
    py: Python<'py>,
    storage: Arc<Storage>,
    dtype: DType,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let descr = arrays::descr_of(py, dtype)?;
    let data = storage.pointer().cast_mut().cast();
    let mut strides = vec![0isize; shape.len()];
    let mut step = dtype.size() as isize;
    for (stride, &extent) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        // Only without elements can this overflow, and then no stride is used.
        step = step.saturating_mul(isize::try_from(extent).unwrap_or(isize::MAX));
    }
    let base = Bound::new(py, Held(storage))?;
    // SAFETY: the storage, which the base owns, holds the elements in row-major order; the array
    // is made read-only.
    unsafe { array_over(descr, data, shape, &strides, base.into_any()) }
}

/// A read-only array over memory that `base` keeps in place; strides are in bytes.
///
/// # Errors
/// When NumPy can't have such an array.
///
/// # Safety
/// There is as much memory as shape and strides say, valid for reads as long as `base` lives.
pub unsafe fn array_over<'py>(
    descr: Bound<'py, PyArrayDescr>,
    data: *mut c_void,
    shape: &[usize],
    strides: &[isize],
    base: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = descr.py();
    let shape: Vec<npy_intp> = shape.iter().map(|&n| n as npy_intp).collect();
    let flags = 0; // not writable; NumPy finds the others itself, as strides are given
    let class = PyUntypedArray::type_object(py).as_type_ptr();
    // SAFETY: `shape` and `strides` have as many entries as there are axes and are only read, the
    // reference to the descriptor is given away, and the memory is as the caller promises.
    let array = unsafe {
        PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            class,
            descr.into_dtype_ptr(),
            shape.len() as c_int,
            shape.as_ptr().cast_mut(),
            strides.as_ptr().cast_mut(),
            data,
            flags,
            std::ptr::null_mut(),
        )
    };
    // SAFETY: a new reference, or null with an exception set.
    let array = unsafe { Bound::from_owned_ptr_or_err(py, array)? };
    // SAFETY: `array` is a new array without a base; the reference to the base is given away.
    let failed = unsafe {
        PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), base.into_ptr()) < 0
    };
    if failed {
        return Err(PyErr::fetch(py));
    }
    Ok(array)
}

/// NumPy's descriptor of a built-in type.
pub fn builtin(py: Python<'_>, number: NPY_TYPES) -> PyResult<Bound<'_, PyArrayDescr>> {
    // SAFETY: the number is one of NumPy's built-in types.
    let descr: *mut PyArray_Descr =
        unsafe { PY_ARRAY_API.PyArray_DescrFromType(py, number as c_int) };
    // SAFETY: a new reference, or null with an exception set.
    let descr = unsafe { Bound::from_owned_ptr_or_err(py, descr.cast())? };
    Ok(descr.cast_into()?)
}
