//! Reading and adding at positions that a tensor holds, along one axis: gather, the choice of entries,
//! and their transposes, which add.
//!
//! Positions are integers. Negative ones count from the end; those out of range read zeros, and add
//! and set nothing. The gradient of what is read adds up, in the order of the positions.

use super::args::{Integer, axis_of};
use super::index::places;
use super::operand::{broadcast, broadcast_to};
use super::update::operand;
use super::{DType, Operand, Result, Shape, Site, Tensor, UOp, shape_error};
use crate::ir::Scalar;

impl Tensor {
    /// For each position the element there along an axis; the other axes of the result are the first
    /// ones of this tensor's, as many as the positions have. As PyTorch's `gather`:
    /// `y[i, j] = x[p[i, j], j]` for axis 0.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([[1, 2, 3], [4, 5, 6]]);
    /// let chosen = t.gather(1, &Tensor::from([[2], [0]]))?;
    /// assert_eq!(chosen.to_vec::<i32>()?, [3, 4]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the positions are not integers, their number of axes is not this tensor's, or another
    /// axis of theirs is longer.
    #[track_caller]
    pub fn gather(&self, axis: impl Integer, positions: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("gather", self.shape(), axis.signed())?;
        fits("gather", positions.shape(), self.shape(), Some(axis))?;
        let at = places("gather", positions, self.shape()[axis])?;
        self.map(|x| read_along(x, &at, axis))
    }

    /// [`gather`](Self::gather) as NumPy's `take_along_axis`: all other axes broadcast.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([[1, 2, 3], [4, 5, 6]]);
    /// let last = t.take_along_axis(&Tensor::from([[-1, 0]]), 1)?;
    /// assert_eq!(last.to_vec::<i32>()?, [3, 1, 6, 4]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the positions are not integers, their number of axes is not this tensor's, or other axes
    /// do not broadcast.
    #[track_caller]
    pub fn take_along_axis(&self, positions: &Tensor, axis: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("take_along_axis", self.shape(), axis.signed())?;
        let [x, at] = beside("take_along_axis", self, positions, axis)?;
        x.gather(axis, &at)
    }

    /// The entries of an axis at positions in a vector, or at a single one: the axis takes the
    /// positions' shape. [`take`](Self::take) for any axis.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([[1, 2, 3], [4, 5, 6]]);
    /// let columns = t.index_select(1, &Tensor::from([2, 0]))?;
    /// assert_eq!(columns.to_vec::<i32>()?, [3, 1, 6, 4]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the positions are not integers, or there is no such axis.
    #[track_caller]
    pub fn index_select(&self, axis: impl Integer, positions: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("index_select", self.shape(), axis.signed())?;
        let at = places("index_select", positions, self.shape()[axis])?;
        let (rank, new) = (self.rank(), positions.rank());
        let mut to_front: Vec<usize> = (0..rank).filter(|&k| k != axis).collect();
        to_front.insert(0, axis);
        // The positions' axes come back from the front.
        let mut back: Vec<usize> = (new..new + axis).collect();
        back.extend(0..new);
        back.extend(new + axis..new + rank - 1);
        self.map(|x| x.permute(&to_front)?.index(&[at])?.permute(&back))
    }

