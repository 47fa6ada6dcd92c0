//! Windows that slide along axes: how they are written, and views in which each is an axis of its own.

use super::args::Integer;
use super::{Result, UOp, shape_error};
use crate::ir::composite;

/// A number for each axis along which a window slides: one for all (`2`), or one for each
/// (`[2, 1]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerAxis {
    numbers: Vec<i64>,
    /// Whether one number is for all axes.
    for_all: bool,
}

impl PerAxis {
    /// The numbers for `n` axes, none of them below `least`.
    pub(super) fn resolve(
        &self,
        op: &'static str,
        what: &str,
        n: usize,
        least: usize,
    ) -> Result<Vec<usize>> {
        let numbers = match self.for_all {
            true => vec![self.numbers[0]; n],
            false => self.numbers.clone(),
        };
        if numbers.len() != n {
            let message = format!(
                "{what} {numbers:?} has not one number for each of {n} axes, nor one for all"
            );
            return Err(shape_error(op, message));
        }
        let fits = |&k: &i64| usize::try_from(k).ok().filter(|&k| k >= least);
        match numbers.iter().map(fits).collect() {
            Some(numbers) => Ok(numbers),
            None => {
                let message = format!("{what} is {numbers:?}; at least {least} is needed");
                Err(shape_error(op, message))
            }
        }
    }
}

macro_rules! for_all {
    ($($type:ty)*) => { $(
        impl From<$type> for PerAxis {
            fn from(number: $type) -> PerAxis {
                PerAxis { numbers: vec![number.signed()], for_all: true }
            }
        }
    )* };
}

for_all! { i32 i64 usize }

impl<T: Integer> From<&[T]> for PerAxis {
    fn from(numbers: &[T]) -> PerAxis {
        let numbers = numbers.iter().map(|k| k.signed()).collect();
        PerAxis {
            numbers,
            for_all: false,
        }
    }
}

impl<T: Integer, const N: usize> From<[T; N]> for PerAxis {
    fn from(numbers: [T; N]) -> PerAxis {
        PerAxis::from(&numbers[..])
    }
}

impl<T: Integer> From<Vec<T>> for PerAxis {
    fn from(numbers: Vec<T>) -> PerAxis {
        PerAxis::from(&numbers[..])
    }
}

/// A window along one axis: `kernel` elements that are `dilation` apart, and the next window begins
/// `stride` further on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub kernel: usize,
    pub stride: usize,
    pub dilation: usize,
}

impl Window {
    /// From the first element to the last one, both included.
    pub fn reach(&self) -> usize {
        let gaps = self.kernel.saturating_sub(1);
        self.dilation.saturating_mul(gaps).saturating_add(1)
    }

    /// How many windows there are among n elements.
    ///
    /// # Errors
    /// When not even one fits.
    pub fn count(&self, op: &'static str, axis: usize, n: usize) -> Result<usize> {
        if let Some(room) = n.checked_sub(self.reach()) {
            // The view counts an axis that is repeated about k times.
            let rows = self.kernel.checked_mul(n.saturating_add(self.dilation));
            if rows.is_some_and(|rows| rows <= isize::MAX as usize / 2) {
                return Ok(room / self.stride + 1);
            }
            let k = self.kernel;
            let message = format!("windows of {k} along {n} elements are too many to be counted");
            return Err(shape_error(op, message));
        }
        let (k, d) = (self.kernel, self.dilation);
        let spread = match d {
            1 => String::new(),
            _ => format!(" with dilation {d}, which reaches over {}", self.reach()),
        };
        let message = format!(
            "a kernel of {k}{spread} is larger than axis {axis} with its padding, {n}; pad more or \
             take a smaller kernel"
        );
        Err(shape_error(op, message))
    }
}

/// Padding on both sides of an axis.
///
/// # Errors
/// When no memory has so many elements.
pub(super) fn padded_extent(op: &'static str, n: usize, (a, b): (usize, usize)) -> Result<usize> {
    let sum = n.checked_add(a).and_then(|n| n.checked_add(b));
    match sum.filter(|&sum| sum <= isize::MAX as usize) {
        Some(sum) => Ok(sum),
        None => {
            let message = format!("padding {n} elements by {a} and {b} is more than memory holds");
            Err(shape_error(op, message))
        }
    }
}

