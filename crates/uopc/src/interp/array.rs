//! A dense array of one dtype: every element its own word, no views.

use std::fmt;

use crate::error::{Error, Result};
use crate::ir::{DType, Scalar, Shape};

/// A value of a shape graph: the elements in row-major order.
///
/// Each element is kept as the bits of a [`Scalar`], so equality is equality to the last bit, with
/// all NaNs of a dtype equal and 0.0 different from -0.0.
#[derive(Clone, PartialEq, Eq)]
pub struct Array {
    dtype: DType,
    shape: Shape,
    data: Vec<u64>,
}

impl Array {
    /// The array of these elements.
    ///
    /// ```
    /// use uopc::interp::Array;
    /// use uopc::ir::{DType, Scalar};
    ///
    /// let x = Array::from_f64(DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 0.1]).expect("four numbers");
    /// assert_eq!(x.get(3), Scalar::f32(0.1));
    /// assert_eq!(x.to_bytes().len(), 16);
    /// ```
    ///
    /// # Errors
    /// When there are more or fewer than the shape says.
    pub fn from_f64(dtype: DType, shape: &[usize], values: &[f64]) -> Result<Array> {
        let bits = values.iter().map(|&v| Scalar::from_f64(dtype, v).bits());
        Array::with_words(dtype, Shape::new(shape), bits.collect())
    }

    /// The array of these integers; they wrap where the dtype is too narrow.
    ///
    /// # Errors
    /// When there are more or fewer than the shape says.
    pub fn from_ints(dtype: DType, shape: &[usize], values: &[i64]) -> Result<Array> {
        let bits = values
            .iter()
            .map(|&v| Scalar::from_i128(dtype, v as i128).bits());
        Array::with_words(dtype, Shape::new(shape), bits.collect())
    }

    /// The array of these scalars.
    ///
    /// # Errors
    /// When there are more or fewer than the shape says, or one has another dtype.
    pub fn from_scalars(dtype: DType, shape: &[usize], values: &[Scalar]) -> Result<Array> {
        if let Some(other) = values.iter().find(|v| v.dtype() != dtype) {
            let message = format!("a {} among {dtype} elements; convert it", other.dtype());
            return Err(Error::DType {
                op: "array",
                message,
                site: None,
            });
        }
        let bits = values.iter().map(|v| v.bits()).collect();
        Array::with_words(dtype, Shape::new(shape), bits)
    }

    /// The array in little-endian memory.
    ///
    /// # Errors
    /// When the memory is longer or shorter than the shape says.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Array> {
        if !bytes.len().is_multiple_of(dtype.size()) {
            let message = format!(
                "{} bytes are no whole number of {dtype} elements",
                bytes.len()
            );
            return Err(Error::Shape {
                op: "array",
                message,
                site: None,
            });
        }
        let words = bytes.chunks_exact(dtype.size()).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            Scalar::from_bits(dtype, u64::from_le_bytes(word)).bits()
        });
        Array::with_words(dtype, Shape::new(shape), words.collect())
    }

    /// The array of a shape whose elements are all `value`.
    pub fn full(value: Scalar, shape: &Shape) -> Array {
        let data = vec![value.bits(); shape.numel()];
        Array {
            dtype: value.dtype(),
            shape: shape.clone(),
            data,
        }
    }

    /// The array of these words, each the bits of a scalar of the dtype.
    pub(super) fn with_words(dtype: DType, shape: Shape, data: Vec<u64>) -> Result<Array> {
        if data.len() != shape.numel() {
            let (have, want) = (data.len(), shape.numel());
            let message = format!("{have} elements for shape {shape}, which has {want}");
            return Err(Error::Shape {
                op: "array",
                message,
                site: None,
            });
        }
        Ok(Array { dtype, shape, data })
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Element `i` in row-major order.
    ///
    /// # Panics
    /// If there is no such element.
    pub fn get(&self, i: usize) -> Scalar {
        Scalar::from_bits(self.dtype, self.data[i])
    }

    /// All elements in row-major order.
    pub fn scalars(&self) -> impl ExactSizeIterator<Item = Scalar> + '_ {
        self.data
            .iter()
            .map(|&bits| Scalar::from_bits(self.dtype, bits))
    }

    /// The elements' bits, as [`Scalar::bits`] gives them.
    pub fn words(&self) -> &[u64] {
        &self.data
    }

    /// The elements as f64, rounded where an f64 does not hold them.
    pub fn to_f64(&self) -> Vec<f64> {
        self.scalars().map(Scalar::as_f64).collect()
    }

    /// The elements in little-endian memory.
    pub fn to_bytes(&self) -> Vec<u8> {
        let size = self.dtype.size();
        let words = self.data.iter();
        words
            .flat_map(|w| w.to_le_bytes().into_iter().take(size))
            .collect()
    }

    /// The same elements under another shape.
    ///
    /// # Errors
    /// When the numbers of elements differ.
    pub fn reshaped(self, shape: &[usize]) -> Result<Array> {
        Array::with_words(self.dtype, Shape::new(shape), self.data)
    }

    /// What makes two arrays differ: dtype, shape, or the first element that is not the same to
    /// the last bit. `None` if they are equal.
    pub fn difference(&self, other: &Array) -> Option<String> {
        if (self.dtype, &self.shape) != (other.dtype, &other.shape) {
            let (a, b) = (self.dtype, other.dtype);
            return Some(format!("{a}{} against {b}{}", self.shape, other.shape));
        }
        let i = (0..self.len()).find(|&i| self.data[i] != other.data[i])?;
        let (a, b) = (self.get(i), other.get(i));
        let (x, y) = (a.bits(), b.bits());
        Some(format!(
            "element {i} of {}: {a} ({x:#x}) against {b} ({y:#x})",
            self.shape
        ))
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}{} [", self.dtype, self.shape)?;
        for (i, value) in self.scalars().enumerate() {
            write!(f, "{}{value}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str("]")
    }
}
