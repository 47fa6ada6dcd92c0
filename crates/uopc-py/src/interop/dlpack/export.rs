//! From a tensor to a capsule.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use uopc::DType;
use uopc::runtime::Storage;

use super::{
    CPU, Device, IS_COPIED, NAME, NAME_VERSIONED, READ_ONLY, RawTensor, TYPES, Type, Unversioned,
    Version, Versioned, device_name,
};
use crate::run::compute;
use crate::tensor::PyTensor;

/// A cache line, the alignment that all libraries are content with.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// What keeps exported memory.
enum Keeper {
    Shared(Arc<Storage>),
    Copied(Vec<Line>),
}

impl Keeper {
    fn copy(storage: &Storage) -> PyResult<Keeper> {
        let bytes = storage.as_bytes();
        let n = bytes.len().div_ceil(64);
        let mut lines: Vec<Line> = Vec::new();
        if lines.try_reserve_exact(n).is_err() {
            let text = format!("__dlpack__: a copy of {} bytes can't be had", bytes.len());
            return Err(PyMemoryError::new_err(text));
        }
        for chunk in bytes.chunks(64) {
            let mut line = Line([0; 64]);
            line.0[..chunk.len()].copy_from_slice(chunk);
            lines.push(line);
        }
        Ok(Keeper::Copied(lines))
    }

    fn pointer(&self) -> *mut c_void {
        match self {
            Keeper::Shared(storage) => storage.pointer().cast_mut().cast(),
            Keeper::Copied(lines) => lines.as_ptr().cast_mut().cast(),
        }
    }
}

/// A structure together with all that its pointers lead to.
#[expect(dead_code, reason = "what is not read is pointed to")]
struct Exported<T> {
    managed: T,
    shape: Vec<i64>,
    strides: Vec<i64>,
    keeper: Keeper,
}

impl<T> Exported<T> {
    /// On the heap, with the structure that `manage` makes of the description and the context.
    fn new(
        dtype: DType,
        dims: &[usize],
        keeper: Keeper,
        manage: impl FnOnce(RawTensor) -> T,
    ) -> Box<Exported<T>> {
        let shape: Vec<i64> = dims.iter().map(|&n| n as i64).collect();
        let mut strides = vec![1i64; dims.len()];
        for k in (1..dims.len()).rev() {
            strides[k - 1] = strides[k].saturating_mul(shape[k].max(1));
        }
        let known = TYPES.iter().find(|(known, ..)| *known == dtype);
        let (code, bits) = known.map_or((0, 0), |&(_, code, bits)| (code, bits));
        // DLPack asks for a null pointer where there is nothing.
        let data = match dims.contains(&0) {
            true => null_mut(),
            false => keeper.pointer(),
        };
        let raw = RawTensor {
            data,
            device: Device {
                kind: CPU,
                number: 0,
            },
            ndim: dims.len() as i32,
            dtype: Type {
                code,
                bits,
                lanes: 1,
            },
            // The lists stay where they are when their owners move.
            shape: shape.as_ptr().cast_mut(),
            strides: strides.as_ptr().cast_mut(),
            byte_offset: 0,
        };
        let managed = manage(raw);
        Box::new(Exported {
            managed,
            shape,
            strides,
            keeper,
        })
    }
}

/// Frees what [`Exported::new`] made. Consumers call it on any thread, with or without the
/// interpreter's lock.
///
/// # Safety
/// `managed` comes from [`export`] and nobody uses it any more.
unsafe extern "C" fn delete_unversioned(managed: *mut Unversioned) {
    // SAFETY: `export` left the box's address here.
    let context = unsafe { (*managed).context };
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(context.cast::<Exported<Unversioned>>()) });
}

/// [`delete_unversioned`] for the other form.
///
/// # Safety
/// As there.
unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    // SAFETY: `export` left the box's address here.
    let context = unsafe { (*managed).context };
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(context.cast::<Exported<Versioned>>()) });
}

/// Frees the content of a capsule that nobody has consumed.
///
/// # Safety
/// Called by Python for a capsule made by [`export`].
unsafe extern "C" fn destroy_unversioned(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule; a consumer would have changed its name.
    if unsafe { ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) } == 1 {
        // SAFETY: its name was just checked.
        let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()) };
        // SAFETY: nobody has consumed it.
        unsafe { delete_unversioned(managed.cast()) }
    }
}