    /// A copy with `scale` times the entries of a source added to those at the positions of an axis,
    /// a vector. Entries for one position are added in their order.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([1, 2, 3]);
    /// let sums = t.index_add(0, &Tensor::from([0, 2, 0]), &Tensor::from([10, 20, 30]), 1)?;
    /// assert_eq!(sums.to_vec::<i32>()?, [41, 2, 23]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the positions are no vector of integers, or the source's shape is not this tensor's with
    /// as many entries along the axis as there are positions.
    #[track_caller]
    pub fn index_add(
        &self,
        axis: impl Integer,
        positions: &Tensor,
        source: &Tensor,
        scale: impl Into<Operand>,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("index_add", self.shape(), axis.signed())?;
        let mut dims = self.shape().to_vec();
        dims[axis] = positions.numel();
        if positions.rank() > 1 || source.shape()[..] != dims[..] {
            let (shape, named) = (self.shape(), positions.shape());
            let message = format!(
                "a source of shape {} at positions {named} of axis {axis} of shape {shape}; give \
                 a vector of positions and as many entries",
                source.shape()
            );
            return Err(shape_error("index_add", message));
        }
        let at = places("index_add", positions, self.shape()[axis])?;
        let at = at.reshape(&[positions.numel()])?;
        let source = source.mul(scale)?.cast(self.dtype())?;
        let mut to_front: Vec<usize> = (0..self.rank()).filter(|&k| k != axis).collect();
        to_front.insert(0, axis);
        let back = inverse(&to_front);
        let sums = source.map(|s| {
            let mut shape = self.shape().to_vec();
            shape.remove(axis);
            shape.insert(0, self.shape()[axis]);
            s.permute(&to_front)?
                .scatter_add(&[at], &shape)?
                .permute(&back)
        })?;
        self.add(sums)
    }

    /// A copy with the elements of a source added at positions along an axis, as PyTorch's
    /// `scatter_add`: `x[p[i, j], j] += s[i, j]` for axis 0. Elements for one position are added in
    /// the row-major order of the positions, so the result has the same bits each time.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::zeros([2, 3])?;
    /// let at = Tensor::from([[0, 0, 2], [1, 1, 1]]);
    /// let sums = t.scatter_add(1, &at, &Tensor::ones([2, 3])?)?;
    /// assert_eq!(sums.to_vec::<f32>()?, [2.0, 0.0, 1.0, 0.0, 3.0, 0.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the positions are not integers, the numbers of axes differ, or the positions' shape is
    /// not within the source's and, but for the axis, within this tensor's.
    #[track_caller]
    pub fn scatter_add(
        &self,
        axis: impl Integer,
        positions: &Tensor,
        source: impl Into<Operand>,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("scatter_add", self.shape(), axis.signed())?;
        let source = source_of("scatter_add", self, axis, positions, source.into())?;
        self.add(self.sums_along("scatter_add", axis, positions, &source)?)
    }

    /// A source's sums at positions along an axis, with zeros elsewhere.
    pub(super) fn sums_along(
        &self,
        op: &'static str,
        axis: usize,
        positions: &Tensor,
        source: &Tensor,
    ) -> Result<Tensor> {
        let at = places(op, positions, self.shape()[axis])?;
        source.map(|s| s.scatter_add(&along(&at, self.shape(), axis)?, self.shape()))
    }

    /// The entries of this tensor added into zeros at the positions in an integer tensor: with
    /// positions of shape S and entries of shape S + R the result has shape (n,) + R. It is the
    /// transpose of [`take`](Self::take). Entries for one position are added in their order, so the
    /// result has the same bits each time. Negative positions count from the end; out of range adds
    /// nothing.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let entries = Tensor::from_slice(&[1.0f32, 2.0, 4.0, 8.0], [4])?;
    /// let sums = entries.segment_sum(&Tensor::from_slice(&[2, 0, 2, -3], [4])?, 3)?;
    /// assert_eq!(sums.to_vec::<f32>()?, [10.0, 0.0, 5.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the positions are not integers, or their shape is not that of the leading axes.
    #[track_caller]
    pub fn segment_sum(&self, positions: &Tensor, n: usize) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (entries, named) = (self.shape(), positions.shape());
        let rank = named.rank();
        if entries.rank() < rank || entries[..rank] != named[..] {
            let message = format!(
                "entries {entries} at positions {named} do not fit; the entries have the positions' \
                 shape and then the axes of the result but the first"
            );
            return Err(shape_error("segment_sum", message));
        }
        let at = places("segment_sum", positions, n)?;
        let mut dims = vec![n];
        dims.extend_from_slice(&entries[rank..]);
        super::args::shape_of("segment_sum", &dims)?;
        self.map(|x| x.scatter_add(&[at], &dims))
    }
}

