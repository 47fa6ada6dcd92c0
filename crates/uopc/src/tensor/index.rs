//! Parts of a tensor: by position, by ranges, by integer tensors.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use super::args::{Integer, axis_of};
use super::{DType, Result, Shape, Site, Tensor, UOp, dtype_error, shape_error};
use crate::ir::Scalar;

/// What to keep of one axis. Negative positions count from the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slice {
    /// One position; the axis disappears.
    At(i64),
    /// `start..stop`, with an open end where `None`.
    Between(Option<i64>, Option<i64>),
    /// Every `step`-th position from the first on; a negative step goes backwards from the last.
    Every(i64),
}

impl From<RangeFull> for Slice {
    fn from(_: RangeFull) -> Slice {
        Slice::Between(None, None)
    }
}

macro_rules! slices {
    ($($type:ty)*) => { $(
        impl From<$type> for Slice {
            fn from(at: $type) -> Slice {
                Slice::At(at.signed())
            }
        }

        impl From<Range<$type>> for Slice {
            fn from(r: Range<$type>) -> Slice {
                Slice::Between(Some(r.start.signed()), Some(r.end.signed()))
            }
        }

        impl From<RangeInclusive<$type>> for Slice {
            fn from(r: RangeInclusive<$type>) -> Slice {
                Slice::Between(Some(r.start().signed()), after(r.end().signed()))
            }
        }

        impl From<RangeFrom<$type>> for Slice {
            fn from(r: RangeFrom<$type>) -> Slice {
                Slice::Between(Some(r.start.signed()), None)
            }
        }

        impl From<RangeTo<$type>> for Slice {
            fn from(r: RangeTo<$type>) -> Slice {
                Slice::Between(None, Some(r.end.signed()))
            }
        }

        impl From<RangeToInclusive<$type>> for Slice {
            fn from(r: RangeToInclusive<$type>) -> Slice {
                Slice::Between(None, after(r.end.signed()))
            }
        }
    )* };
}

slices! { i32 i64 isize usize }

/// The position after the last one of an inclusive range; after -1 comes the open end.
fn after(last: i64) -> Option<i64> {
    if last == -1 {
        None
    } else {
        Some(last.saturating_add(1))
    }
}

/// What to keep of the first axes: a position or range, a tuple of them, or a list of [`Slice`].
pub trait Slices {
    /// One slice an axis, from the first on.
    fn slices(self) -> Vec<Slice>;
}

impl Slices for Vec<Slice> {
    fn slices(self) -> Vec<Slice> {
        self
    }
}

impl<const N: usize> Slices for [Slice; N] {
    fn slices(self) -> Vec<Slice> {
        self.to_vec()
    }
}

impl<S: Into<Slice>> Slices for S {
    fn slices(self) -> Vec<Slice> {
        vec![self.into()]
    }
}

