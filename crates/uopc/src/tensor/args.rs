//! The forms in which shapes and axes are written: `[2, 3]`, `()`, `-1`, `[0, 2]`, `..`.

use std::ops::RangeFull;

use super::{Result, Shape, shape_error};

/// Integers that extents and axes are written in.
pub trait Integer: Copy {
    /// As a signed number; what does not fit is far out of any range and stays so.
    fn signed(self) -> i64;
}

macro_rules! integers {
    ($($type:ty)*) => { $(
        impl Integer for $type {
            fn signed(self) -> i64 {
                self.try_into().unwrap_or(i64::MAX)
            }
        }
    )* };
}

integers! { i32 i64 isize u32 u64 usize }

/// A list of extents: an array, slice or `Vec` of integers, a [`Shape`], or `()` for a scalar.
pub trait Dims {
    /// The extents; one of them may be -1 where a method says what that means.
    fn dims(&self) -> Vec<i64>;
}

impl Dims for () {
    fn dims(&self) -> Vec<i64> {
        Vec::new()
    }
}

impl Dims for Shape {
    fn dims(&self) -> Vec<i64> {
        self[..].dims()
    }
}

impl<T: Integer> Dims for [T] {
    fn dims(&self) -> Vec<i64> {
        self.iter().map(|d| d.signed()).collect()
    }
}

impl<T: Integer, const N: usize> Dims for [T; N] {
    fn dims(&self) -> Vec<i64> {
        self[..].dims()
    }
}

impl<T: Integer> Dims for Vec<T> {
    fn dims(&self) -> Vec<i64> {
        self[..].dims()
    }
}

impl<D: Dims + ?Sized> Dims for &D {
    fn dims(&self) -> Vec<i64> {
        (**self).dims()
    }
}

/// The extents as a shape, refusing negative ones and sizes that no memory has.
pub(super) fn shape_of(op: &'static str, dims: impl Dims) -> Result<Shape> {
    let dims = dims.dims();
    let extents = |&d: &i64| usize::try_from(d).ok();
    let Some(extents) = dims.iter().map(extents).collect::<Option<Vec<usize>>>() else {
        let message = format!("{dims:?} is no shape: an extent is negative");
        return Err(shape_error(op, message));
    };
    let shape = Shape::new(&extents);
    if shape.numel() > isize::MAX as usize {
        let message = format!("{shape} has more elements than memory can hold");
        return Err(shape_error(op, message));
    }
    Ok(shape)
}

/// The axes that a method works on: one (`0`, `-1`), several (`[0, 2]`) or all (`..`). Negative
/// ones count from the end.
pub trait Axes {
    /// The axes as written, `None` for all.
    fn axes(&self) -> Option<Vec<i64>>;
}

impl Axes for RangeFull {
    fn axes(&self) -> Option<Vec<i64>> {
        None
    }
}

macro_rules! single_axis {
    ($($type:ty)*) => { $(
        impl Axes for $type {
            fn axes(&self) -> Option<Vec<i64>> {
                Some(vec![self.signed()])
            }
        }
    )* };
}

single_axis! { i32 i64 isize usize }

impl<T: Integer> Axes for [T] {
    fn axes(&self) -> Option<Vec<i64>> {
        Some(self.iter().map(|a| a.signed()).collect())
    }
}

impl<T: Integer, const N: usize> Axes for [T; N] {
    fn axes(&self) -> Option<Vec<i64>> {
        self[..].axes()
    }
}

impl<T: Integer> Axes for Vec<T> {
    fn axes(&self) -> Option<Vec<i64>> {
        self[..].axes()
    }
}

impl<A: Axes + ?Sized> Axes for &A {
    fn axes(&self) -> Option<Vec<i64>> {
        (**self).axes()
    }
}

/// The axis of a shape that a number means; a negative one counts from the end.
pub(super) fn axis_of(op: &'static str, shape: &Shape, axis: i64) -> Result<usize> {
    place_of(op, shape, axis, shape.rank())
}

/// Like [`axis_of`], among `n` places that an axis can take.
pub(super) fn place_of(op: &'static str, shape: &Shape, axis: i64, n: usize) -> Result<usize> {
    let limit = n as i64;
    let place = if axis < 0 {
        axis.saturating_add(limit)
    } else {
        axis
    };
    if (0..limit).contains(&place) {
        return Ok(place as usize);
    }
    let message = if n == 0 {
        format!("axis {axis} of shape {shape}, which has no axes")
    } else {
        format!(
            "axis {axis} of shape {shape}; axes go from {} to {}",
            -limit,
            limit - 1
        )
    };
    Err(shape_error(op, message))
}

/// The axes of a shape that a method works on, ascending.
///
/// An axis that is named twice is an error: it is a slip, and what it would mean is anyone's
/// guess.
pub(super) fn axes_of(op: &'static str, shape: &Shape, axes: impl Axes) -> Result<Vec<usize>> {
    let Some(named) = axes.axes() else {
        return Ok((0..shape.rank()).collect());
    };
    let axes = named.iter().map(|&a| axis_of(op, shape, a));
    let mut axes = axes.collect::<Result<Vec<usize>>>()?;
    axes.sort_unstable();
    if let Some(pair) = axes.windows(2).find(|pair| pair[0] == pair[1]) {
        let message = format!("{named:?} names axis {} of shape {shape} twice", pair[0]);
        return Err(shape_error(op, message));
    }
    Ok(axes)
}
