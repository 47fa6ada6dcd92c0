//! Parts of a tensor: by position, by ranges, by integer tensors.

use super::args::{Integer, axis_of};
use super::slices::{Part, Pick, Slice, Slices};
use super::{DType, Result, Site, Tensor, UOp, dtype_error};
use crate::ir::{Scalar, composite};

impl Tensor {
    /// A part, as in NumPy: `t.slice((1..3, .., -1))` keeps rows 1 and 2 and the last entry of
    /// the third axis, which disappears. Axes that are not named stay whole. [`Slice`] says what
    /// else there is: steps, new axes, and the rest of the axes.
    ///
    /// ```
    /// # use uopc::{Tensor, tensor::Slice};
    /// let t = Tensor::arange(12)?.reshape([3, 4])?;
    /// assert_eq!(t.slice((1.., -1))?.to_vec::<i32>()?, [7, 11]);
    /// // Python's t[..., ::-2]
    /// let backwards = t.slice([Slice::Rest, Slice::Stepped(None, None, -2)])?;
    /// assert_eq!(backwards.to_vec::<i32>()?, [3, 1, 7, 5, 11, 9]);
    /// assert_eq!(t.slice((0, Slice::NewAxis))?.shape()[..], [1, 4]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there are more slices than axes, or two rests; when a position does not exist or a
    /// range of Rust leaves its axis; when a step is 0.
    #[track_caller]
    pub fn slice(&self, slices: impl Slices) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let part = Part::of("slice", self.shape(), &slices.slices())?;
        self.map(|x| read(x, &part))
    }

    /// The entry at a position of the first axis, which disappears.
    ///
    /// # Errors
    /// When there is no axis or no such position.
    #[track_caller]
    pub fn get(&self, position: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.slice(Slice::At(position.signed()))
    }

    /// The range of one axis, the others whole.
    ///
    /// # Errors
    /// When there is no such axis, or the range leaves it.
    #[track_caller]
    pub fn narrow(&self, axis: impl Integer, range: impl Into<Slice>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("narrow", self.shape(), axis.signed())?;
        let mut slices = vec![Slice::Between(None, None); axis];
        slices.push(range.into());
        self.slice(slices)
    }

    /// The entries of the first axis at the positions in an integer tensor: the result has the
    /// positions' shape and then the other axes. Negative positions count from the end; out of
    /// range reads zeros. The gradient by this tensor is a [`segment_sum`](Self::segment_sum): a
    /// position that is out of range passes nothing on, one that is read several times gets a sum.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
    /// let rows = t.take(&Tensor::from_slice(&[1, -2, 1, 7], [4])?)?;
    /// assert_eq!(rows.to_vec::<f32>()?, [3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the positions are not integers or there is no axis.
    #[track_caller]
    pub fn take(&self, positions: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        axis_of("take", self.shape(), 0)?;
        let at = places("take", positions, self.shape()[0])?;
        self.map(|x| x.index(&[at]))
    }

    /// Ones where a label meets its class, zeros elsewhere: labels of shape S give f32 of shape
    /// S + (classes,). A label that is no class gives zeros only.
    ///
    /// # Errors
    /// When the labels are not integers.
    #[track_caller]
    pub fn one_hot(&self, classes: usize) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let hot = is_class("one_hot", &self.uop(), classes)?;
        Ok(Tensor::new(hot.cast(DType::F32)?, false))
    }
}

/// Positions of an axis of extent n, those from the end counted from the beginning.
pub(super) fn places(op: &'static str, positions: &Tensor, n: usize) -> Result<UOp> {
    if !positions.dtype().is_int() {
        let dtype = positions.dtype();
        let message = format!("positions are integers, not {dtype}; cast them");
        return Err(dtype_error(op, message));
    }
    // The extent must be a number of the positions' dtype.
    let dtype = match positions.dtype().int_range() {
        Some((_, largest)) if (n as i128) <= largest => positions.dtype(),
        _ => DType::I64,
    };
    let at = positions.uop().cast(dtype)?;
    if !dtype.is_signed() {
        return Ok(at);
    }
    let constant = |value: i128| UOp::full(Scalar::from_i128(dtype, value), at.shape());
    let from_end = at.add(&constant(n as i128)?)?;
    at.cmplt(&constant(0)?)?.where_(&from_end, &at)
}

/// Whether a label is class c, for all classes along a new last axis.
pub(super) fn is_class(op: &'static str, labels: &UOp, classes: usize) -> Result<UOp> {
    if !labels.dtype().is_int() {
        let message = format!("labels are integers, not {}; cast them", labels.dtype());
        return Err(dtype_error(op, message));
    }
    // All classes must be numbers of the labels' dtype, or distant labels would look alike.
    let dtype = match labels.dtype().int_range() {
        Some((_, largest)) if (classes as i128) <= largest => labels.dtype(),
        _ => DType::I64,
    };
    let rank = labels.shape().rank();
    let mut dims = labels.shape().to_vec();
    dims.push(1);
    let labels = labels.cast(dtype)?.reshape(&dims)?;
    dims[rank] = classes;
    let mut ones = vec![1; rank];
    ones.push(classes);
    let numbers = UOp::iota(classes, dtype)?.reshape(&ones)?;
    labels.expand(&dims)?.eq(&numbers.expand(&dims)?)
}

/// The part of a node: an INDEX if it is an entry, else a window.
fn read(x: &UOp, part: &Part) -> Result<UOp> {
    let entry = match part.singles {
        0 => window(x, &part.picks)?,
        n => at(x, &part.picks[..n])?,
    };
    entry.reshape(&part.dims())
}

/// The entry at positions of the first axes.
fn at(x: &UOp, positions: &[Pick]) -> Result<UOp> {
    let largest = positions.iter().map(|p| p.begin).max().unwrap_or(0);
    let dtype = if largest > i32::MAX as usize {
        DType::I64
    } else {
        DType::I32
    };
    let indices = positions.iter().map(|p| UOp::int(p.begin as i64, dtype));
    x.index(&indices.collect::<Vec<UOp>>())
}

/// One SHRINK for all ranges, then of all that have a step a column of rows as long as the step,
/// and last the reversals.
fn window(x: &UOp, picks: &[Pick]) -> Result<UOp> {
    let rank = picks.len();
    let mut bounds = Vec::with_capacity(rank);
    let mut padding = vec![(0, 0); rank];
    // The same axes with each stepped one as two, and what is kept of those.
    let (mut rows, mut columns) = (Vec::with_capacity(rank), Vec::with_capacity(rank));
    for (axis, pick) in picks.iter().enumerate() {
        if pick.step == 1 {
            bounds.push((pick.begin, pick.begin + pick.count));
            rows.push(pick.count);
            columns.push((0, pick.count));
            continue;
        }
        let n = x.shape()[axis];
        let (first, column) = pick.rows(n);
        let end = first + pick.count * pick.step;
        bounds.push((first, end.min(n)));
        padding[axis] = (0, end.saturating_sub(n));
        rows.extend([pick.count, pick.step]);
        columns.extend([(0, pick.count), (column, column + 1)]);
    }
    let counts: Vec<usize> = picks.iter().map(|p| p.count).collect();
    let kept = composite::pad(&x.shrink(&bounds)?, &padding)?
        .reshape(&rows)?
        .shrink(&columns)?
        .reshape(&counts)?;
    composite::flip(&kept, &backwards(picks))
}

/// The axes that are read from the last position to the first.
pub(super) fn backwards(picks: &[Pick]) -> Vec<usize> {
    let axes = picks.iter().enumerate().filter(|(_, p)| p.backwards);
    axes.map(|(axis, _)| axis).collect()
}
