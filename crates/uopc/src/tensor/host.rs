//! Between tensors and host memory: slices, vectors, `ndarray` arrays, bytes.
//!
//! What is borrowed is copied in and out, so a later change of the caller's array does not reach the
//! tensor. [`Tensor::from_vec`] and [`Tensor::from_array`] take memory over instead,
//! [`Tensor::from_storage`], [`Tensor::memory`] and [`Tensor::values`] share it.

use std::sync::Arc;

use ndarray::{Array, ArrayBase, ArrayD, ArrayViewD, Data, Dimension, IxDyn};

use super::args::{Dims, shape_of};
use super::{DType, Element, Result, Shape, Site, Tensor, dtype_error, history, shape_error};
use crate::ir::Scalar;
use crate::runtime::Storage;

impl Tensor {
    /// A tensor of that shape with a copy of the elements, in row-major order.
    ///
    /// Each such tensor is a leaf of its own, also if the contents of two are equal.
    ///
    /// # Errors
    /// When the shape does not have that many elements.
    #[track_caller]
    pub fn from_slice<T: Element>(values: &[T], shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = shape_of("from_slice", shape)?;
        if shape.numel() != values.len() {
            let (n, m) = (values.len(), shape.numel());
            let message = format!("{n} values do not fill shape {shape}, which has {m} elements");
            return Err(shape_error("from_slice", message));
        }
        let leaf = history::leaf(Storage::from_slice(values)?, T::DTYPE, &shape)?;
        Ok(Tensor::new(leaf, false))
    }

    /// [`from_slice`](Self::from_slice) from elements given as bytes, in the machine's order.
    ///
    /// # Errors
    /// When the number of bytes does not fit, or a byte of a bool is neither 0 nor 1.
    #[track_caller]
    pub fn from_bytes(bytes: &[u8], dtype: DType, shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = shape_of("from_bytes", shape)?;
        if shape.numel().checked_mul(dtype.size()) != Some(bytes.len()) {
            let n = bytes.len();
            let message = format!("{n} bytes do not fill shape {shape} of {dtype}");
            return Err(shape_error("from_bytes", message));
        }
        check_bools("from_bytes", dtype, bytes)?;
        let leaf = history::leaf(Storage::from_bytes(bytes)?, dtype, &shape)?;
        Ok(Tensor::new(leaf, false))
    }

    /// A tensor over memory that is there already, elements in row-major order and in the
    /// machine's byte order, without a copy. Several tensors may share one memory; each is a leaf
    /// of its own.
    ///
    /// # Errors
    /// When the number of bytes does not fit, the memory is not aligned to the dtype's elements,
    /// or a byte of a bool is neither 0 nor 1.
    #[track_caller]
    pub fn from_storage(storage: Arc<Storage>, dtype: DType, shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = shape_of("from_storage", shape)?;
        let (n, size) = (storage.bytes(), dtype.size());
        if shape.numel().checked_mul(size) != Some(n) {
            let message = format!("{n} bytes do not fill shape {shape} of {dtype}");
            return Err(shape_error("from_storage", message));
        }
        // Nothing is read through a pointer to 0 bytes.
        if n > 0 && !storage.pointer().addr().is_multiple_of(size) {
            let message = format!(
                "the memory is not aligned to the {size} bytes of an element of {dtype}; copy it \
                 with from_bytes"
            );
            return Err(dtype_error("from_storage", message));
        }
        check_bools("from_storage", dtype, storage.as_bytes())?;
        let leaf = history::leaf(storage, dtype, &shape)?;
        Ok(Tensor::new(leaf, false))
    }

    /// A copy of an array of any layout.
    ///
    /// # Errors
    /// When memory runs out.
    #[track_caller]
    pub fn from_ndarray<T, S, D>(array: &ArrayBase<S, D>) -> Result<Tensor>
    where
        T: Element,
        S: Data<Elem = T>,
        D: Dimension,
    {
        let _site = Site::caller().enter();
        match array.as_slice() {
            Some(values) => Tensor::from_slice(values, array.shape()),
            None => {
                let values: Vec<T> = array.iter().copied().collect();
                Tensor::from_slice(&values, array.shape())
            }
        }
    }

