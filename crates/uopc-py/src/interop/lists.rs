//! Nested lists of numbers, arrays and tensors: their shape, their dtype, their elements.
//!
//! Python's own numbers take the dtype of arrays and tensors beside them, as in arithmetic; alone,
//! a float among them makes all f32, an integer i32.

use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyMemoryError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use uopc::ir::op::Op;
use uopc::ir::{Scalar, scalar};
use uopc::{DType, Tensor};

use super::import::{Entry, read};
use super::memory::Plain;
use super::{arrays, shape_error};
use crate::run::build;
use crate::tensor::{PyTensor, located};

/// Lists deeper than this have no end, or no meaning as a tensor.
const DEEPEST: usize = 64;

/// How many elements are read between two looks at Ctrl-C.
const STRETCH: usize = 1 << 16;

/// A list or tuple.
#[derive(Clone)]
pub enum Sequence<'py> {
    List(Bound<'py, PyList>),
    Tuple(Bound<'py, PyTuple>),
}

impl<'py> Sequence<'py> {
    /// The object, if it is a list or tuple.
    pub fn of(ob: &Bound<'py, PyAny>) -> Option<Sequence<'py>> {
        if let Ok(list) = ob.cast::<PyList>() {
            return Some(Sequence::List(list.clone()));
        }
        let tuple = ob.cast::<PyTuple>().ok()?;
        Some(Sequence::Tuple(tuple.clone()))
    }

    fn len(&self) -> usize {
        match self {
            Sequence::List(list) => list.len(),
            Sequence::Tuple(tuple) => tuple.len(),
        }
    }

    fn get(&self, k: usize) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Sequence::List(list) => list.get_item(k),
            Sequence::Tuple(tuple) => tuple.get_item(k),
        }
    }

    fn py(&self) -> Python<'py> {
        match self {
            Sequence::List(list) => list.py(),
            Sequence::Tuple(tuple) => tuple.py(),
        }
    }
}

/// What a list holds in the end.
pub enum Item<'py> {
    Float(f64),
    Int(i128),
    Bool(bool),
    /// An array of a dtype that there is.
    Array(Bound<'py, PyUntypedArray>),
    Tensor(Tensor),
}

impl Item<'_> {
    /// The dtype that it insists on.
    fn dtype(&self) -> Option<DType> {
        match self {
            Item::Array(array) => arrays::dtype_of(&array.dtype()),
            Item::Tensor(tensor) => Some(tensor.dtype()),
            _ => None,
        }
    }

    /// The entries along the first axis of an array or tensor.
    fn entries<'py>(self, py: Python<'py>) -> PyResult<Sequence<'py>>
    where
        Self: 'py,
    {
        let whole = match self {
            Item::Array(array) => array.into_any(),
            Item::Tensor(tensor) => Bound::new(py, PyTensor::from(tensor))?.into_any(),
            _ => unreachable!("called for items with axes only"),
        };
        let entries = whole.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        Ok(Sequence::List(PyList::new(py, entries)?))
    }

    fn shape(&self) -> &[usize] {
        match self {
            Item::Array(array) => array.shape(),
            Item::Tensor(tensor) => tensor.shape(),
            _ => &[],
        }
    }
}

/// A Python integer.
///
/// # Errors
/// When no dtype holds it.
pub fn integer<'py>(ob: &Bound<'py, PyAny>) -> PyResult<Item<'py>> {
    let number = ob.extract::<i128>().map_err(|_| {
        let message = "Tensor: an integer fits none of the dtypes; write it as a float";
        located::<PyOverflowError>(ob.py(), message)
    })?;
    Ok(Item::Int(number))
}