/// [`destroy_unversioned`] for the other form.
///
/// # Safety
/// As there.
unsafe extern "C" fn destroy_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule; a consumer would have changed its name.
    if unsafe { ffi::PyCapsule_IsValid(capsule, NAME_VERSIONED.as_ptr()) } == 1 {
        // SAFETY: its name was just checked.
        let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, NAME_VERSIONED.as_ptr()) };
        // SAFETY: nobody has consumed it.
        unsafe { delete_versioned(managed.cast()) }
    }
}

/// A capsule with the memory of a tensor.
fn export<'py>(
    py: Python<'py>,
    dtype: DType,
    shape: &[usize],
    keeper: Keeper,
    versioned: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    let flags = match keeper {
        Keeper::Shared(_) => READ_ONLY,
        Keeper::Copied(_) => IS_COPIED,
    };
    let (pointer, name, destructor): (NonNull<c_void>, _, ffi::PyCapsule_Destructor) = if versioned
    {
        let exported = Exported::new(dtype, shape, keeper, |tensor| Versioned {
            version: Version { major: 1, minor: 0 },
            context: null_mut(),
            deleter: Some(delete_versioned),
            flags,
            tensor,
        });
        let exported = Box::into_raw(exported);
        // SAFETY: just made; nobody else has the pointer.
        let managed = unsafe {
            (*exported).managed.context = exported.cast();
            NonNull::from(&mut (*exported).managed)
        };
        (managed.cast(), NAME_VERSIONED, destroy_versioned)
    } else {
        let exported = Exported::new(dtype, shape, keeper, |tensor| Unversioned {
            tensor,
            context: null_mut(),
            deleter: Some(delete_unversioned),
        });
        let exported = Box::into_raw(exported);
        // SAFETY: just made; nobody else has the pointer.
        let managed = unsafe {
            (*exported).managed.context = exported.cast();
            NonNull::from(&mut (*exported).managed)
        };
        (managed.cast(), NAME, destroy_unversioned)
    };
    // SAFETY: the pointer stays valid until the destructor or a consumer's call of the deleter,
    // and the destructor may run on any thread. If no capsule can be made, the content leaks.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destructor)) }
}

#[pymethods]
impl PyTensor {
    /// The tensor's memory as a DLPack capsule, computed now if need be, without a copy.
    ///
    /// ``torch.from_dlpack(t)``, ``jax.dlpack.from_dlpack(t)`` and ``np.from_dlpack(t)`` call this.
    /// A tensor's memory is never written: versioned capsules (DLPack 1) say so by their flag
    /// READ_ONLY; who takes an unversioned one, or does not mind the flag, must not write it. With
    /// ``copy=True`` the capsule holds a copy that may be written. The memory lives until the
    /// consumer lets go of it, whatever becomes of the tensor, and keeps the present values.
    /// Gradients do not cross.
    ///
    /// ``max_version`` is the newest version of DLPack that the consumer understands, None for the
    /// unversioned form; ``stream`` is None and ``dl_device`` None or (1, 0), the CPU.
    ///
    /// Raises BufferError if another device or a stream is asked for.
    ///
    /// >>> np.from_dlpack(Tensor([1.0, 2.0]))
    /// array([1., 2.], dtype=float32)
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(i64, i64)>,
        dl_device: Option<(i32, i64)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if let Some(stream) = stream
            && !stream.eq(-1)?
        {
            return Err(PyBufferError::new_err(
                "__dlpack__: tensors are in the CPU's memory, which has no streams; pass stream=None",
            ));
        }
        if let Some((kind, _)) = dl_device
            && kind != CPU
        {
            let name = device_name(kind);
            return Err(PyBufferError::new_err(format!(
                "__dlpack__: a tensor is in the CPU's memory and can't be exported to {name}"
            )));
        }
        let storage = compute(py, || self.tensor.memory())?;
        let keeper = match copy {
            Some(true) => Keeper::copy(&storage)?,
            _ => Keeper::Shared(storage),
        };
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        export(
            py,
            self.tensor.dtype(),
            self.tensor.shape(),
            keeper,
            versioned,
        )
    }

    /// Where the tensor's memory is, for DLPack: (1, 0), the CPU.
    ///
    /// >>> Tensor([1.0]).__dlpack_device__()
    /// (1, 0)
    fn __dlpack_device__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (CPU as c_int, 0).into_pyobject(py)
    }
}
