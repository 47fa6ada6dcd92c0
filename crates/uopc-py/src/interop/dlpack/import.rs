//! From a capsule to a tensor.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr::NonNull;

use numpy::PyUntypedArray;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use pyo3::{ffi, intern};
use uopc::runtime::Storage;
use uopc::{DType, Tensor};

use super::{
    CPU, MOST_AXES, NAME, NAME_VERSIONED, PINNED, RawTensor, TYPES, Type, USED, USED_VERSIONED,
    Unversioned, Version, Versioned, device_name,
};
use crate::interop::arrays;
use crate::interop::memory::array_over;
use crate::run::build;
use crate::tensor::type_error;

/// What an exporter has handed over, as one of Python's objects: those are dropped with the
/// interpreter's lock held, which the deleters of NumPy and others need.
#[pyclass(frozen, module = "uopc._uopc")]
struct Exporter(#[expect(dead_code, reason = "held for its Drop")] Handed);

enum Handed {
    Unversioned(Pointer<Unversioned>),
    Versioned(Pointer<Versioned>),
}

struct Pointer<T>(NonNull<T>);

// SAFETY: the structure is only read, and nobody else has it; DLPack lets the deleter be called on
// any thread.
unsafe impl<T> Send for Pointer<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Pointer<T> {}

impl Drop for Handed {
    fn drop(&mut self) {
        match self {
            Handed::Unversioned(Pointer(p)) => {
                // SAFETY: the structure is valid until its deleter is called, which happens here
                // and, as this is the owner, nowhere else.
                if let Some(deleter) = unsafe { p.as_ref().deleter } {
                    // SAFETY: as above.
                    unsafe { deleter(p.as_ptr()) }
                }
            }
            Handed::Versioned(Pointer(p)) => {
                // SAFETY: as for the other form.
                if let Some(deleter) = unsafe { p.as_ref().deleter } {
                    // SAFETY: as above.
                    unsafe { deleter(p.as_ptr()) }
                }
            }
        }
    }
}

/// The tensor of an object that speaks DLPack, over its memory or with a copy, as `copy` says.
pub fn import(x: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<Tensor> {
    let py = x.py();
    let capsule = match x.cast::<PyCapsule>() {
        Ok(capsule) => capsule.clone(),
        Err(_) => exported(x)?,
    };
    let (layout, handed) = hold(&capsule)?;
    let Layout {
        data,
        dtype,
        shape,
        strides,
        bytes,
    } = layout;
    let exporter = Bound::new(py, Exporter(handed))?;
    if bytes == 0 {
        return build(py, || Tensor::from_bytes(&[], dtype, shape));
    }
    let data = data.ok_or_else(|| no_sense("elements at address 0".into()))?;
    let aligned = data.addr().get().is_multiple_of(dtype.size());
    let plain = aligned && is_row_major(&shape, &strides, dtype.size());
    if plain && copy != Some(true) {
        let owner: Box<Py<Exporter>> = Box::new(exporter.unbind());
        // SAFETY: the exporter keeps that memory until its deleter is called, which happens when
        // the last reference to `owner`'s object goes; who writes it is answered for by the
        // caller of `from_dlpack`.
        let storage = unsafe { Storage::foreign(data, bytes, owner) };
        return build(py, || Tensor::from_storage(storage, dtype, shape));
    }
    if !plain && copy == Some(false) {
        return Err(arrays::must_copy(py, "from_dlpack"));
    }
    // NumPy copies strided memory well. It need not know bf16 for that.
    let as_bits = if dtype == DType::BF16 {
        DType::U16
    } else {
        dtype
    };
    let descr = arrays::descr_of(py, as_bits)?;
    // SAFETY: the exporter, which the array owns through its base, promises that memory; the way
    // over all strides has been checked not to overflow.
    let array = unsafe {
        array_over(
            descr,
            data.as_ptr().cast(),
            &shape,
            &strides,
            exporter.into_any(),
        )?
    };
    let array = array.cast::<PyUntypedArray>()?;
    let copy = arrays::plain_copy(array)?;
    let storage = copy.storage();
    build(py, || Tensor::from_storage(storage, dtype, shape))
}

/// The capsule that an object makes of its memory.
fn exported<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
    let py = x.py();
    if !x.hasattr(intern!(py, "__dlpack__"))? {
        let class = x.get_type().name()?;
        let message =
            format!("an object with __dlpack__ is needed, not {class}; Tensor(x) takes others");
        return Err(type_error(py, "from_dlpack", message));
    }
    if x.hasattr(intern!(py, "__dlpack_device__"))? {
        let device = x.call_method0(intern!(py, "__dlpack_device__"))?;
        let (kind, _): (i32, i64) = device.extract().map_err(|_| {
            no_sense(format!(
                "__dlpack_device__ returns {}, no pair of integers",
                text(&device)
            ))
        })?;
        if kind != CPU && !PINNED.contains(&kind) {
            return Err(other_device(kind));
        }
    }
    let versions = PyDict::new(py);
    versions.set_item("max_version", (1, 0))?;
    let name = intern!(py, "__dlpack__");
    let capsule = match x.call_method(name, (), Some(&versions)) {
        // Exporters from before DLPack 1 do not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => x.call_method0(name)?,
        other => other?,
    };
    let what = || no_sense(format!("__dlpack__ returns {}, no capsule", text(&capsule)));
    capsule.cast::<PyCapsule>().cloned().map_err(|_| what())
}

fn text(ob: &Bound<'_, PyAny>) -> String {
    ob.repr()
        .map_or("something".into(), |text| text.to_string())
}

/// Where elements are.
struct Layout {
    data: Option<NonNull<u8>>,
    dtype: DType,
    shape: Vec<usize>,
    /// In bytes.
    strides: Vec<isize>,
    /// What they take in row-major order.
    bytes: usize,
}

/// Takes over what a capsule holds, if that makes sense. Else it stays the capsule's.
fn hold(capsule: &Bound<'_, PyCapsule>) -> PyResult<(Layout, Handed)> {
    // SAFETY: a capsule; its name is null or a text of C that lives as long as the capsule has it.
    let name = unsafe { ffi::PyCapsule_GetName(capsule.as_ptr()) };
    let name = match name.is_null() {
        true => c"",
        // SAFETY: as above.
        false => unsafe { CStr::from_ptr(name) },
    };
    let versioned = name == NAME_VERSIONED;
    if name == USED || name == USED_VERSIONED {
        return Err(PyBufferError::new_err(
            "from_dlpack: the capsule was used before; export the object again",
        ));
    }
    if !versioned && name != NAME {
        return Err(no_sense(format!("a capsule named {name:?}")));
    }
    // SAFETY: a capsule of that name.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
    let null = || no_sense("a capsule without content".into());
    let (layout, handed, used) = if versioned {
        let p = NonNull::new(pointer.cast::<Versioned>()).ok_or_else(null)?;
        // SAFETY: the name says that the capsule holds such a structure, at least its first field.
        let version = unsafe { p.as_ref().version };
        if version.major != 1 {
            let Version { major, minor } = version;
            return Err(PyBufferError::new_err(format!(
                "from_dlpack: the exporter speaks DLPack {major}.{minor}, uopc speaks version 1"
            )));
        }
        // SAFETY: as above, and within a major version the structure stays the same.
        let layout = Layout::of(unsafe { &p.as_ref().tensor })?;
        (layout, Handed::Versioned(Pointer(p)), USED_VERSIONED)
    } else {
        let p = NonNull::new(pointer.cast::<Unversioned>()).ok_or_else(null)?;
        // SAFETY: as for the other form.
        let layout = Layout::of(unsafe { &p.as_ref().tensor })?;
        (layout, Handed::Unversioned(Pointer(p)), USED)
    };
    // SAFETY: a capsule, and a name that lives as long as the process.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } != 0 {
        // The capsule goes on owning its content.
        std::mem::forget(handed);
        return Err(PyErr::fetch(capsule.py()));
    }
    Ok((layout, handed))
}