/// The dtype of items that stand together.
pub fn common_dtype<'a, 'py: 'a>(items: impl IntoIterator<Item = &'a Item<'py>> + Clone) -> DType {
    let firm = items.clone().into_iter().filter_map(Item::dtype);
    let firm = firm.reduce(DType::promote);
    let with = |dtype: Option<DType>, item: &Item| match (item, dtype) {
        (Item::Float(_), Some(dtype)) if dtype.is_float() => Some(dtype),
        (Item::Float(_), _) => Some(DType::F32),
        (Item::Int(_), None | Some(DType::Bool)) => Some(DType::I32),
        (Item::Bool(_), None) => Some(DType::Bool),
        (_, dtype) => dtype,
    };
    items.into_iter().fold(firm, with).unwrap_or(DType::F32)
}

/// A number as a value of a dtype; `place` is where it stands, for the error.
///
/// # Errors
/// When it is an integer that the dtype does not hold.
pub fn scalar(
    py: Python<'_>,
    number: &Item<'_>,
    dtype: DType,
    place: &[usize],
) -> PyResult<Scalar> {
    match *number {
        Item::Float(value) => Ok(Scalar::from_f64(dtype, value)),
        Item::Bool(value) => Ok(Scalar::from_i128(dtype, value.into())),
        Item::Int(value) => match dtype.int_range() {
            Some((lo, hi)) if dtype != DType::Bool && !(lo..=hi).contains(&value) => {
                let remedy = match (i64::try_from(value), u64::try_from(value)) {
                    (Ok(_), _) => "give dtype=uopc.i64",
                    (_, Ok(_)) => "give dtype=uopc.u64",
                    _ => "no integer dtype holds it, dtype=uopc.f64 rounds it",
                };
                let at = if place.is_empty() {
                    String::new()
                } else {
                    format!(" at {}", brackets(place))
                };
                let message = format!("{value}{at} does not fit {dtype}; {remedy}");
                // The library's text with the line, as the exception that NumPy raises.
                let error = shape_error(py, "Tensor", message);
                Err(PyOverflowError::new_err(error.value(py).to_string()))
            }
            _ => Ok(Scalar::from_i128(dtype, value)),
        },
        Item::Array(_) | Item::Tensor(_) => unreachable!("called for numbers only"),
    }
}

/// `[0][2]`, the way to an entry.
fn brackets(place: &[usize]) -> String {
    place.iter().map(|k| format!("[{k}]")).collect()
}

/// A nested list as what it holds, in order.
struct Nested<'py> {
    /// The extents of the lists.
    dims: Vec<usize>,
    items: Vec<Item<'py>>,
    /// The shape of each of the items.
    inner: Vec<usize>,
    /// The dtype of the arrays that were taken apart, of which there may be no element left.
    apart: Option<DType>,
}