/// An axis as two, (kernel, count), whose element (i, j) is element i of window j. At least one
/// window fits.
///
/// It stays a view: nothing is copied, and elements beyond the axis are at most stepped over.
pub(super) fn windows(x: &UOp, axis: usize, window: &Window) -> Result<UOp> {
    let n = x.shape()[axis];
    let count = (n - window.reach()) / window.stride + 1;
    if window.kernel == 1 {
        return every(x, axis, window.stride, count)?.reshape(&around(x, axis, &[1, count]));
    }
    if window.stride >= window.reach() {
        return apart(x, axis, window, count);
    }
    let Window {
        kernel: k,
        stride: s,
        dilation: d,
    } = *window;
    // The axis is repeated and read in rows of n + d, so that each row begins d later than the one
    // above it. Of a row the windows' first elements are kept.
    let row = n + d;
    let times = (k * row).div_ceil(n);
    let inside = |u: &UOp, middle: &[usize]| u.reshape(&around(x, axis, middle));
    let repeated = inside(x, &[1, n])?.expand(&around(x, axis, &[times, n]))?;
    let rows = inside(&repeated, &[times * n])?.shrink(&first(x, axis, &[k * row]))?;
    let rows = inside(&rows, &[k, row])?.shrink(&first(x, axis, &[k, count * s]))?;
    if s == 1 {
        return Ok(rows);
    }
    let begins = inside(&rows, &[k, count, s])?.shrink(&first(x, axis, &[k, count, 1]))?;
    inside(&begins, &[k, count])
}

/// Windows that do not overlap: rows of which the first elements are kept.
fn apart(x: &UOp, axis: usize, window: &Window, count: usize) -> Result<UOp> {
    let (s, k) = (window.stride, window.kernel);
    let rows = in_rows(x, axis, s, count)?;
    let reach = rows.shrink(&first(x, axis, &[count, window.reach()]))?;
    let elements = every(&reach, axis + 1, window.dilation, k)?;
    let mut order: Vec<usize> = (0..elements.shape().rank()).collect();
    order.swap(axis, axis + 1);
    elements.permute(&order)
}

/// Every `step`-th element of an axis, `count` of them.
fn every(x: &UOp, axis: usize, step: usize, count: usize) -> Result<UOp> {
    if step == 1 {
        return x.shrink(&first(x, axis, &[count]));
    }
    in_rows(x, axis, step, count)?
        .shrink(&first(x, axis, &[count, 1]))?
        .reshape(&around(x, axis, &[count]))
}

/// An axis in `count` rows of that length, cut off or filled up with zeros.
fn in_rows(x: &UOp, axis: usize, length: usize, count: usize) -> Result<UOp> {
    let (n, whole) = (x.shape()[axis], count * length);
    let cut = x.shrink(&first(x, axis, &[n.min(whole)]))?;
    let mut padding = vec![(0, 0); x.shape().rank()];
    padding[axis] = (0, whole.saturating_sub(n));
    composite::pad(&cut, &padding)?.reshape(&around(x, axis, &[count, length]))
}

/// The shape with other extents in the place of one axis.
pub(super) fn around(x: &UOp, axis: usize, middle: &[usize]) -> Vec<usize> {
    [&x.shape()[..axis], middle, &x.shape()[axis + 1..]].concat()
}

/// Bounds that keep the first elements of the axes in the place of one axis, and all others.
fn first(x: &UOp, axis: usize, middle: &[usize]) -> Vec<(usize, usize)> {
    let dims = around(x, axis, middle);
    dims.into_iter().map(|d| (0, d)).collect()
}

/// Windows along the last axes: (..., n1, n2) becomes (..., k1, k2, count1, count2).
pub(super) fn all_windows(x: &UOp, along: &[Window]) -> Result<UOp> {
    let lead = x.shape().rank() - along.len();
    let mut view = x.clone();
    for (k, window) in along.iter().enumerate() {
        view = windows(&view, lead + 2 * k, window)?;
    }
    let axes = |offset: usize| (0..along.len()).map(move |k| lead + 2 * k + offset);
    let order: Vec<usize> = (0..lead).chain(axes(0)).chain(axes(1)).collect();
    view.permute(&order)
}

/// The entries of an axis at positions, which take its place with all their axes.
pub(super) fn gather(x: &UOp, axis: usize, positions: &UOp) -> Result<UOp> {
    let rank = x.shape().rank();
    let mut front: Vec<usize> = (0..rank).collect();
    front.remove(axis);
    front.insert(0, axis);
    let read = x.permute(&front)?.index(std::slice::from_ref(positions))?;
    // The positions' axes are in front; they go back to where the axis was.
    let own = positions.shape().rank();
    let others = own..own + rank - 1;
    let order: Vec<usize> = others
        .clone()
        .take(axis)
        .chain(0..own)
        .chain(others.skip(axis))
        .collect();
    read.permute(&order)
}

/// Whole numbers along one of `rank` axes, the other axes of extent 1.
pub(super) fn numbers_along(numbers: &UOp, axis: usize, rank: usize) -> Result<UOp> {
    let mut dims = vec![1; rank];
    dims[axis] = numbers.shape()[0];
    numbers.reshape(&dims)
}
