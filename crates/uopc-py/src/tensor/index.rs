//! Parts of tensors: `t[...]`, iteration, positions in integer tensors.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pyo3::exceptions::{PyIndexError, PyNotImplementedError, PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyList, PySlice, PyTuple};
use uopc::Tensor;
use uopc::tensor::{Operand, Slice};

use super::{PyTensor, is_array, located, shape_error, tensor_of, type_error};
use crate::convert::{AnyOperand, AnyTensor, Whole, beyond, operand, shown};
use crate::run::{build, compute};

/// A number as an i64; one that does not fit is as far away as can be.
fn far(number: &Bound<'_, PyAny>) -> PyResult<i64> {
    match number.extract::<i64>() {
        Err(e) if e.is_instance_of::<PyOverflowError>(number.py()) => {
            Ok(if number.lt(0)? { i64::MIN } else { i64::MAX })
        }
        other => other,
    }
}

/// A number as a position.
fn position(number: &Bound<'_, PyAny>) -> PyResult<i64> {
    number
        .extract::<i64>()
        .map_err(|e| match e.is_instance_of::<PyOverflowError>(number.py()) {
            true => located::<PyIndexError>(number.py(), format!("slice: {}", beyond(number))),
            false => e,
        })
}

/// What one entry of an index means.
fn slice(key: &Bound<'_, PyAny>) -> PyResult<Slice> {
    let py = key.py();
    if let Ok(range) = key.cast::<PySlice>() {
        let part =
            |name| {
                let value = range.getattr(name)?;
                match value.is_none() {
                    true => Ok(None),
                    false => far(&value).map(Some).map_err(|e| {
                        match e.is_instance_of::<PyTypeError>(py) {
                            true => {
                                let message =
                                    "a slice is made of integers and None, and can't be of";
                                located::<PyTypeError>(py, format!("{message} {}", shown(&value)))
                            }
                            false => e,
                        }
                    }),
                }
            };
        let (start, stop) = (part(intern!(py, "start"))?, part(intern!(py, "stop"))?);
        let step = part(intern!(py, "step"))?.unwrap_or(1);
        return Ok(Slice::Stepped(start, stop, step));
    }
    if key.is_exact_instance_of::<PyInt>() {
        return position(key).map(Slice::At);
    }
    if key.is_none() {
        return Ok(Slice::NewAxis);
    }
    if key.is(PyEllipsis::get(py)) {
        return Ok(Slice::Rest);
    }
    if key.is_instance_of::<PyBool>() || key.is_instance_of::<PyList>() || is_several(key)? {
        return Err(located::<PyNotImplementedError>(
            py,
            "an index is made of integers, slices, None and ...; t.take(positions) reads the \
             entries at the positions in a list or tensor, condition.where(a, b) chooses by bools",
        ));
    }
    match position(key) {
        Err(e) if e.is_instance_of::<PyTypeError>(py) => {
            let message = "an index is made of integers, slices, None and ..., and can't be";
            let class = key.get_type().name()?;
            Err(located::<PyTypeError>(py, format!("{message} {class}")))
        }
        other => other.map(Slice::At),
    }
}

/// Whether an object is a tensor, or an array from which an index could take several positions.
fn is_several(key: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(key.is_instance_of::<PyTensor>()
        || is_array(key)? && key.getattr(intern!(key.py(), "ndim"))?.extract::<usize>()? > 0)
}

fn slices(key: &Bound<'_, PyAny>) -> PyResult<Vec<Slice>> {
    match key.cast::<PyTuple>() {
        Ok(keys) => keys.iter().map(|key| slice(&key)).collect(),
        Err(_) => Ok(vec![slice(key)?]),
    }
}

/// What a part is replaced by: an operand, or a list of numbers.
fn part_value(value: &Bound<'_, PyAny>) -> PyResult<Operand> {
    match operand(value)? {
        Some(value) => Ok(value),
        None => Ok(tensor_of(value, None)?.into()),
    }
}

/// Gives the entries of the first axis one by one.
#[pyclass(module = "uopc.tensor", frozen)]
struct Entries {
    tensor: Tensor,
    next: AtomicUsize,
}