impl Layout {
    /// The layout that a structure describes, checked as far as that can be.
    fn of(raw: &RawTensor) -> PyResult<Layout> {
        let Type { code, bits, lanes } = raw.dtype;
        if raw.device.kind != CPU && !PINNED.contains(&raw.device.kind) {
            return Err(other_device(raw.device.kind));
        }
        if lanes != 1 {
            return Err(no_sense(format!("elements of {lanes} lanes")));
        }
        let known = TYPES.iter().find(|(_, c, b)| (*c, *b) == (code, bits));
        let Some(&(dtype, ..)) = known else {
            let kind = match code {
                0 => "a signed integer".into(),
                1 => "an unsigned integer".into(),
                2 => "a float".into(),
                3 => "a handle".into(),
                4 => "a bfloat".into(),
                5 => "a complex number".into(),
                6 => "a bool".into(),
                other => format!("of DLPack's type {other}"),
            };
            return Err(PyTypeError::new_err(format!(
                "from_dlpack: the elements are each {kind} in {bits} bits, for which uopc has no \
                 dtype; convert them before the export"
            )));
        };
        if !(0..=MOST_AXES).contains(&raw.ndim) {
            return Err(no_sense(format!("{} axes", raw.ndim)));
        }
        let axes = raw.ndim as usize;
        if axes > 0 && raw.shape.is_null() {
            return Err(no_sense(format!("{axes} axes without a shape")));
        }
        let entry = |list: *const i64, k: usize| {
            // SAFETY: the exporter says that the list has an entry for each axis.
            unsafe { list.add(k).read() }
        };
        let dims: Vec<i64> = (0..axes).map(|k| entry(raw.shape, k)).collect();
        let extents = dims.iter().map(|&d| usize::try_from(d).ok());
        let Some(shape) = extents.collect::<Option<Vec<usize>>>() else {
            return Err(no_sense(format!("the shape {dims:?}")));
        };
        let size = dtype.size();
        // Without elements nothing is read, whatever the other extents and strides are.
        if shape.contains(&0) {
            let (data, strides, bytes) = (None, Vec::new(), 0);
            return Ok(Layout {
                data,
                dtype,
                shape,
                strides,
                bytes,
            });
        }
        let fits = |n: &usize| isize::try_from(*n).is_ok();
        let bytes = shape
            .iter()
            .copied()
            .try_fold(size, usize::checked_mul)
            .filter(fits);
        let bytes = bytes.ok_or_else(|| no_sense(format!("the shape {dims:?}")))?;
        let mut strides = vec![0isize; axes];
        let mut step = size as isize;
        for k in (0..axes).rev() {
            strides[k] = match raw.strides.is_null() {
                true => step,
                false => isize::try_from(entry(raw.strides, k))
                    .ok()
                    .and_then(|stride| stride.checked_mul(size as isize))
                    .ok_or_else(|| no_sense("strides beyond all memory".into()))?,
            };
            step = step.saturating_mul(shape[k] as isize);
        }
        // The distance between any two elements is an address difference.
        let spans = shape
            .iter()
            .zip(&strides)
            .map(|(&n, s)| (n as isize - 1).checked_mul(s.checked_abs()?));
        let span = spans
            .into_iter()
            .try_fold(0isize, |sum, span| sum.checked_add(span?));
        if span.is_none() {
            return Err(no_sense("strides beyond all memory".into()));
        }
        // The way to an address is a difference of addresses, too.
        let start = isize::try_from(raw.byte_offset).ok();
        let start = start.map(isize::unsigned_abs);
        let start = start.and_then(|offset| raw.data.addr().checked_add(offset));
        let Some(start) = start else {
            return Err(no_sense(format!("an offset of {} bytes", raw.byte_offset)));
        };
        let data = NonNull::new(raw.data.cast::<u8>().with_addr(start));
        let data = if raw.data.is_null() { None } else { data };
        Ok(Layout {
            data,
            dtype,
            shape,
            strides,
            bytes,
        })
    }
}

/// Whether elements follow each other in row-major order. Axes of extent 1 are never gone along.
fn is_row_major(shape: &[usize], strides: &[isize], size: usize) -> bool {
    let mut step = size as isize;
    for (&n, &stride) in shape.iter().zip(strides).rev() {
        if n != 1 && stride != step {
            return false;
        }
        step = step.saturating_mul(n as isize);
    }
    true
}

fn other_device(kind: i32) -> PyErr {
    let name = device_name(kind);
    PyBufferError::new_err(format!(
        "from_dlpack: the memory is on {name}; bring it to the CPU first, as with x.cpu()"
    ))
}

fn no_sense(what: String) -> PyErr {
    PyBufferError::new_err(format!(
        "from_dlpack: the exporter's description makes no sense: {what}"
    ))
}