    /// A tensor of that shape over a vector's elements in row-major order, without a copy.
    ///
    /// # Errors
    /// When the shape does not have that many elements.
    #[track_caller]
    pub fn from_vec<T: Element>(values: Vec<T>, shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = shape_of("from_vec", shape)?;
        if shape.numel() != values.len() {
            let (n, m) = (values.len(), shape.numel());
            let message = format!("{n} values do not fill shape {shape}, which has {m} elements");
            return Err(shape_error("from_vec", message));
        }
        let leaf = history::leaf(Storage::from_vec(values), T::DTYPE, &shape)?;
        Ok(Tensor::new(leaf, false))
    }

    /// A tensor over an array's elements, which are not copied if the array has no gaps and runs
    /// forwards, in whatever order of axes: that of Fortran becomes a permutation.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let rows = ndarray::array![[1, 2, 3], [4, 5, 6]];
    /// let columns = Tensor::from_array(rows.reversed_axes())?;
    /// assert_eq!(columns.to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When memory runs out.
    #[track_caller]
    pub fn from_array<T: Element, D: Dimension>(array: Array<T, D>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let dims = array.shape().to_vec();
        // The axes from the one with the largest steps to the one with the smallest.
        let steps = array.strides().to_vec();
        let mut order: Vec<usize> = (0..dims.len()).collect();
        order.sort_by_key(|&k| std::cmp::Reverse(steps[k]));
        let in_memory: Vec<usize> = order.iter().map(|&k| dims[k]).collect();
        let expected = Shape::new(&in_memory).strides();
        let mut axes = order.iter().zip(&expected);
        let is_dense = axes.all(|(&k, &step)| dims[k] == 1 || steps[k] == step as isize);
        let n = array.len();
        if n == 0 || !is_dense {
            return Tensor::from_ndarray(&array);
        }
        let (values, begin) = array.into_raw_vec_and_offset();
        let begin = begin.unwrap_or(0);
        let tensor = match begin == 0 && values.len() == n {
            true => Tensor::from_vec(values, &in_memory)?,
            false => Tensor::from_slice(&values[begin..begin + n], &in_memory)?,
        };
        let back = super::gather::inverse(&order);
        tensor.map(|x| x.permute(&back))
    }

    /// The elements in row-major order, computed if need be, without a copy.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let squares = Tensor::arange(4)?.reshape([2, 2])?.square()?.values::<i32>()?;
    /// assert_eq!(squares[3], 9);
    /// assert_eq!(squares.view().sum(), 14);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the tensor has another dtype, or can't be computed.
    #[track_caller]
    pub fn values<T: Element>(&self) -> Result<Values<T>> {
        let _site = Site::caller().enter();
        if self.dtype() != T::DTYPE {
            let (found, asked) = (self.dtype(), T::DTYPE);
            let message = format!("the tensor holds {found}, not {asked}; cast it first");
            return Err(dtype_error("values", message));
        }
        let memory = self.storage()?;
        let held = match memory.as_slice::<T>() {
            Some(_) => Held::Shared(memory),
            None => Held::Own(memory.to_vec()),
        };
        let shape = self.shape().clone();
        Ok(Values { held, shape })
    }

    /// The elements in row-major order, computed if need be.
    ///
    /// # Errors
    /// When the tensor has another dtype, or can't be computed.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let _site = Site::caller().enter();
        if self.dtype() != T::DTYPE {
            let (found, asked) = (self.dtype(), T::DTYPE);
            let message = format!("the tensor holds {found}, not {asked}; cast it first");
            return Err(dtype_error("to_vec", message));
        }
        Ok(self.storage()?.to_vec())
    }

    /// The elements as bytes in the machine's order, computed if need be.
    ///
    /// # Errors
    /// When the tensor can't be computed.
    #[track_caller]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let _site = Site::caller().enter();
        Ok(self.storage()?.as_bytes().to_vec())
    }

    /// The single element as it is, computed if need be: integers of 64 bits are exact, unlike in
    /// [`item`](Self::item).
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([u64::MAX]);
    /// assert_eq!(t.scalar_value()?.as_i128(), u64::MAX as i128);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is not exactly one, or the tensor can't be computed.
    #[track_caller]
    pub fn scalar_value(&self) -> Result<Scalar> {
        let _site = Site::caller().enter();
        self.only_element("scalar_value")
    }

    /// Whether the single element is anything but 0; a NaN is.
    ///
    /// # Errors
    /// When there is not exactly one, or the tensor can't be computed.
    #[track_caller]
    pub fn truth(&self) -> Result<bool> {
        let _site = Site::caller().enter();
        if self.numel() != 1 {
            let (shape, n) = (self.shape(), self.numel());
            let message = format!(
                "the truth of shape {shape} with {n} elements is ambiguous; use any or all"
            );
            return Err(shape_error("truth", message));
        }
        Ok(self.only_element("truth")?.as_bool())
    }

    pub(super) fn only_element(&self, op: &'static str) -> Result<Scalar> {
        if self.numel() != 1 {
            let (shape, n) = (self.shape(), self.numel());
            let message = format!("shape {shape} has {n} elements, not one; use to_vec");
            return Err(shape_error(op, message));
        }
        Ok(scalar_at(&*self.storage()?, self.dtype(), 0))
    }

    /// The memory that holds the elements, computed if need be, without a copy: row-major, in the
    /// machine's byte order, and never written as long as anyone owns it.
    ///
    /// # Errors
    /// When the tensor can't be computed.
    #[track_caller]
    pub fn memory(&self) -> Result<Arc<Storage>> {
        let _site = Site::caller().enter();
        self.storage()
    }

    /// The elements as an array, computed if need be.
    ///
    /// # Errors
    /// When the tensor has another dtype, or can't be computed.
    #[track_caller]
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        let _site = Site::caller().enter();
        let values = self.to_vec()?;
        Ok(ArrayD::from_shape_vec(IxDyn(self.shape()), values)
            .expect("a tensor has as many elements as its shape says"))
    }
}