/// Refuses positions whose shape is not within another one; along the axis it may be longer.
pub(super) fn fits(
    op: &'static str,
    positions: &Shape,
    shape: &Shape,
    axis: Option<usize>,
) -> Result<()> {
    let within = |k: usize| Some(k) == axis || positions[k] <= shape[k];
    if positions.rank() == shape.rank() && (0..shape.rank()).all(within) {
        return Ok(());
    }
    let but = axis.map_or(String::new(), |axis| format!(", but for axis {axis}"));
    let message = format!(
        "positions of shape {positions} do not lie within shape {shape}; give as many axes, none \
         of them longer{but}"
    );
    Err(shape_error(op, message))
}

/// A tensor and positions that broadcast to one shape but for the axis.
pub(super) fn beside(
    op: &'static str,
    x: &Tensor,
    positions: &Tensor,
    axis: usize,
) -> Result<[Tensor; 2]> {
    if positions.rank() != x.rank() {
        let (shape, named) = (x.shape(), positions.shape());
        let message = format!("positions of shape {named} beside shape {shape}; give as many axes");
        return Err(shape_error(op, message));
    }
    let without = |t: &Tensor| {
        let mut dims = t.shape().to_vec();
        dims[axis] = 1;
        Shape::new(&dims)
    };
    let common = broadcast(op, &without(x), &without(positions))?;
    let repeated = |t: &Tensor| {
        let mut dims = common.to_vec();
        dims[axis] = t.shape()[axis];
        t.map(|x| broadcast_to(x, &Shape::new(&dims)))
    };
    Ok([repeated(x)?, repeated(positions)?])
}

/// What is scattered: a tensor cut to the positions' shape, or a number in it, in this tensor's dtype.
pub(super) fn source_of(
    op: &'static str,
    x: &Tensor,
    axis: usize,
    positions: &Tensor,
    source: Operand,
) -> Result<Tensor> {
    fits(op, positions.shape(), x.shape(), Some(axis))?;
    let (node, needs_grad) = operand(op, source, x.dtype())?;
    let source = Tensor::derived(node, needs_grad);
    if source.rank() == 0 {
        return source.expand(positions.shape());
    }
    fits(op, positions.shape(), source.shape(), None)?;
    let window: Vec<(usize, usize)> = positions.shape().iter().map(|&d| (0, d)).collect();
    source.map(|s| s.shrink(&window))
}

/// The element at each position along an axis. The positions count from 0, see
/// [`places`]; all other axes are read at their own numbers.
pub(super) fn read_along(x: &UOp, at: &UOp, axis: usize) -> Result<UOp> {
    x.index(&along(at, x.shape(), axis)?)
}

/// One index for each axis of a shape: the positions for one, and the numbers of the positions' own
/// axes for the others.
pub(super) fn along(at: &UOp, shape: &Shape, axis: usize) -> Result<Vec<UOp>> {
    let dims = at.shape().clone();
    let largest = shape.iter().chain(dims.iter()).max().copied();
    let dtype = index_dtype(at.dtype(), largest.unwrap_or(0));
    let own = |k: usize| {
        if k == axis {
            return at.cast(dtype);
        }
        let mut ones = vec![1; dims.rank()];
        ones[k] = dims[k];
        UOp::iota(dims[k], dtype)?.reshape(&ones)?.expand(&dims)
    };
    (0..shape.rank()).map(own).collect()
}

/// A dtype for positions of that one and of axes up to that extent, in which no position out of range
/// becomes one within.
pub(super) fn index_dtype(positions: DType, extent: usize) -> DType {
    let narrow = matches!(
        positions,
        DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16
    );
    match narrow && i32::try_from(extent).is_ok() {
        true => DType::I32,
        false => DType::I64,
    }
}

/// The order that undoes another.
pub(super) fn inverse(order: &[usize]) -> Vec<usize> {
    let mut back = vec![0; order.len()];
    for (k, &p) in order.iter().enumerate() {
        back[p] = k;
    }
    back
}

/// A constant in a shape.
pub(super) fn constant(value: i128, dtype: DType, shape: &Shape) -> Result<UOp> {
    UOp::full(Scalar::from_i128(dtype, value), shape)
}
