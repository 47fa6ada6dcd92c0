//! Tensors and what other libraries hold: arrays, lists, DLPack, buffers, ufuncs, pickles.
//!
//! Memory is shared where that can be done and copied where it can't; [`memory`], [`dlpack`] and
//! [`buffer`] are the only files that touch it.

pub mod arrays;
#[cfg(all(feature = "abi3-py311", not(feature = "abi3-py39")))]
mod buffer;
mod dlpack;
mod export;
mod import;
mod lists;
mod memory;
mod pickle;
mod ufunc;

use pyo3::prelude::*;
use uopc::Tensor;

use crate::tensor::{PyTensor, shape_error, type_error};

pub use import::tensor_of;

/// A tensor like this one that later changes of this one do not reach. Gradients flow through it.
fn copy_of(tensor: &Tensor) -> uopc::Result<Tensor> {
    match tensor.is_parameter() {
        // The copy of a parameter would be a parameter of its own.
        true => Ok(Tensor::from_uop(tensor.uop())),
        false => tensor.copy(),
    }
}

/// Adds the functions of this folder to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    // Every conversion needs NumPy; where it is missing, that is said at once.
    m.py().import("numpy")?;
    m.add_function(wrap_pyfunction!(from_numpy, m)?)?;
    m.add_function(wrap_pyfunction!(from_dlpack, m)?)?;
    pickle::register(m)
}

/// A tensor over the memory of a NumPy array, without a copy where the layout allows.
///
/// The memory is shared if the array is in row-major order (``C_CONTIGUOUS``), in the machine's
/// byte order and aligned. Its dtype is bool, int8 to int64, uint8 to uint64, float16, float32,
/// float64, or the bfloat16 of ml_dtypes; its shape is any. Every other layout is copied. With
/// ``copy=True`` the array is always copied, with ``copy=False`` never. It may be read-only, and
/// stays alive as long as anything needs its memory.
///
/// The tensor does not notice when the array is written: tensors that have been computed from it
/// keep their values, what is computed later reads the new ones. The price is that values computed
/// from shared memory are not remembered for others, so that reading a loss before ``backward``
/// computes the forward pass again. ``Tensor(array)`` always copies and has no such price.
///
/// Raises TypeError if ``a`` is no NumPy array, or holds objects, text, dates, complex numbers or
/// records, and ValueError if ``copy`` is False and the layout asks for a copy.
///
/// >>> a = np.zeros(3, np.float32)
/// >>> t = uopc.from_numpy(a)
/// >>> a[:] = 7
/// >>> t + 1
/// Tensor([8., 8., 8.], shape=(3,), dtype=f32)
#[pyfunction]
#[pyo3(signature = (a, *, copy=None))]
pub fn from_numpy(a: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<PyTensor> {
    arrays::from_numpy(a, copy).map(PyTensor::from)
}

/// A tensor over the memory of any object that speaks DLPack: of PyTorch, JAX, NumPy and others.
///
/// The memory is shared, without a copy, if it is the CPU's, in row-major order and aligned to its
/// elements; every other layout is copied. With ``copy=True`` it is always copied, with
/// ``copy=False`` never. All dtypes that uopc has are understood. The exporter keeps the memory
/// until nothing needs it any more. As with ``from_numpy``, the tensor does not notice when the
/// memory is written elsewhere. Gradients do not cross: what comes in is a constant.
///
/// ``x`` is an object with ``__dlpack__``, or a capsule made by one.
///
/// Raises TypeError if ``x`` does not speak DLPack or has a dtype that uopc has not; BufferError if
/// the memory is another device's, the exporter's description of it makes no sense, or its capsule
/// was used before; ValueError if ``copy`` is False and the layout asks for a copy.
///
/// >>> a = np.arange(6).reshape(2, 3)
/// >>> uopc.from_dlpack(a)
/// Tensor([[0, 1, 2],
///         [3, 4, 5]], shape=(2, 3), dtype=i64)
#[pyfunction]
#[pyo3(signature = (x, /, *, copy=None))]
pub fn from_dlpack(x: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<PyTensor> {
    dlpack::import(x, copy).map(PyTensor::from)
}

#[pymethods]
impl PyTensor {
    /// A tensor over the memory of a NumPy array: ``uopc.from_numpy``.
    ///
    /// Raises TypeError and ValueError as that does.
    ///
    /// >>> Tensor.from_numpy(np.array([[1, 2], [3, 4]], np.int32))
    /// Tensor([[1, 2],
    ///         [3, 4]], shape=(2, 2), dtype=i32)
    #[staticmethod]
    #[pyo3(name = "from_numpy", signature = (a, *, copy=None))]
    fn of_numpy(a: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<PyTensor> {
        from_numpy(a, copy)
    }

    /// A tensor over the memory of an object that speaks DLPack: ``uopc.from_dlpack``.
    ///
    /// Raises TypeError, BufferError and ValueError as that does.
    ///
    /// >>> Tensor.from_dlpack(np.ones(2))
    /// Tensor([1., 1.], shape=(2,), dtype=f64)
    #[staticmethod]
    #[pyo3(name = "from_dlpack", signature = (x, /, *, copy=None))]
    fn of_dlpack(x: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<PyTensor> {
        from_dlpack(x, copy)
    }
}
