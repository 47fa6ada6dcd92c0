//! Tensors taken apart along an axis, and put together in the ways that have names of their own.

use std::borrow::Borrow;

use super::args::{Integer, axis_of};
use super::{Result, Site, Tensor, shape_error};

/// More parts than this are a slip: each is a tensor of its own.
const MOST: usize = 1 << 24;

/// A number of parts that can be made.
fn few(op: &'static str, count: usize) -> Result<usize> {
    if count > MOST {
        let message = format!("{count} parts, each a tensor of its own; {MOST} are the most");
        return Err(shape_error(op, message));
    }
    Ok(count)
}

impl Tensor {
    /// Parts of `size` positions of an axis; the last one may be smaller.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let parts = Tensor::arange(5)?.split(2, 0)?;
    /// assert_eq!(parts.len(), 3);
    /// assert_eq!(parts[2].to_vec::<i32>()?, [4]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis, or the size is 0 and the axis is not.
    #[track_caller]
    pub fn split(&self, size: usize, axis: impl Integer) -> Result<Vec<Tensor>> {
        let _site = Site::caller().enter();
        let n = self.shape()[axis_of("split", self.shape(), axis.signed())?];
        if size == 0 && n > 0 {
            let message = format!("{n} positions are no number of parts of 0");
            return Err(shape_error("split", message));
        }
        let count = few("split", n.div_ceil(size.max(1)).max(1))?;
        let ends: Vec<usize> = (1..=count).map(|k| k.saturating_mul(size).min(n)).collect();
        self.cut("split", &ends, axis)
    }

    /// Parts of these sizes, one after the other.
    ///
    /// # Errors
    /// When there is no such axis, or the sizes do not add up to its extent.
    #[track_caller]
    pub fn split_with_sizes(&self, sizes: &[usize], axis: impl Integer) -> Result<Vec<Tensor>> {
        let _site = Site::caller().enter();
        let axis = axis_of("split", self.shape(), axis.signed())?;
        let mut end = 0usize;
        let mut ends = Vec::with_capacity(sizes.len());
        for size in sizes {
            end = end.saturating_add(*size);
            ends.push(end);
        }
        let n = self.shape()[axis];
        if end != n {
            let message =
                format!("sizes {sizes:?} add up to {end}, and axis {axis} has extent {n}");
            return Err(shape_error("split", message));
        }
        self.cut("split", &ends, axis)
    }

    /// At most `count` parts of equal size; the last one may be smaller, and there may be fewer, as
    /// of [`split`](Self::split) with the size that is needed.
    ///
    /// # Errors
    /// When there is no such axis, or the count is 0.
    #[track_caller]
    pub fn chunk(&self, count: usize, axis: impl Integer) -> Result<Vec<Tensor>> {
        let _site = Site::caller().enter();
        let axis = axis_of("chunk", self.shape(), axis.signed())?;
        if count == 0 {
            return Err(shape_error(
                "chunk",
                "0 parts hold nothing; give 1 or more".into(),
            ));
        }
        let n = self.shape()[axis];
        if n == 0 {
            // All of them are empty, and equal.
            return self.cut("chunk", &vec![0; few("chunk", count)?], axis);
        }
        self.split(n.div_ceil(count), axis)
    }

    /// Exactly `count` parts, the first ones larger by one where the extent does not divide.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let parts = Tensor::arange(5)?.tensor_split(3, 0)?;
    /// let sizes: Vec<usize> = parts.iter().map(Tensor::numel).collect();
    /// assert_eq!(sizes, [2, 2, 1]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis, or the count is 0.
    #[track_caller]
    pub fn tensor_split(&self, count: usize, axis: impl Integer) -> Result<Vec<Tensor>> {
        let _site = Site::caller().enter();
        let axis = axis_of("tensor_split", self.shape(), axis.signed())?;
        if count == 0 {
            let message = "0 parts hold nothing; give 1 or more".into();
            return Err(shape_error("tensor_split", message));
        }
        let (size, larger) = (self.shape()[axis] / count, self.shape()[axis] % count);
        let count = few("tensor_split", count)?;
        let ends: Vec<usize> = (1..=count).map(|k| k * size + k.min(larger)).collect();
        self.cut("tensor_split", &ends, axis)
    }

