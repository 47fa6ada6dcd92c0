//! How parts of a tensor are written, and which positions of each axis that means.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use super::args::Integer;
use super::{Error, Result, Shape, Site, shape_error};

/// What to keep of one axis, or where axes come or stay. Negative positions count from the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slice {
    /// One position; the axis disappears.
    At(i64),
    /// `start..stop`, with an open end where `None`.
    Between(Option<i64>, Option<i64>),
    /// Every `step`-th position from the first on; a negative step goes backwards from the last.
    Every(i64),
    /// `start`, `start + step` and so on up to but without `stop`, as Python's `start:stop:step`: an
    /// open end is that of the axis in the direction of the step, and what lies outside of the axis
    /// is cut off. Unlike a [`Between`](Slice::Between) it never leaves its axis, but may be empty.
    Stepped(Option<i64>, Option<i64>, i64),
    /// No axis of the tensor, but a new one of extent 1 in the result.
    NewAxis,
    /// All axes that no other slice names, whole. It may stand once, wherever, and goes without
    /// saying at the end.
    Rest,
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

/// What slices keep of a shape.
pub(super) struct Part {
    /// The positions of each axis.
    pub picks: Vec<Pick>,
    /// For each axis of the part the axis that it shows, `None` for a new one.
    pub shows: Vec<Option<usize>>,
    /// How many first axes are reduced to one position each, while all others stay whole because
    /// nobody named them; 0 if the part is anything else.
    pub singles: usize,
}

/// Positions of one axis: `begin`, `begin + step`, ..., `count` of them.
#[derive(Clone, Copy)]
pub(super) struct Pick {
    /// The first one.
    pub begin: usize,
    /// How many.
    pub count: usize,
    /// From one to the next; 1 if there are fewer than two.
    pub step: usize,
    /// Whether they are read from the last one to the first.
    pub backwards: bool,
}

impl Part {
    /// What the slices keep of a tensor of that shape; `op` is named by errors.
    pub(super) fn of(op: &'static str, shape: &Shape, slices: &[Slice]) -> Result<Part> {
        let rank = shape.rank();
        let count = |wanted: fn(&Slice) -> bool| slices.iter().filter(|s| wanted(s)).count();
        let named = count(|s| !matches!(s, Slice::NewAxis | Slice::Rest));
        let rests = count(|s| matches!(s, Slice::Rest));
        if named > rank {
            let message = format!("{named} slices of shape {shape}, which has {rank} axes");
            return Err(index_error(op, message));
        }
        if rests > 1 {
            let message = format!("{rests} of the slices mean the rest of the axes; one can");
            return Err(index_error(op, message));
        }
        let mut part = Part {
            picks: Vec::with_capacity(rank),
            shows: Vec::with_capacity(slices.len().max(rank)),
            singles: 0,
        };
        let mut positions = 0;
        for slice in slices {
            match slice {
                Slice::NewAxis => part.shows.push(None),
                Slice::Rest => part.rest(shape, rank - named),
                Slice::At(position) => {
                    let axis = part.picks.len();
                    let begin = position_in(op, shape, axis, *position)?;
                    positions += 1;
                    part.singles += usize::from(part.singles == axis);
                    part.picks.push(Pick::range(begin, begin + 1));
                }
                range => {
                    let axis = part.picks.len();
                    part.shows.push(Some(axis));
                    part.picks.push(range_in(op, shape, axis, *range)?);
                }
            }
        }
        if rests == 0 {
            part.rest(shape, rank - named);
        }
        if positions < named || part.singles < positions {
            part.singles = 0;
        }
        Ok(part)
    }

    /// The next `n` axes, whole.
    fn rest(&mut self, shape: &Shape, n: usize) {
        for axis in self.picks.len()..self.picks.len() + n {
            self.shows.push(Some(axis));
            self.picks.push(Pick::range(0, shape[axis]));
        }
    }

    /// The extents of the part.
    pub(super) fn dims(&self) -> Vec<usize> {
        let extent = |shown: &Option<usize>| shown.map_or(1, |axis| self.picks[axis].count);
        self.shows.iter().map(extent).collect()
    }
}

impl Pick {
    fn range(begin: usize, end: usize) -> Pick {
        Pick {
            begin,
            count: end - begin,
            step: 1,
            backwards: false,
        }
    }

    /// The position of the last one of several.
    pub(super) fn last(&self) -> usize {
        self.begin + (self.count.max(1) - 1) * self.step
    }

    /// Whether it is all of an axis of extent n, in either order.
    pub(super) fn is_whole(&self, n: usize) -> bool {
        self.count == n && self.step == 1
    }

    /// The picks as one column of `count` rows of `step` positions: where the first row begins,
    /// and the number of the column. The last row may go beyond the end of an axis of extent n,
    /// but only if it begins at 0.
    pub(super) fn rows(&self, n: usize) -> (usize, usize) {
        let first = self.begin.min(n.saturating_sub(self.count * self.step));
        (first, self.begin - first)
    }
}

pub(super) fn position_in(
    op: &'static str,
    shape: &Shape,
    axis: usize,
    position: i64,
) -> Result<usize> {
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
    Err(index_error(op, message))
}

/// The positions of a range of any spelling.
fn range_in(op: &'static str, shape: &Shape, axis: usize, range: Slice) -> Result<Pick> {
    let (start, stop, step) = match range {
        Slice::Between(start, stop) => return between(op, shape, axis, start, stop),
        Slice::Every(step) => (None, None, step),
        Slice::Stepped(start, stop, step) => (start, stop, step),
        Slice::At(_) | Slice::NewAxis | Slice::Rest => (None, None, 1),
    };
    if step == 0 {
        return Err(shape_error(op, "a step of 0 never ends".into()));
    }
    // Wide enough for every sum of two numbers below.
    let (n, step) = (shape[axis] as i128, step as i128);
    // A number outside of the axis stands for the last place before or after it, which is
    // reachable in the direction of the step.
    let (before, behind) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let place = |p: i64| {
        let p = p as i128;
        (if p < 0 { p + n } else { p }).clamp(before, behind)
    };
    let (near, far) = if step > 0 {
        (before, behind)
    } else {
        (behind, before)
    };
    let (start, stop) = (start.map_or(near, place), stop.map_or(far, place));
    let way = if step > 0 { stop - start } else { start - stop };
    let width = step.abs();
    let count = (way + width - 1).div_euclid(width).max(0);
    let last = start + (count - 1).max(0) * step;
    let begin = if count == 0 { 0 } else { start.min(last) };
    Ok(Pick {
        begin: begin as usize,
        count: count as usize,
        step: if count > 1 { width as usize } else { 1 },
        backwards: step < 0 && count > 1,
    })
}

fn between(
    op: &'static str,
    shape: &Shape,
    axis: usize,
    start: Option<i64>,
    stop: Option<i64>,
) -> Result<Pick> {
    let n = shape[axis] as i64;
    let place = |p: i64| if p < 0 { p.saturating_add(n) } else { p };
    let (begin, end) = (place(start.unwrap_or(0)), place(stop.unwrap_or(n)));
    if 0 <= begin && begin <= end && end <= n {
        return Ok(Pick::range(begin as usize, end as usize));
    }
    let text = |p: Option<i64>| p.map_or(String::new(), |p| p.to_string());
    let message = format!(
        "{}..{} is no range within axis {axis} of shape {shape}",
        text(start),
        text(stop)
    );
    Err(shape_error(op, message))
}

/// The error for positions and axes that a tensor does not have.
pub(super) fn index_error(op: &'static str, message: String) -> Error {
    let site = Site::current();
    Error::Index { op, message, site }
}