#[pymethods]
impl Entries {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyTensor>> {
        let next = self.next.fetch_add(1, Relaxed);
        if next >= self.tensor.shape()[0] {
            // Stays at the end, however often it is asked.
            self.next.fetch_sub(1, Relaxed);
            return Ok(None);
        }
        PyTensor::build(py, || self.tensor.get(next)).map(Some)
    }

    fn __length_hint__(&self) -> usize {
        self.tensor.shape()[0].saturating_sub(self.next.load(Relaxed))
    }
}

impl PyTensor {
    fn has_entries(&self, py: Python<'_>, op: &'static str) -> PyResult<()> {
        if self.tensor.rank() == 0 {
            let message = "a scalar has no entries; its number is given by item()".into();
            return Err(type_error(py, op, message));
        }
        Ok(())
    }
}

#[pymethods]
impl PyTensor {
    /// A part, as in NumPy: integers, slices with any step, None and ``...``.
    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        let slices = slices(key)?;
        PyTensor::build(py, || self.tensor.slice(slices))
    }

    /// Replaces a part, for all names that the tensor has; the value broadcasts to it.
    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (slices, value) = (slices(key)?, part_value(value)?);
        self.set(py, || self.tensor.set_slice(slices, value))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let message = "parts of a tensor can be replaced, not deleted; join the others with cat";
        Err(located::<PyTypeError>(key.py(), message))
    }

    /// A copy in which a part is replaced: ``t[index] = value`` as a value.
    ///
    /// The value is a tensor, a number, an array or a list, and broadcasts to the part. Gradients
    /// flow to what is kept and to the value.
    ///
    /// Raises IndexError for what is not there, ValueError if the value does not broadcast,
    /// TypeError if its dtype does not fit.
    ///
    /// >>> Tensor([1, 2, 3]).with_slice(slice(1, None), 7)
    /// Tensor([1, 7, 7], shape=(3,), dtype=i32)
    fn with_slice(
        &self,
        py: Python<'_>,
        index: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<PyTensor> {
        let (slices, value) = (slices(index)?, part_value(value)?);
        PyTensor::build(py, || self.tensor.with_slice(slices, value))
    }

    /// The extent of the first axis.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        match self.tensor.shape().first() {
            Some(extent) => Ok(*extent),
            None => Err(type_error(py, "len", "a scalar has no length".into())),
        }
    }

    /// The entries of the first axis, one by one.
    fn __iter__(&self, py: Python<'_>) -> PyResult<Entries> {
        self.has_entries(py, "iter")?;
        Ok(Entries {
            tensor: self.tensor.clone(),
            next: AtomicUsize::new(0),
        })
    }

    /// The entries of the first axis from the last to the first.
    fn __reversed__(&self, py: Python<'_>) -> PyResult<Entries> {
        self.has_entries(py, "reversed")?;
        Ok(Entries {
            tensor: build(py, || self.tensor.flip(0))?,
            next: AtomicUsize::new(0),
        })
    }

    /// Whether an element is equal to a number, or broadcasts to a tensor's elements.
    fn __contains__(&self, py: Python<'_>, item: AnyOperand) -> PyResult<bool> {
        compute(py, || self.tensor.eq(item.0)?.any(..)?.truth())
    }

    /// The entry at a position of the first axis, which disappears; negative ones count from the end.
    ///
    /// Raises IndexError if there is no such position.
    ///
    /// >>> Tensor([[1, 2], [3, 4]]).get(-1)
    /// Tensor([3, 4], shape=(2,), dtype=i32)
    fn get(&self, py: Python<'_>, position: Whole) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.get(position.0))
    }

    /// The positions from ``start`` to ``start + length`` of one axis, the others whole.
    ///
    /// Raises ValueError if there is no such axis or the range leaves it.
    ///
    /// >>> Tensor([[1, 2, 3], [4, 5, 6]]).narrow(1, 1, 2)
    /// Tensor([[2, 3],
    ///         [5, 6]], shape=(2, 2), dtype=i32)
    fn narrow(
        &self,
        py: Python<'_>,
        dim: Whole,
        start: Whole,
        length: Whole,
    ) -> PyResult<PyTensor> {
        let end = start.0.saturating_add(length.0);
        if start.0 < 0 && end > 0 || length.0 < 0 {
            let (start, length) = (start.0, length.0);
            let message = format!("{length} positions from {start} on are no range of an axis");
            return Err(shape_error(py, "narrow", message));
        }
        // There is no -0 to end a range that is counted from the end.
        let end = (start.0 >= 0 || end < 0).then_some(end);
        PyTensor::build(py, || {
            self.tensor
                .narrow(dim.0, Slice::Between(Some(start.0), end))
        })
    }

    /// The entries of the first axis at the positions in an integer tensor or list.
    ///
    /// The result has the positions' shape and then the other axes. Negative positions count from
    /// the end; out of range reads zeros. With ``axis=None`` positions count all elements in
    /// row-major order, as they do in NumPy unless an axis is given. The gradient adds up what is
    /// read of each entry, as ``scatter_add`` does.
    ///
    /// Raises TypeError if the positions are not integers, ValueError if there is no axis,
    /// NotImplementedError for other axes.
    ///
    /// >>> Tensor([[1, 2], [3, 4], [5, 6]]).take([2, 0])
    /// Tensor([[5, 6],
    ///         [1, 2]], shape=(2, 2), dtype=i32)
    #[pyo3(signature = (indices, axis=Some(Whole(0))))]
    fn take(&self, py: Python<'_>, indices: AnyTensor, axis: Option<Whole>) -> PyResult<PyTensor> {
        if axis.as_ref().is_some_and(|axis| axis.0 != 0) {
            return Err(located::<PyNotImplementedError>(
                py,
                "take: entries of the first axis are taken; bring another one to the front with \
                 swapaxes(0, axis), and back afterwards",
            ));
        }
        PyTensor::build(py, || match axis {
            None => self.tensor.reshape([-1])?.take(&indices.0),
            Some(_) => self.tensor.take(&indices.0),
        })
    }

    /// The entries of this tensor added into zeros at the positions in an integer tensor or list.
    ///
    /// With positions of shape S and entries of shape S + R the result has shape (n,) + R: it is what
    /// ``numpy.add.at`` makes of zeros. Entries for one position are added in their order. Negative
    /// positions count from the end; out of range adds nothing.
    ///
    /// Raises TypeError if the positions are not integers, ValueError if their shape is not that of
    /// the leading axes or n is negative.
    ///
    /// >>> Tensor([1.0, 2.0, 4.0]).scatter_add([2, 0, 2], 3)
    /// Tensor([2., 0., 5.], shape=(3,), dtype=f32)
    fn scatter_add(&self, py: Python<'_>, positions: AnyTensor, n: Whole) -> PyResult<PyTensor> {
        let Ok(n) = usize::try_from(n.0) else {
            let message = format!("there are no {} entries; give their number", n.0);
            return Err(shape_error(py, "scatter_add", message));
        };
        PyTensor::build(py, || self.tensor.scatter_add(&positions.0, n))
    }

    /// Ones where a label meets its class, zeros elsewhere: labels of shape S give S + (classes,).
    ///
    /// The result is f32. A label that is no class gives zeros only.
    ///
    /// Raises TypeError if the labels are not integers, ValueError for a negative number of classes.
    ///
    /// >>> Tensor([2, 0]).one_hot(3)
    /// Tensor([[0., 0., 1.],
    ///         [1., 0., 0.]], shape=(2, 3), dtype=f32)
    fn one_hot(&self, py: Python<'_>, num_classes: Whole) -> PyResult<PyTensor> {
        let Ok(classes) = usize::try_from(num_classes.0) else {
            let message = format!(
                "there are no {} classes; give their number, as by int(labels.max()) + 1",
                num_classes.0
            );
            return Err(shape_error(py, "one_hot", message));
        };
        PyTensor::build(py, || self.tensor.one_hot(classes))
    }
}
