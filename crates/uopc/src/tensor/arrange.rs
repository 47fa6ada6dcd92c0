//! Rearrangements that other movement ops make up: repetition, rolling, turning, windows, diagonals,
//! axes that move or part.

use std::borrow::Borrow;

use super::args::{Axes, Dims, Integer, axes_of, axis_of, shape_of};
use super::operand::{broadcast, broadcast_to};
use super::{Result, Shape, Site, Tensor, UOp, shape_error};
use crate::ir::composite;

impl Tensor {
    /// Repeated to a shape that it broadcasts to, as in NumPy: axes of extent 1 grow, missing ones
    /// come in front. It is [`expand`](Self::expand) under NumPy's name.
    ///
    /// # Errors
    /// When another extent would change.
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.expand(shape)
    }

    /// Tensors repeated to the shape to which they broadcast together; dtypes stay as they are.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (row, column) = (Tensor::zeros([1, 3])?, Tensor::zeros([2, 1])?);
    /// let both = Tensor::broadcast_tensors(&[row, column])?;
    /// assert_eq!(both[1].shape()[..], [2, 3]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    #[track_caller]
    pub fn broadcast_tensors<T: Borrow<Tensor>>(tensors: &[T]) -> Result<Vec<Tensor>> {
        let _site = Site::caller().enter();
        let mut shape = Shape::scalar();
        for t in tensors {
            shape = broadcast("broadcast_tensors", &shape, t.borrow().shape())?;
        }
        let each = |t: &T| t.borrow().map(|x| broadcast_to(x, &shape));
        tensors.iter().map(each).collect()
    }

    /// One axis as several of those extents; one of them may be -1: what is left. The inverse of
    /// [`flatten`](Self::flatten).
    ///
    /// ```
    /// # use uopc::Tensor;
    /// assert_eq!(Tensor::zeros([8, 48])?.unflatten(1, [3, 4, -1])?.shape()[..], [8, 3, 4, 4]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis, or the extents do not multiply to its own.
    #[track_caller]
    pub fn unflatten(&self, axis: impl Integer, sizes: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = self.shape();
        let axis = axis_of("unflatten", shape, axis.signed())?;
        let mut sizes = sizes.dims();
        let (n, open) = (shape[axis], sizes.iter().position(|&d| d == -1));
        let given: Vec<i64> = sizes.clone();
        if let Some(open) = open {
            sizes[open] = 1;
            let known = shape_of("unflatten", &sizes)?.numel();
            if known > 0 && n.is_multiple_of(known) {
                sizes[open] = (n / known) as i64;
            }
        }
        let parts = shape_of("unflatten", &sizes)?;
        if parts.numel() != n || open.is_some() && parts.numel() == 0 && given.contains(&0) {
            let message = format!("axis {axis} of shape {shape} has extent {n}, not {given:?}");
            return Err(shape_error("unflatten", message));
        }
        let dims = [&shape[..axis], &parts, &shape[axis + 1..]].concat();
        self.map(|x| x.reshape(&dims))
    }

    /// Copies side by side: so many along each axis, as PyTorch's `repeat`. More numbers than axes
    /// count from the last axis, and add axes in front.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([1, 2]).repeat([2, 2])?;
    /// assert_eq!(t.shape()[..], [2, 4]);
    /// assert_eq!(t.to_vec::<i32>()?, [1, 2, 1, 2, 1, 2, 1, 2]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there are fewer numbers than axes, or one is negative, or the result is too large.
    #[track_caller]
    pub fn repeat(&self, repeats: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let repeats = repeats.dims();
        if repeats.len() < self.rank() {
            let (n, shape) = (repeats.len(), self.shape());
            let message = format!("{n} numbers for shape {shape}; give one an axis, or use tile");
            return Err(shape_error("repeat", message));
        }
        self.copies("repeat", &repeats)
    }

    /// Copies side by side, as NumPy's `tile`: like [`repeat`](Self::repeat), but with fewer numbers
    /// than axes the first axes are not repeated.
    ///
    /// # Errors
    /// When a number is negative, or the result is too large.
    #[track_caller]
    pub fn tile(&self, repeats: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let mut repeats = repeats.dims();
        let missing = self.rank().saturating_sub(repeats.len());
        repeats.splice(0..0, vec![1; missing]);
        self.copies("tile", &repeats)
    }

    fn copies(&self, op: &'static str, repeats: &[i64]) -> Result<Tensor> {
        let repeats = shape_of(op, repeats)?;
        let mut own = vec![1; repeats.rank() - self.rank()];
        own.extend_from_slice(self.shape());
        // Each axis behind a new one along which it repeats.
        let (mut apart, mut repeated, mut dims) = (Vec::new(), Vec::new(), Vec::new());
        for (&n, &times) in own.iter().zip(repeats.iter()) {
            apart.extend([1, n]);
            repeated.extend([times, n]);
            dims.push(n.saturating_mul(times));
        }
        shape_of(op, &dims)?;
        self.map(|x| x.reshape(&apart)?.expand(&repeated)?.reshape(&dims))
    }

    /// Each element so many times in a row along an axis, or, without one, of all elements in
    /// row-major order.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([[1, 2], [3, 4]]);
    /// assert_eq!(t.repeat_interleave(2, Some(1))?.to_vec::<i32>()?, [1, 1, 2, 2, 3, 3, 4, 4]);
    /// assert_eq!(t.repeat_interleave(2, None)?.shape()[..], [8]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis, or the result is too large.
    #[track_caller]
    pub fn repeat_interleave(&self, times: usize, axis: Option<isize>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let Some(axis) = axis else {
            return self
                .reshape([self.numel()])?
                .repeat_interleave(times, Some(0));
        };
        let axis = axis_of("repeat_interleave", self.shape(), axis as i64)?;
        let mut apart = self.shape().to_vec();
        apart.insert(axis + 1, 1);
        let mut repeated = apart.clone();
        repeated[axis + 1] = times;
        let mut dims = self.shape().to_vec();
        dims[axis] = dims[axis].saturating_mul(times);
        shape_of("repeat_interleave", &dims)?;
        self.map(|x| x.reshape(&apart)?.expand(&repeated)?.reshape(&dims))
    }

    /// Elements moved on by a shift along each axis; what leaves at the end comes in at the
    /// beginning. With `..` there is one shift, of all elements in row-major order.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([[1, 2, 3], [4, 5, 6]]);
    /// assert_eq!(t.roll([1], 1)?.to_vec::<i32>()?, [3, 1, 2, 6, 4, 5]);
    /// assert_eq!(t.roll([-2], ..)?.to_vec::<i32>()?, [3, 4, 5, 6, 1, 2]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis, or there is not one shift for each. An axis may be named
    /// several times; the shifts add up.
    #[track_caller]
    pub fn roll(&self, shifts: impl Dims, axes: impl Axes) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shifts = shifts.dims();
        let Some(axes) = axes.axes() else {
            let [_] = shifts[..] else {
                let n = shifts.len();
                let message = format!("{n} shifts of all elements; give one, or an axis for each");
                return Err(shape_error("roll", message));
            };
            let flat = self.reshape([self.numel()])?.roll(shifts, 0)?;
            return flat.reshape(self.shape());
        };
        if shifts.len() != axes.len() {
            let (n, m) = (shifts.len(), axes.len());
            let message = format!("{n} shifts along {m} axes; give one for each");
            return Err(shape_error("roll", message));
        }
        let mut rolled = self.clone();
        for (&shift, &axis) in shifts.iter().zip(&axes) {
            let axis = axis_of("roll", self.shape(), axis)?;
            rolled = rolled.map(|x| roll(x, axis, shift))?;
        }
        Ok(rolled)
    }

    /// Turned by `quarters` of a turn, from the first of two axes towards the second.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([[1, 2], [3, 4]]);
    /// assert_eq!(t.rot90(1, [0, 1])?.to_vec::<i32>()?, [2, 4, 1, 3]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there are no such two axes.
    #[track_caller]
    pub fn rot90(&self, quarters: i64, axes: [isize; 2]) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let [a, b] = two_axes("rot90", self.shape(), axes)?;
        let mut order: Vec<usize> = (0..self.rank()).collect();
        order.swap(a, b);
        self.map(|x| match quarters.rem_euclid(4) {
            0 => Ok(x.clone()),
            1 => composite::flip(x, &[b])?.permute(&order),
            2 => composite::flip(x, &[a, b]),
            _ => composite::flip(&x.permute(&order)?, &[b]),
        })
    }

    /// Windows of an axis: `size` elements each, beginning `step` apart. The axis counts the
    /// windows, and a new last axis the elements of each.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let windows = Tensor::from([1, 2, 3, 4, 5]).unfold(0, 3, 2)?;
    /// assert_eq!(windows.shape()[..], [2, 3]);
    /// assert_eq!(windows.to_vec::<i32>()?, [1, 2, 3, 3, 4, 5]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis, the windows are longer than it, or the step is 0.
    #[track_caller]
    pub fn unfold(&self, axis: impl Integer, size: usize, step: usize) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = self.shape();
        let axis = axis_of("unfold", shape, axis.signed())?;
        let n = shape[axis];
        if size > n {
            let message = format!("windows of {size} elements of axis {axis} of shape {shape}");
            return Err(shape_error("unfold", message));
        }
        if step == 0 {
            return Err(shape_error("unfold", "a step of 0 never ends".into()));
        }
        let mut order: Vec<usize> = (0..shape.rank()).collect();
        order.remove(axis);
        order.push(axis);
        let last = self.permute(order)?;
        let windows = last.windows(size, (n - size) / step + 1, step)?;
        // (..., element, window) to the window at the axis and the element at the end.
        let rank = shape.rank();
        let mut order: Vec<usize> = (0..rank - 1).collect();
        order.insert(axis, rank);
        order.push(rank - 1);
        windows.permute(order)
    }

    /// `count` windows of the last axis as (..., size, count).
    ///
    /// The axis is repeated end to end and cut into rows that are one longer than it: row j begins
    /// with element j. Column c then holds the window that begins at c.
    fn windows(&self, size: usize, count: usize, step: usize) -> Result<Tensor> {
        let shape = self.shape();
        let n = shape[shape.rank() - 1];
        let before = &shape[..shape.rank() - 1];
        let with = |tail: &[usize]| [before, tail].concat();
        if size == 0 || n == 0 {
            return self.map(|x| {
                UOp::full(
                    crate::ir::Scalar::zero(x.dtype()),
                    &Shape::new(&with(&[size, count])),
                )
            });
        }
        let length = size.saturating_mul(n + 1);
        let times = length.div_ceil(n);
        shape_of("unfold", with(&[times, n]))?;
        let mut whole: Vec<(usize, usize)> = before.iter().map(|&d| (0, d)).collect();
        whole.push((0, length));
        let rows = self.map(|x| {
            x.reshape(&with(&[1, n]))?
                .expand(&with(&[times, n]))?
                .reshape(&with(&[times * n]))?
                .shrink(&whole)?
                .reshape(&with(&[size, n + 1]))
        })?;
        let last = (count - 1) * step;
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        let columns = super::Slice::Stepped(Some(0), Some(last as i64 + 1), step);
        rows.slice(vec![super::Slice::Rest, columns])
    }

    /// The diagonal of two axes, which disappear; it becomes the last axis. A positive offset means
    /// a diagonal above the main one, a negative one below.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([[1, 2, 3], [4, 5, 6]]);
    /// assert_eq!(t.diagonal(0, 0, 1)?.to_vec::<i32>()?, [1, 5]);
    /// assert_eq!(t.diagonal(1, 0, 1)?.to_vec::<i32>()?, [2, 6]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there are no such two axes.
    #[track_caller]
    pub fn diagonal(&self, offset: i64, first: isize, second: isize) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let [a, b] = two_axes("diagonal", self.shape(), [first, second])?;
        self.map(|x| diagonal(x, offset, a, b))
    }

    /// The sum of the [diagonal](Self::diagonal) of two axes.
    ///
    /// # Errors
    /// When there are no such two axes.
    #[track_caller]
    pub fn trace(&self, offset: i64, first: isize, second: isize) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let [a, b] = two_axes("trace", self.shape(), [first, second])?;
        self.map(|x| diagonal(x, offset, a, b))?.sum(-1)
    }

    /// Axes moved to other places; those that are not named keep their order.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::zeros([2, 3, 4])?;
    /// assert_eq!(t.moveaxis(0, -1)?.shape()[..], [3, 4, 2]);
    /// assert_eq!(t.moveaxis([0, 1], [1, 2])?.shape()[..], [4, 2, 3]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When an axis does not exist or is named twice, or the numbers of axes and places differ.
    #[track_caller]
    pub fn moveaxis(&self, from: impl Axes, to: impl Axes) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = self.shape();
        let in_order = |axes: &dyn Fn() -> Option<Vec<i64>>| -> Result<Vec<usize>> {
            let Some(named) = axes() else {
                return Ok((0..shape.rank()).collect());
            };
            axes_of("moveaxis", shape, &named)?;
            named
                .iter()
                .map(|&a| axis_of("moveaxis", shape, a))
                .collect()
        };
        let (from, to) = (in_order(&|| from.axes())?, in_order(&|| to.axes())?);
        if from.len() != to.len() {
            let (n, m) = (from.len(), to.len());
            let message = format!("{n} axes to {m} places; give a place for each");
            return Err(shape_error("moveaxis", message));
        }
        let mut moves: Vec<(usize, usize)> = to.into_iter().zip(from.iter().copied()).collect();
        moves.sort_unstable();
        let mut order: Vec<usize> = (0..shape.rank()).filter(|k| !from.contains(k)).collect();
        for (place, axis) in moves {
            order.insert(place, axis);
        }
        self.map(|x| x.permute(&order))
    }
}