impl<'py> Nested<'py> {
    /// Reads a list to its end.
    fn read(outermost: Sequence<'py>) -> PyResult<Nested<'py>> {
        if let Some(nested) = Nested::read_as(outermost.clone(), false)? {
            return Ok(nested);
        }
        let mixed = Nested::read_as(outermost.clone(), true)?;
        mixed.ok_or_else(|| ragged(outermost.py(), "a part", "another depth"))
    }

    /// Reads a list to its end: arrays are items, or else taken apart like lists. Nothing comes of
    /// it where a list stands beside an array that is an item.
    fn read_as(outermost: Sequence<'py>, apart: bool) -> PyResult<Option<Nested<'py>>> {
        let py = outermost.py();
        let mut apart_as: Option<DType> = None;
        let mut dims = vec![outermost.len()];
        let mut items: Vec<Item> = Vec::new();
        let mut inner: Option<Vec<usize>> = None;
        // The lists that are open, and the next position in each.
        let mut open = vec![(outermost, 0)];
        while let Some((list, next)) = open.last_mut() {
            if *next >= list.len() {
                open.pop();
                continue;
            }
            let entry = list.get(*next)?;
            *next += 1;
            let depth = open.len();
            let place = |open: &[(Sequence, usize)]| -> String {
                let place: Vec<usize> = open.iter().map(|(_, next)| next - 1).collect();
                brackets(&place)
            };
            let deeper = match Sequence::of(&entry) {
                Some(list) => Entry::Sequence(list),
                None => match read(&entry)? {
                    Entry::Item(item) if apart && !item.shape().is_empty() => {
                        apart_as = match (apart_as, item.dtype()) {
                            (Some(a), Some(b)) => Some(DType::promote(a, b)),
                            (a, b) => a.or(b),
                        };
                        Entry::Sequence(item.entries(py)?)
                    }
                    other => other,
                },
            };
            match deeper {
                Entry::Sequence(list) => {
                    let n = list.len();
                    let known = dims.get(depth).copied();
                    if known.is_none() && inner.as_ref().is_some_and(|i| !i.is_empty()) {
                        return Ok(None);
                    }
                    if inner.is_some() && known.is_none() {
                        let what = format!("a list of {n}, where a number came before");
                        return Err(ragged(py, &place(&open), &what));
                    }
                    match known {
                        Some(m) if m != n => {
                            let what = format!("{n} entries, where {m} came before");
                            return Err(ragged(py, &place(&open), &what));
                        }
                        Some(_) => {}
                        None if depth == DEEPEST => {
                            let message = format!(
                                "lists are nested more than {DEEPEST} deep; is one in itself?"
                            );
                            return Err(shape_error(py, "Tensor", message));
                        }
                        None => dims.push(n),
                    }
                    open.push((list, 0));
                }
                Entry::Item(item) => {
                    if dims.len() > depth && !item.shape().is_empty() {
                        return Ok(None);
                    }
                    if dims.len() > depth {
                        let what = format!("no list, where one of {} came before", dims[depth]);
                        return Err(ragged(py, &place(&open), &what));
                    }
                    match &inner {
                        None => {
                            inner = Some(item.shape().to_vec());
                            reserve(&mut items, &dims)?;
                        }
                        Some(shape) if *shape != item.shape() => {
                            let (found, before) = (tuple(item.shape()), tuple(shape));
                            let what = format!("shape {found}, where {before} came before");
                            return Err(ragged(py, &place(&open), &what));
                        }
                        Some(_) => {}
                    }
                    items.push(item);
                    if items.len().is_multiple_of(STRETCH) {
                        py.check_signals()?;
                    }
                }
            }
        }
        if dims.iter().product::<usize>() != items.len() {
            let message = "the list changed while it was read".into();
            return Err(shape_error(py, "Tensor", message));
        }
        let inner = inner.unwrap_or_default();
        Ok(Some(Nested {
            dims,
            items,
            inner,
            apart: apart_as,
        }))
    }

    fn shape(&self) -> Vec<usize> {
        [&self.dims[..], &self.inner].concat()
    }

    /// The way to item k.
    fn place(&self, mut k: usize) -> Vec<usize> {
        let mut place = vec![0; self.dims.len()];
        for (position, &n) in place.iter_mut().zip(&self.dims).rev() {
            *position = k % n;
            k /= n;
        }
        place
    }
}

/// Room for all items, or an exception where there would be none: an innocent list that holds
/// itself many times over may stand for more than any memory.
fn reserve(items: &mut Vec<Item>, dims: &[usize]) -> PyResult<()> {
    let n = dims.iter().copied().try_fold(1, usize::checked_mul);
    n.and_then(|n| items.try_reserve_exact(n).ok())
        .ok_or_else(|| out_of_memory(dims))
}

fn out_of_memory(dims: &[usize]) -> PyErr {
    let dims = tuple(dims);
    PyMemoryError::new_err(format!(
        "a list of shape {dims} has more elements than memory holds"
    ))
}

fn tuple(dims: &[usize]) -> String {
    uopc::tensor::Shape::new(dims).to_string()
}

fn ragged(py: Python<'_>, place: &str, what: &str) -> PyErr {
    let message = format!(
        "the list is ragged: {place} has {what}; entries at one depth need one shape, so pad the \
         shorter ones"
    );
    shape_error(py, "Tensor", message)
}

/// The tensor of a nested list. With tensors in it gradients flow to them.
///
/// # Errors
/// When it has no shape, or an entry that no tensor holds.
pub fn tensor_of(list: Sequence<'_>, dtype: Option<DType>) -> PyResult<Tensor> {
    let py = list.py();
    let nested = Nested::read(list)?;
    let common = match nested.apart {
        Some(dtype) if nested.items.is_empty() => dtype,
        _ => common_dtype(&nested.items),
    };
    if nested.items.iter().any(|i| matches!(i, Item::Tensor(_))) {
        return stacked(py, &nested, dtype.unwrap_or(common));
    }
    let dtype = dtype.unwrap_or(common);
    let bytes = elements(py, &nested, dtype)?;
    build(py, || Tensor::from_bytes(&bytes, dtype, nested.shape()))
}

/// The elements as bytes in the machine's order.
fn elements(py: Python<'_>, nested: &Nested<'_>, dtype: DType) -> PyResult<Vec<u8>> {
    let shape = nested.shape();
    let n = shape
        .iter()
        .copied()
        .try_fold(dtype.size(), usize::checked_mul);
    let mut bytes: Vec<u8> = Vec::new();
    n.and_then(|n| bytes.try_reserve_exact(n).ok())
        .ok_or_else(|| out_of_memory(&shape))?;
    for (k, item) in nested.items.iter().enumerate() {
        match item {
            Item::Float(value) if dtype == DType::F32 => {
                bytes.extend_from_slice(&(*value as f32).to_ne_bytes());
            }
            Item::Array(array) => {
                let plain = match Plain::new(array) {
                    Some(plain) => plain,
                    None => arrays::plain_copy(array)?,
                };
                plain.read(|source| append(&mut bytes, source, plain.dtype(), dtype));
            }
            number => {
                let place = || nested.place(k);
                let value = match number {
                    // Only an integer's error needs the place.
                    Item::Int(_) => scalar(py, number, dtype, &place())?,
                    _ => scalar(py, number, dtype, &[])?,
                };
                push(&mut bytes, value);
            }
        }
        if k % STRETCH == STRETCH - 1 {
            py.check_signals()?;
        }
    }
    Ok(bytes)
}

/// Appends elements, cast by the library's rule if need be.
fn append(bytes: &mut Vec<u8>, source: &[u8], from: DType, to: DType) {
    if from == to {
        bytes.extend_from_slice(source);
        return;
    }
    for element in source.chunks_exact(from.size()) {
        let value = element_of(element, from);
        push(bytes, scalar::apply(&Op::Cast(to), to, &[value]));
    }
}

/// An element from its bytes in the machine's order.
pub fn element_of(element: &[u8], dtype: DType) -> Scalar {
    let mut bits = [0; 8];
    let size = element.len();
    if cfg!(target_endian = "little") {
        bits[..size].copy_from_slice(element);
    } else {
        bits[8 - size..].copy_from_slice(element);
    }
    Scalar::from_bits(dtype, u64::from_ne_bytes(bits))
}

fn push(bytes: &mut Vec<u8>, value: Scalar) {
    let size = value.dtype().size();
    let bits = value.bits().to_ne_bytes();
    let element = if cfg!(target_endian = "little") {
        &bits[..size]
    } else {
        &bits[8 - size..]
    };
    bytes.extend_from_slice(element);
}

/// Items along new axes, as a graph.
fn stacked(py: Python<'_>, nested: &Nested<'_>, dtype: DType) -> PyResult<Tensor> {
    let mut tensors = Vec::with_capacity(nested.items.len());
    for (k, item) in nested.items.iter().enumerate() {
        tensors.push(match item {
            Item::Tensor(tensor) => tensor.clone(),
            Item::Array(array) => arrays::copied(array.as_any())?,
            number => {
                let mut bytes = Vec::with_capacity(dtype.size());
                push(&mut bytes, scalar(py, number, dtype, &nested.place(k))?);
                build(py, || Tensor::from_bytes(&bytes, dtype, ()))?
            }
        });
    }
    build(py, || {
        let cast: Vec<Tensor> = tensors
            .iter()
            .map(|t| t.cast(dtype))
            .collect::<Result<_, _>>()?;
        Tensor::stack(&cast, 0)?.reshape(nested.shape())
    })
}
