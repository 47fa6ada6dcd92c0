//! Values on their way to Python: NumPy's arrays, lists, numbers, bytes.

use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyMemoryError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use uopc::DType;

use super::lists::element_of;
use super::{memory, shape_error};
use crate::run::compute;
use crate::tensor::PyTensor;

impl PyTensor {
    /// A read-only array over the tensor's memory.
    pub fn array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let storage = compute(py, || self.tensor.memory())?;
        memory::array_of(py, storage, self.tensor.dtype(), self.tensor.shape())
    }
}

#[pymethods]
impl PyTensor {
    /// The values as a NumPy array of the tensor's shape and dtype, computed now if need be.
    ///
    /// The array is a read-only view of the tensor's memory, without a copy. It keeps the memory
    /// alive through its ``base``, and the present values: a later change of the tensor in place
    /// gives the tensor new memory. With ``copy=True`` it is a copy that may be written. bf16 needs
    /// the package ml_dtypes, whose ``bfloat16`` is the array's dtype.
    ///
    /// Raises TypeError if the dtype is bf16 and ml_dtypes is not installed, ValueError if the
    /// tensor has more axes than NumPy's arrays have: 64, or 32 before NumPy 2.
    ///
    /// >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).numpy()
    /// array([[1., 2.],
    ///        [3., 4.]], dtype=float32)
    /// >>> a = Tensor([1, 2]).numpy(copy=True)
    /// >>> a[0] = 7
    /// >>> a
    /// array([7, 2], dtype=int32)
    #[pyo3(signature = (*, copy=false))]
    fn numpy<'py>(&self, py: Python<'py>, copy: bool) -> PyResult<Bound<'py, PyAny>> {
        let array = self.array(py)?;
        match copy {
            true => array.call_method0(intern!(py, "copy")),
            false => Ok(array),
        }
    }

    /// What NumPy's functions call to see an array.
    ///
    /// ``np.asarray(t)`` is a read-only view without a copy, ``np.array(t)`` a copy, and
    /// ``np.asarray(t, dtype=...)`` converts as NumPy's ``astype``. Functions of NumPy that are no
    /// ufuncs (``np.concatenate``, ``np.where``, ``np.dot``) see tensors through this and give
    /// arrays, without gradients.
    ///
    /// Raises ValueError if ``copy`` is False and another dtype is asked for.
    ///
    /// >>> np.asarray(Tensor([1, 2]), dtype=np.float64)
    /// array([1., 2.])
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = self.array(py)?;
        if let Some(dtype) = dtype {
            let wanted = PyArrayDescr::new(py, dtype)?;
            let present = array.cast::<PyUntypedArray>()?.dtype();
            if !wanted.is_equiv_to(&present) {
                if copy == Some(false) {
                    let message = format!(
                        "values of {present} become {wanted} by a copy only; leave copy=False out"
                    );
                    return Err(shape_error(py, "__array__", message));
                }
                return array.call_method1(intern!(py, "astype"), (wanted,));
            }
        }
        match copy {
            Some(true) => array.call_method0(intern!(py, "copy")),
            _ => Ok(array),
        }
    }

    /// The values as nested lists of Python's floats, integers or bools, computed now if need be.
    ///
    /// A scalar gives the number alone. Integers are exact in every dtype.
    ///
    /// >>> Tensor([[1, 2], [3, 4]]).tolist()
    /// [[1, 2], [3, 4]]
    /// >>> Tensor(2.5).tolist()
    /// 2.5
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let storage = compute(py, || self.tensor.memory())?;
        let (dtype, shape) = (self.tensor.dtype(), self.tensor.shape());
        // The lists of an empty tensor may be many, and each takes memory.
        let mut lists = 1usize;
        for &n in shape.iter().take(shape.rank().saturating_sub(1)) {
            lists = lists.saturating_mul(n);
            if lists == 0 {
                break;
            }
        }
        if lists > (1 << 40) {
            let text = format!("tolist: shape {shape} has more lists than memory can hold");
            return Err(PyMemoryError::new_err(text));
        }
        let elements = storage.as_bytes().chunks_exact(dtype.size());
        let mut level: Vec<Bound<'py, PyAny>> = elements
            .map(|element| object(py, element, dtype))
            .collect::<PyResult<_>>()?;
        // Inside out: each axis but the first puts its entries into one list each.
        for k in (0..shape.rank()).rev() {
            let count: usize = shape[..k].iter().product();
            let mut entries = level.into_iter();
            let list = |_| -> PyResult<Bound<'py, PyAny>> {
                let list: Vec<_> = entries.by_ref().take(shape[k]).collect();
                Ok(PyList::new(py, list)?.into_any())
            };
            level = (0..count).map(list).collect::<PyResult<_>>()?;
        }
        match level.pop() {
            Some(whole) => Ok(whole),
            None => Ok(PyList::empty(py).into_any()),
        }
    }

    /// The only element as a Python float, int or bool, exactly; computed now if need be.
    ///
    /// Raises ValueError if the tensor has more or fewer elements than one.
    ///
    /// >>> Tensor([[2**31 - 1]]).item()
    /// 2147483647
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.number(py, "item")
    }

    /// The elements' bytes in row-major order and the machine's byte order.
    ///
    /// >>> bytes(Tensor([True, False]))
    /// b'\x01\x00'
    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let storage = compute(py, || self.tensor.memory())?;
        Ok(PyBytes::new(py, storage.as_bytes()))
    }
}

/// An element as Python's number.
fn object<'py>(py: Python<'py>, element: &[u8], dtype: DType) -> PyResult<Bound<'py, PyAny>> {
    let value = element_of(element, dtype);
    Ok(if dtype.is_float() {
        value.as_f64().into_pyobject(py)?.into_any()
    } else if dtype == DType::Bool {
        value.as_bool().into_pyobject(py)?.to_owned().into_any()
    } else if let Ok(small) = i64::try_from(value.as_i128()) {
        small.into_pyobject(py)?.into_any()
    } else {
        value.as_i128().into_pyobject(py)?.into_any()
    })
}