/// Two different axes of a shape.
pub(super) fn two_axes(op: &'static str, shape: &Shape, axes: [isize; 2]) -> Result<[usize; 2]> {
    let [a, b] = axes;
    let [a, b] = [axis_of(op, shape, a as i64)?, axis_of(op, shape, b as i64)?];
    if a == b {
        let message = format!("{axes:?} name one axis of shape {shape}; give two");
        return Err(shape_error(op, message));
    }
    Ok([a, b])
}

/// Two copies of the axis, of which a window as long as the axis is kept.
fn roll(x: &UOp, axis: usize, shift: i64) -> Result<UOp> {
    let n = x.shape()[axis];
    let shift = match n {
        0 => 0,
        n => (shift as i128).rem_euclid(n as i128) as usize,
    };
    if shift == 0 {
        return Ok(x.clone());
    }
    let mut apart = x.shape().to_vec();
    apart.insert(axis, 1);
    let mut twice = apart.clone();
    twice[axis] = 2;
    let mut dims = x.shape().to_vec();
    dims[axis] = n.saturating_mul(2);
    let mut window: Vec<(usize, usize)> = dims.iter().map(|&d| (0, d)).collect();
    window[axis] = (n - shift, 2 * n - shift);
    x.reshape(&apart)?
        .expand(&twice)?
        .reshape(&dims)?
        .shrink(&window)
}