    /// The parts between positions: before the first one, from each to the next, and from the last
    /// on. Negative ones count from the end; what lies outside is cut off, as in a slice of Python.
    ///
    /// # Errors
    /// When there is no such axis.
    #[track_caller]
    pub fn tensor_split_at(&self, positions: &[i64], axis: impl Integer) -> Result<Vec<Tensor>> {
        let _site = Site::caller().enter();
        let axis = axis_of("tensor_split", self.shape(), axis.signed())?;
        let n = self.shape()[axis];
        let place = |p: i64| {
            let p = p as i128;
            (if p < 0 { p + n as i128 } else { p }).clamp(0, n as i128) as usize
        };
        let mut bounds: Vec<usize> = positions.iter().map(|&p| place(p)).collect();
        bounds.push(n);
        let mut parts = Vec::with_capacity(bounds.len());
        let mut begin = 0;
        for end in bounds {
            parts.push(self.window(axis, begin, end.max(begin))?);
            begin = end;
        }
        Ok(parts)
    }

    /// The entries of an axis one by one, without it.
    ///
    /// # Errors
    /// When there is no such axis.
    #[track_caller]
    pub fn unbind(&self, axis: impl Integer) -> Result<Vec<Tensor>> {
        let _site = Site::caller().enter();
        let axis = axis_of("unbind", self.shape(), axis.signed())?;
        let entries = 0..few("unbind", self.shape()[axis])?;
        entries.map(|k| self.narrow(axis, k)).collect()
    }

    /// The parts that end there, each beginning where the one before ends.
    fn cut(&self, op: &'static str, ends: &[usize], axis: impl Integer) -> Result<Vec<Tensor>> {
        let axis = axis_of(op, self.shape(), axis.signed())?;
        let mut begin = 0;
        let mut parts = Vec::with_capacity(ends.len());
        for &end in ends {
            parts.push(self.window(axis, begin, end)?);
            begin = end;
        }
        Ok(parts)
    }

    fn window(&self, axis: usize, begin: usize, end: usize) -> Result<Tensor> {
        let mut bounds: Vec<(usize, usize)> = self.shape().iter().map(|&d| (0, d)).collect();
        bounds[axis] = (begin, end);
        self.map(|x| x.shrink(&bounds))
    }

    /// Tensors side by side: along the second axis, or along the only one. Scalars count as vectors
    /// of one element.
    ///
    /// # Errors
    /// When there are none, or another axis differs.
    #[track_caller]
    pub fn hstack<T: Borrow<Tensor>>(tensors: &[T]) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let tensors = tensors.iter().map(|t| t.borrow().at_least(1));
        let tensors = tensors.collect::<Result<Vec<Tensor>>>()?;
        let is_vector = tensors.first().is_some_and(|t| t.rank() == 1);
        Tensor::cat(&tensors, if is_vector { 0 } else { 1 })
    }

    /// Tensors one below the other, along the first axis. Vectors count as rows, scalars as rows of
    /// one element.
    ///
    /// # Errors
    /// When there are none, or another axis differs.
    #[track_caller]
    pub fn vstack<T: Borrow<Tensor>>(tensors: &[T]) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let tensors = tensors.iter().map(|t| t.borrow().at_least(2));
        Tensor::cat(&tensors.collect::<Result<Vec<Tensor>>>()?, 0)
    }

    /// Tensors one behind the other, along the third axis. A matrix of shape (m, n) counts as one of
    /// (m, n, 1), a vector of n elements as (1, n, 1), a scalar as (1, 1, 1).
    ///
    /// # Errors
    /// When there are none, or another axis differs.
    #[track_caller]
    pub fn dstack<T: Borrow<Tensor>>(tensors: &[T]) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let tensors = tensors.iter().map(|t| {
            let t = t.borrow().at_least(2)?;
            if t.rank() == 2 { t.unsqueeze(2) } else { Ok(t) }
        });
        Tensor::cat(&tensors.collect::<Result<Vec<Tensor>>>()?, 2)
    }

    /// With axes of extent 1 in front until there are so many.
    fn at_least(&self, rank: usize) -> Result<Tensor> {
        let mut dims = vec![1; rank.saturating_sub(self.rank())];
        dims.extend_from_slice(self.shape());
        self.map(|x| x.reshape(&dims))
    }
}