macro_rules! tuples {
    ($(($($name:ident)+))*) => { $(
        impl<$($name: Into<Slice>),+> Slices for ($($name,)+) {
            #[allow(non_snake_case)]
            fn slices(self) -> Vec<Slice> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    )* };
}

tuples! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

impl Tensor {
    /// A part, as in NumPy: `t.slice((1..3, .., -1))` keeps rows 1 and 2 and the last entry of
    /// the third axis, which disappears. Axes that are not named stay whole.
    ///
    /// # Errors
    /// When there are more slices than axes, or one leaves its axis.
    #[track_caller]
    pub fn slice(&self, slices: impl Slices) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let slices = slices.slices();
        let shape = self.shape();
        if slices.len() > shape.rank() {
            let n = slices.len();
            let message = format!(
                "{n} slices of shape {shape}, which has {} axes",
                shape.rank()
            );
            return Err(shape_error("slice", message));
        }
        let only_positions = slices.iter().all(|s| matches!(s, Slice::At(_)));
        if only_positions && !slices.is_empty() {
            return self.map(|x| at(x, &slices));
        }
        self.map(|x| window(x, &slices))
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
    /// range reads zeros.
    ///
    /// # Errors
    /// When the positions are not integers or there is no axis.
    #[track_caller]
    pub fn take(&self, positions: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        if !positions.dtype().is_int() {
            let message = format!(
                "positions are integers, not {}; cast them",
                positions.dtype()
            );
            return Err(dtype_error("take", message));
        }
        axis_of("take", self.shape(), 0)?;
        let n = self.shape()[0];
        // The extent must be a number of the positions' dtype.
        let dtype = match positions.dtype().int_range() {
            Some((_, largest)) if (n as i128) <= largest => positions.dtype(),
            _ => DType::I64,
        };
        let at = positions.uop().cast(dtype)?;
        let at = if dtype.is_signed() {
            let constant = |value: i128| UOp::full(Scalar::from_i128(dtype, value), at.shape());
            let from_end = at.add(&constant(n as i128)?)?;
            at.cmplt(&constant(0)?)?.where_(&from_end, &at)?
        } else {
            at
        };
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

/// The entry at positions of the first axes.
fn at(x: &UOp, positions: &[Slice]) -> Result<UOp> {
    let mut indices = Vec::with_capacity(positions.len());
    for (axis, slice) in positions.iter().enumerate() {
        let Slice::At(position) = *slice else {
            continue;
        };
        indices.push(position_in(x.shape(), axis, position)?);
    }
    let largest = indices.iter().copied().max().unwrap_or(0);
    let dtype = if largest > i32::MAX as usize {
        DType::I64
    } else {
        DType::I32
    };
    let indices: Vec<UOp> = indices.iter().map(|&i| UOp::int(i as i64, dtype)).collect();
    x.index(&indices)
}

fn position_in(shape: &Shape, axis: usize, position: i64) -> Result<usize> {
    let n = shape[axis] as i64;
    let i = if position < 0 {
        position.saturating_add(n)
    } else {
        position
    };
    if (0..n).contains(&i) {
        return Ok(i as usize);
    }
    let message = format!("position {position} of axis {axis} of shape {shape} does not exist");
    Err(shape_error("slice", message))
}

/// One SHRINK for all ranges, then steps, then the axes of single positions go.
fn window(x: &UOp, slices: &[Slice]) -> Result<UOp> {
    let shape = x.shape();
    let mut bounds: Vec<(usize, usize)> = shape.iter().map(|&n| (0, n)).collect();
    for (axis, slice) in slices.iter().enumerate() {
        match *slice {
            Slice::At(position) => {
                let i = position_in(shape, axis, position)?;
                bounds[axis] = (i, i + 1);
            }
            Slice::Between(start, stop) => bounds[axis] = range_in(shape, axis, start, stop)?,
            Slice::Every(_) => {}
        }
    }
    let mut out = x.shrink(&bounds)?;
    for (axis, slice) in slices.iter().enumerate() {
        if let Slice::Every(step) = *slice {
            out = every(&out, axis, step)?;
        }
    }
    let dropped = |axis: &usize| matches!(slices.get(*axis), Some(Slice::At(_)));
    let kept: Vec<usize> = (0..shape.rank())
        .filter(|a| !dropped(a))
        .map(|a| out.shape()[a])
        .collect();
    out.reshape(&kept)
}

fn range_in(
    shape: &Shape,
    axis: usize,
    start: Option<i64>,
    stop: Option<i64>,
) -> Result<(usize, usize)> {
    let n = shape[axis] as i64;
    let place = |p: i64| if p < 0 { p.saturating_add(n) } else { p };
    let (begin, end) = (place(start.unwrap_or(0)), place(stop.unwrap_or(n)));
    if 0 <= begin && begin <= end && end <= n {
        return Ok((begin as usize, end as usize));
    }
    let text = |p: Option<i64>| p.map_or(String::new(), |p| p.to_string());
    let message = format!(
        "{}..{} is no range within axis {axis} of shape {shape}",
        text(start),
        text(stop)
    );
    Err(shape_error("slice", message))
}

/// Every step-th position of an axis: padded to whole steps, of each step the first.
fn every(x: &UOp, axis: usize, step: i64) -> Result<UOp> {
    if step == 0 {
        return Err(shape_error("slice", "a step of 0 never ends".into()));
    }
    let x = if step < 0 {
        crate::ir::composite::flip(x, &[axis])?
    } else {
        x.clone()
    };
    let step = step.unsigned_abs() as usize;
    let n = x.shape()[axis];
    if step == 1 || n == 0 {
        return Ok(x);
    }
    let step = step.min(n);
    let count = n.div_ceil(step);
    let mut padding = vec![(0, 0); x.shape().rank()];
    padding[axis] = (0, count * step - n);
    let mut dims = x.shape().to_vec();
    dims[axis] = count;
    dims.insert(axis + 1, step);
    let steps = crate::ir::composite::pad(&x, &padding)?.reshape(&dims)?;
    let mut bounds: Vec<(usize, usize)> = dims.iter().map(|&d| (0, d)).collect();
    bounds[axis + 1] = (0, 1);
    dims.remove(axis + 1);
    steps.shrink(&bounds)?.reshape(&dims)
}