/// The diagonal as a last axis. A square of side n, read as rows that are one longer than n, has it in
/// its first column.
pub(super) fn diagonal(x: &UOp, offset: i64, a: usize, b: usize) -> Result<UOp> {
    let rank = x.shape().rank();
    let mut order: Vec<usize> = (0..rank).filter(|&k| k != a && k != b).collect();
    order.extend([a, b]);
    let x = x.permute(&order)?;
    let (rows, columns) = (x.shape()[rank - 2], x.shape()[rank - 1]);
    let skip = |n: usize, by: i64| usize::try_from(by).unwrap_or(0).min(n);
    let (down, right) = (skip(rows, offset.saturating_neg()), skip(columns, offset));
    let n = (rows - down).min(columns - right);
    let before = &x.shape()[..rank - 2];
    let mut square: Vec<(usize, usize)> = before.iter().map(|&d| (0, d)).collect();
    let with = |tail: &[usize]| [before, tail].concat();
    square.extend([(down, down + n), (right, right + n)]);
    let square = x.shrink(&square)?;
    if n == 0 {
        return square.reshape(&with(&[0]));
    }
    let mut around = vec![(0, 0); rank - 2];
    around.push((0, n));
    let mut column: Vec<(usize, usize)> = before.iter().map(|&d| (0, d)).collect();
    column.extend([(0, n), (0, 1)]);
    composite::pad(&square.reshape(&with(&[n * n]))?, &around)?
        .reshape(&with(&[n, n + 1]))?
        .shrink(&column)?
        .reshape(&with(&[n]))
}
