//! Parts of tensors: `t[...]`, iteration, positions in integer tensors.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyList, PySlice, PyTuple};
use uopc::tensor::{Element, Index, Operand, Slice};
use uopc::{DType, Tensor};

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
fn index(key: &Bound<'_, PyAny>) -> PyResult<Index> {
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
        return Ok(Index::Slice(Slice::Stepped(start, stop, step)));
    }
    if key.is_exact_instance_of::<PyInt>() {
        return position(key).map(at);
    }
    if key.is_none() {
        return Ok(Index::Slice(Slice::NewAxis));
    }
    if key.is(PyEllipsis::get(py)) {
        return Ok(Index::Slice(Slice::Rest));
    }
    if let Some(positions) = positions(key)? {
        return Ok(positions);
    }
    match position(key) {
        Err(e) if e.is_instance_of::<PyTypeError>(py) => {
            let message = "an index is made of integers, slices, tensors, lists, None and ..., and \
                           can't be";
            let class = key.get_type().name()?;
            Err(located::<PyTypeError>(py, format!("{message} {class}")))
        }
        other => other.map(at),
    }
}

/// The positions or the mask that an object holds: a tensor, an array, a list, or a bool.
fn positions(key: &Bound<'_, PyAny>) -> PyResult<Option<Index>> {
    let py = key.py();
    let refused = |t: &Tensor| {
        let message = format!(
            "an index holds integers or bools, not {}; cast it",
            t.dtype()
        );
        Err(located::<PyIndexError>(py, message))
    };
    if let Ok(tensor) = key.cast::<PyTensor>() {
        let t = &tensor.get().tensor;
        return match t.dtype().is_float() {
            true => refused(t),
            false => Ok(Some(Index::Tensor(t.clone()))),
        };
    }
    let is_list = key.is_instance_of::<PyList>() || key.is_instance_of::<PyTuple>();
    // An array of one number without axes is a position, but not if it is a bool.
    let is_flag = |key: &Bound<'_, PyAny>| -> PyResult<bool> {
        let kind = key
            .getattr(intern!(py, "dtype"))?
            .getattr(intern!(py, "kind"))?;
        Ok(kind.extract::<String>()? == "b")
    };
    let has_axes = is_array(key)? && key.getattr(intern!(py, "ndim"))?.extract::<usize>()? > 0;
    let is_bool = key.is_instance_of::<PyBool>()
        || key.hasattr(intern!(py, "dtype"))? && !is_list && !has_axes && is_flag(key)?;
    if !(is_list || has_axes || is_bool) {
        return Ok(None);
    }
    let t = match is_list && key.len()? == 0 {
        // NumPy's empty list names no positions, whatever dtype it has.
        true => tensor_of(key, Some(DType::I64))?,
        false if is_bool => tensor_of(PyBool::new(py, key.is_truthy()?).as_any(), None)?,
        false => tensor_of(key, None)?,
    };
    if t.dtype() == DType::Bool {
        return Ok(Some(Index::Tensor(t)));
    }
    if t.dtype().is_float() {
        return refused(&t);
    }
    let numbers = build(py, || whole_numbers(&t))?;
    Ok(Some(Index::Positions(numbers, t.shape().clone())))
}

/// The elements of an integer tensor in memory; what does not fit is as far away as can be.
fn whole_numbers(t: &Tensor) -> uopc::Result<Vec<i64>> {
    fn wide<T: Element + Into<i64>>(t: &Tensor) -> uopc::Result<Vec<i64>> {
        Ok(t.values::<T>()?.iter().map(|&n| n.into()).collect())
    }
    match t.dtype() {
        DType::I8 => wide::<i8>(t),
        DType::I16 => wide::<i16>(t),
        DType::I32 => wide::<i32>(t),
        DType::U8 => wide::<u8>(t),
        DType::U16 => wide::<u16>(t),
        DType::U32 => wide::<u32>(t),
        DType::U64 => {
            let far = |n: &u64| i64::try_from(*n).unwrap_or(i64::MAX);
            Ok(t.values::<u64>()?.iter().map(far).collect())
        }
        _ => wide::<i64>(t),
    }
}

fn at(position: i64) -> Index {
    Index::Slice(Slice::At(position))
}

fn indices(key: &Bound<'_, PyAny>) -> PyResult<Vec<Index>> {
    match key.cast::<PyTuple>() {
        Ok(keys) => keys.iter().map(|key| index(&key)).collect(),
        Err(_) => Ok(vec![index(key)?]),
    }
}

/// Whether a mask is among them, which is computed before the result has a shape.
fn has_mask(indices: &[Index]) -> bool {
    let mut indices = indices.iter();
    indices.any(|i| matches!(i, Index::Tensor(t) if t.dtype() == DType::Bool))
}

/// What a part is replaced by: an operand, or a list of numbers.
pub(super) fn part_value(value: &Bound<'_, PyAny>) -> PyResult<Operand> {
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
    /// A part, as in NumPy: integers, slices with any step, None and ``...``, integer tensors, arrays and
    /// lists, and masks of bools.
    ///
    /// Positions in arrays and lists that do not exist are errors; those in tensors are not known yet,
    /// and read zeros. A mask is computed first, since the shape of the result depends on it.
    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        let indices = indices(key)?;
        match has_mask(&indices) {
            true => PyTensor::compute(py, || self.tensor.index(indices)),
            false => PyTensor::build(py, || self.tensor.index(indices)),
        }
    }

    /// Replaces a part, for all names that the tensor has; the value broadcasts to it. Of several values
    /// for one place the last stays.
    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (indices, value) = (indices(key)?, part_value(value)?);
        match has_mask(&indices) {
            true => compute(py, || self.tensor.set_index(indices, value)),
            false => self.set(py, || self.tensor.set_index(indices, value)),
        }
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
        let (indices, value) = (indices(index)?, part_value(value)?);
        match has_mask(&indices) {
            true => PyTensor::compute(py, || self.tensor.with_index(indices, value)),
            false => PyTensor::build(py, || self.tensor.with_index(indices, value)),
        }
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

    /// The entries of an axis at the positions in an integer tensor or list.
    ///
    /// The axis takes the positions' shape. Negative positions count from the end; out of range reads
    /// zeros. With ``axis=None`` positions count all elements in row-major order, as they do in NumPy
    /// unless an axis is given. The gradient adds up what is read of each entry, as ``segment_sum`` does.
    ///
    /// Raises TypeError if the positions are not integers, ValueError if there is no such axis.
    ///
    /// >>> Tensor([[1, 2], [3, 4], [5, 6]]).take([2, 0])
    /// Tensor([[5, 6],
    ///         [1, 2]], shape=(2, 2), dtype=i32)
    #[pyo3(signature = (indices, axis=Some(Whole(0))))]
    fn take(&self, py: Python<'_>, indices: AnyTensor, axis: Option<Whole>) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.taken(&indices.0, axis.map(|axis| axis.0)))
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
