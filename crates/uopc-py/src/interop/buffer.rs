//! The buffer protocol: `memoryview(t)` and all that reads bytes. Python's stable interface has it
//! from 3.11 on, so only wheels for that version and later are built with it.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use uopc::DType;
use uopc::runtime::Storage;

use crate::run::compute;
use crate::tensor::PyTensor;

/// What a view's pointers lead to, until it is released.
struct View {
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
    storage: Arc<Storage>,
}

/// The element type in the letters of the module `struct`.
fn format(dtype: DType) -> Option<&'static CStr> {
    Some(match dtype {
        DType::Bool => c"?",
        DType::I8 => c"b",
        DType::I16 => c"h",
        DType::I32 => c"i",
        DType::I64 => c"q",
        DType::U8 => c"B",
        DType::U16 => c"H",
        DType::U32 => c"I",
        DType::U64 => c"Q",
        DType::F16 => c"e",
        DType::F32 => c"f",
        DType::F64 => c"d",
        DType::BF16 => return None,
    })
}

fn asked(flags: c_int, what: c_int) -> bool {
    flags & what == what
}

#[pymethods]
impl PyTensor {
    /// Fills in a view of the tensor's memory, which keeps it and can't write it.
    ///
    /// # Safety
    /// Called by Python with a structure to be filled.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: Python hands over a structure that may be written; on failure its owner is null.
        unsafe { (*view).obj = std::ptr::null_mut() };
        let tensor = &slf.get().tensor;
        let dtype = tensor.dtype();
        let Some(format) = format(dtype) else {
            return Err(PyBufferError::new_err(
                "buffers have no letter for bf16; cast to f32, or use t.numpy() or DLPack",
            ));
        };
        if asked(flags, ffi::PyBUF_WRITABLE) {
            return Err(PyBufferError::new_err(
                "a tensor's memory is read-only; t.numpy(copy=True) makes memory to write",
            ));
        }
        let storage = compute(slf.py(), || tensor.memory())?;
        let mut contents = View {
            shape: tensor
                .shape()
                .iter()
                .map(|&n| n as ffi::Py_ssize_t)
                .collect(),
            strides: vec![dtype.size() as ffi::Py_ssize_t; tensor.rank()],
            storage,
        };
        for k in (1..tensor.rank()).rev() {
            contents.strides[k - 1] = contents.strides[k].saturating_mul(contents.shape[k].max(1));
        }
        // At most one axis that is gone along, or no element: then all orders are one.
        let long = contents.shape.iter().filter(|n| **n != 1).count();
        let any_order = long <= 1 || tensor.numel() == 0;
        if asked(flags, ffi::PyBUF_F_CONTIGUOUS) && !any_order {
            return Err(PyBufferError::new_err(
                "a tensor's memory is in row-major order; t.transpose() shows the other",
            ));
        }
        let contents = Box::into_raw(Box::new(contents));
        // SAFETY: just made; it stays until `__releasebuffer__`, which Python calls once.
        let (shape, strides, storage) = unsafe {
            let contents = &mut *contents;
            let lists = (contents.shape.as_mut_ptr(), contents.strides.as_mut_ptr());
            (lists.0, lists.1, &contents.storage)
        };
        let given = |wanted: bool, list: *mut ffi::Py_ssize_t| match wanted {
            true => list,
            false => std::ptr::null_mut(),
        };
        let filled = ffi::Py_buffer {
            buf: storage.pointer().cast_mut().cast(),
            obj: slf.clone().into_any().into_ptr(),
            len: storage.bytes() as ffi::Py_ssize_t,
            itemsize: dtype.size() as ffi::Py_ssize_t,
            readonly: 1,
            ndim: tensor.rank() as c_int,
            format: match asked(flags, ffi::PyBUF_FORMAT) {
                true => format.as_ptr().cast_mut(),
                false => std::ptr::null_mut(),
            },
            shape: given(asked(flags, ffi::PyBUF_ND), shape),
            strides: given(asked(flags, ffi::PyBUF_STRIDES), strides),
            suboffsets: std::ptr::null_mut(),
            internal: contents.cast(),
        };
        // SAFETY: as above.
        unsafe { *view = filled };
        Ok(())
    }

    /// Lets go of what a view kept.
    ///
    /// # Safety
    /// Called by Python, once for each view that `__getbuffer__` has filled.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: `__getbuffer__` left the box's address here.
        drop(unsafe { Box::from_raw((*view).internal.cast::<View>()) });
    }
}