/// The elements of a tensor, in the memory where they were computed. They stay what they are when the
/// tensor is assigned to.
pub struct Values<T> {
    held: Held<T>,
    shape: Shape,
}

enum Held<T> {
    Shared(Arc<Storage>),
    /// A copy, where the memory can't be read as elements.
    Own(Vec<T>),
}

impl<T: Element> Values<T> {
    /// The elements as an array of the tensor's shape, without a copy.
    pub fn view(&self) -> ArrayViewD<'_, T> {
        ArrayViewD::from_shape(IxDyn(&self.shape), self)
            .expect("a tensor has as many elements as its shape says")
    }
}

impl<T: Element> std::ops::Deref for Values<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.held {
            Held::Shared(memory) => memory.as_slice().unwrap_or(&[]),
            Held::Own(values) => values,
        }
    }
}

/// Kernels read bools as 0 and 1, and give other results for any other byte.
fn check_bools(op: &'static str, dtype: DType, bytes: &[u8]) -> Result<()> {
    if dtype == DType::Bool
        && let Some(bad) = bytes.iter().find(|b| **b > 1)
    {
        let message = format!("the byte {bad} is no bool; 0 is false and 1 is true");
        return Err(dtype_error(op, message));
    }
    Ok(())
}

/// Element i of memory that holds elements of that dtype.
pub(super) fn scalar_at(storage: &Storage, dtype: DType, i: usize) -> Scalar {
    let size = dtype.size();
    let mut bits = [0; 8];
    let bytes = &storage.as_bytes()[i * size..(i + 1) * size];
    if cfg!(target_endian = "little") {
        bits[..size].copy_from_slice(bytes);
    } else {
        bits[8 - size..].copy_from_slice(bytes);
    }
    Scalar::from_bits(dtype, u64::from_ne_bytes(bits))
}

impl<T: Element> From<&[T]> for Tensor {
    /// A tensor of one axis; see [`Tensor::from_slice`].
    fn from(values: &[T]) -> Tensor {
        of_storage(values, &[values.len()])
    }
}

impl<T: Element> From<Vec<T>> for Tensor {
    /// A tensor of one axis; see [`Tensor::from_slice`].
    fn from(values: Vec<T>) -> Tensor {
        of_storage(&values, &[values.len()])
    }
}

impl<T: Element, const N: usize> From<[T; N]> for Tensor {
    /// A tensor of one axis. Note that `[1.0, 2.0]` alone is f64 in Rust.
    fn from(values: [T; N]) -> Tensor {
        of_storage(&values, &[N])
    }
}

impl<T: Element, const N: usize, const M: usize> From<[[T; M]; N]> for Tensor {
    /// A tensor of two axes, one row an inner array.
    fn from(rows: [[T; M]; N]) -> Tensor {
        of_storage(rows.as_flattened(), &[N, M])
    }
}

fn of_storage<T: Element>(values: &[T], dims: &[usize]) -> Tensor {
    Tensor::from_slice(values, dims).expect("the shape was made for the values, which fit memory")
}

impl Shape {
    /// The row-major distance between neighbours along each axis, in elements.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1usize; self.rank()];
        for k in (1..self.rank()).rev() {
            strides[k - 1] = strides[k].saturating_mul(self[k]);
        }
        strides
    }
}
