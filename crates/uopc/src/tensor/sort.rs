//! Sorting along an axis, and what rests on it: the largest elements, order statistics, medians and
//! quantiles, positions in a sorted row.
//!
//! All of it goes through one ARGSORT: positions are sorted, and values are read at them, so a
//! gradient goes to the elements that were read. NaNs are larger than all numbers, -0 equals +0, and
//! equal elements keep their order.

use super::args::{Axes, Integer, axes_of, axis_of};
use super::reduce::in_floats;
use super::scan::along;
use super::{DType, Result, Site, Tensor, UOp, shape_error};
use crate::ir::Scalar;
use crate::ir::composite::flip;
use crate::ir::recurrence::part;

/// Which value a quantile takes that lies between two elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// The one on the line between them.
    #[default]
    Linear,
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
    /// The nearer one, the one at the even position if both are as near.
    Nearest,
    /// Their mean.
    Midpoint,
}

impl Interpolation {
    /// The one of that name: `linear`, `lower`, `higher`, `nearest` or `midpoint`.
    ///
    /// # Errors
    /// When there is none.
    pub fn of(name: &str) -> Result<Interpolation> {
        Ok(match name {
            "linear" => Interpolation::Linear,
            "lower" => Interpolation::Lower,
            "higher" => Interpolation::Higher,
            "nearest" => Interpolation::Nearest,
            "midpoint" => Interpolation::Midpoint,
            _ => {
                let message = format!(
                    "there is no interpolation '{name}'; give linear, lower, higher, nearest or \
                     midpoint"
                );
                return Err(shape_error("quantile", message));
            }
        })
    }
}

/// Which of two places a number gets that is among the elements of a sorted row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Side {
    /// Before all that equal it.
    #[default]
    Left,
    /// Behind all that equal it.
    Right,
}

impl Tensor {
    /// The elements in ascending (or `descending`) order along an axis, and their positions before,
    /// as i64. Equal elements keep their order; NaNs are larger than all numbers.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (values, positions) = Tensor::from([3, 1, 2, 1]).sort(0, false)?;
    /// assert_eq!(values.to_vec::<i32>()?, [1, 1, 2, 3]);
    /// assert_eq!(positions.to_vec::<i64>()?, [1, 3, 2, 0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis.
    #[track_caller]
    pub fn sort(&self, axis: impl Integer, descending: bool) -> Result<(Tensor, Tensor)> {
        let _site = Site::caller().enter();
        let axis = axis_of("sort", self.shape(), axis.signed())?;
        self.chosen(axis, |x| order(x, descending))
    }

    /// The positions that sort an axis in ascending (or `descending`) order, as i64. Equal elements
    /// keep their order; NaNs are larger than all numbers.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([0.5f32, f32::NAN, -1.0, 0.5]);
    /// assert_eq!(t.argsort(0, false)?.to_vec::<i64>()?, [2, 0, 3, 1]);
    /// assert_eq!(t.argsort(0, true)?.to_vec::<i64>()?, [1, 0, 3, 2]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis.
    #[track_caller]
    pub fn argsort(&self, axis: impl Integer, descending: bool) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("argsort", self.shape(), axis.signed())?;
        let node = along(&self.uop(), axis, |x| order(x, descending))?;
        Ok(Tensor::new(node, false))
    }

    /// The `k` largest (or smallest) elements along an axis, in order, and their positions, as i64.
    /// NaNs are larger than all numbers; of equal elements the first come first.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (values, positions) = Tensor::from([3, 1, 4, 1, 5]).topk(2, 0, true)?;
    /// assert_eq!(values.to_vec::<i32>()?, [5, 4]);
    /// assert_eq!(positions.to_vec::<i64>()?, [4, 2]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis, or it has fewer elements.
    #[track_caller]
    pub fn topk(&self, k: usize, axis: impl Integer, largest: bool) -> Result<(Tensor, Tensor)> {
        let _site = Site::caller().enter();
        let axis = axis_of("topk", self.shape(), axis.signed())?;
        let n = self.shape()[axis];
        if k > n {
            let message = format!(
                "k = {k}, but axis {axis} of shape {} has {n} elements; give at most {n}",
                self.shape()
            );
            return Err(shape_error("topk", message));
        }
        self.chosen(axis, |x| part(&order(x, largest)?, 0, k))
    }

    /// The `k`-th smallest element along an axis, counted from 1, and its position, as i64. The axis
    /// disappears. NaNs are larger than all numbers.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (value, position) = Tensor::from([3, 1, 4, 1, 5]).kthvalue(3, 0)?;
    /// assert_eq!((value.item()?, position.item()?), (3.0, 0.0));
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis, or it has no such element.
    #[track_caller]
    pub fn kthvalue(&self, k: usize, axis: impl Integer) -> Result<(Tensor, Tensor)> {
        let _site = Site::caller().enter();
        let (values, positions) = self.kthvalue_keepdim(k, axis.signed())?;
        let axis = axis_of("kthvalue", self.shape(), axis.signed())?;
        let mut dims = self.shape().to_vec();
        dims.remove(axis);
        let without = |t: Tensor| t.map(|x| x.reshape(&dims));
        Ok((without(values)?, without(positions)?))
    }

    /// [`kthvalue`](Self::kthvalue) that keeps the axis, with extent 1.
    ///
    /// # Errors
    /// When there is no such axis, or it has no such element.
    #[track_caller]
    pub fn kthvalue_keepdim(&self, k: usize, axis: impl Integer) -> Result<(Tensor, Tensor)> {
        let _site = Site::caller().enter();
        let axis = axis_of("kthvalue", self.shape(), axis.signed())?;
        let n = self.shape()[axis];
        if k == 0 || k > n {
            let message = format!(
                "k = {k}, but axis {axis} of shape {} has {n} elements, which are counted from 1",
                self.shape()
            );
            return Err(shape_error("kthvalue", message));
        }
        self.chosen(axis, |x| part(&order(x, false)?, k - 1, k))
    }

    /// Where numbers go in sorted rows so that they stay sorted, as i64: before elements that equal
    /// them, or behind them. This tensor has ascending rows along its last axis; it is one row for
    /// all numbers, or has the leading axes of `values` and a row for each of theirs. NaNs are larger
    /// than all numbers. What is not sorted gives some place.
    ///
    /// ```
    /// # use uopc::{Tensor, tensor::Side};
    /// let row = Tensor::from([1, 3, 3, 5]);
    /// let values = Tensor::from([0, 3, 6]);
    /// assert_eq!(row.searchsorted(&values, Side::Left)?.to_vec::<i64>()?, [0, 1, 4]);
    /// assert_eq!(row.searchsorted(&values, Side::Right)?.to_vec::<i64>()?, [0, 3, 4]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the shapes do not fit.
    #[track_caller]
    pub fn searchsorted(&self, values: &Tensor, side: Side) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (rows, wanted) = (self.shape(), values.shape());
        let leading = rows.rank().saturating_sub(1);
        let fits = rows.rank() == 1
            || rows.rank() > 1
                && wanted.rank() == rows.rank()
                && wanted[..leading] == rows[..leading];
        if !fits {
            let message = format!(
                "sorted rows {rows} and values {wanted} do not fit; give one row, or as many axes \
                 as the values have, all but the last of the same extents"
            );
            return Err(shape_error("searchsorted", message));
        }
        let dtype = self.dtype().promote(values.dtype());
        let (x, v) = (self.uop().cast(dtype)?, values.uop().cast(dtype)?);
        Ok(Tensor::new(search(&x, &v, side)?, false))
    }

    /// The median along axes: the middle element, or the mean of the two in the middle, as in NumPy.
    /// NaN if there is one, or no element. Integers become f32.
    ///
    /// The axes are one number, several, or `..` for all; negative ones count from the end.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([[3.0f32, 1.0, 2.0], [6.0, 5.0, 9.0]]);
    /// assert_eq!(t.median(1)?.to_vec::<f32>()?, [2.0, 6.0]);
    /// assert_eq!(t.median(..)?.item()?, 4.0);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When an axis does not exist or is named twice.
    #[track_caller]
    pub fn median(&self, axes: impl Axes) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.quantile_of("median", 0.5, axes, Interpolation::Midpoint, false)
    }

    /// [`median`](Self::median) that keeps the axes, with extent 1.
    ///
    /// # Errors
    /// When an axis does not exist or is named twice.
    #[track_caller]
    pub fn median_keepdim(&self, axes: impl Axes) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.quantile_of("median", 0.5, axes, Interpolation::Midpoint, true)
    }

    /// The value below which the part `q` of the elements along axes lies: in ascending order the
    /// element at position `q * (n - 1)`, counted from 0. Between two elements the `interpolation`
    /// decides. NaN if there is one, or no element. Integers become f32.
    ///
    /// The axes are one number, several, or `..` for all; negative ones count from the end.
    ///
    /// ```
    /// # use uopc::{Tensor, tensor::Interpolation};
    /// let t = Tensor::from([4.0f32, 1.0, 2.0, 3.0]);
    /// assert_eq!(t.quantile(0.5, .., Interpolation::Linear)?.item()?, 2.5);
    /// assert_eq!(t.quantile(0.5, .., Interpolation::Lower)?.item()?, 2.0);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When q is not in 0..=1, or an axis does not exist or is named twice.
    #[track_caller]
    pub fn quantile(
        &self,
        q: f64,
        axes: impl Axes,
        interpolation: Interpolation,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.quantile_of("quantile", q, axes, interpolation, false)
    }

    /// [`quantile`](Self::quantile) that keeps the axes, with extent 1.
    ///
    /// # Errors
    /// When q is not in 0..=1, or an axis does not exist or is named twice.
    #[track_caller]
    pub fn quantile_keepdim(
        &self,
        q: f64,
        axes: impl Axes,
        interpolation: Interpolation,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.quantile_of("quantile", q, axes, interpolation, true)
    }

    /// Several [quantiles](Self::quantile) along a new first axis.
    ///
    /// # Errors
    /// When one is not in 0..=1, or an axis does not exist or is named twice.
    #[track_caller]
    pub fn quantiles(
        &self,
        q: &[f64],
        axes: impl Axes,
        interpolation: Interpolation,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axes = axes_of("quantile", self.shape(), axes)?;
        self.quantiles_of(q, &axes, interpolation, false)
    }

    /// [`quantiles`](Self::quantiles) that keeps the axes, with extent 1.
    ///
    /// # Errors
    /// When one is not in 0..=1, or an axis does not exist or is named twice.
    #[track_caller]
    pub fn quantiles_keepdim(
        &self,
        q: &[f64],
        axes: impl Axes,
        interpolation: Interpolation,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axes = axes_of("quantile", self.shape(), axes)?;
        self.quantiles_of(q, &axes, interpolation, true)
    }

    /// Elements along an axis at the positions that a function of rows gives, and these.
    fn chosen(
        &self,
        axis: usize,
        positions: impl Fn(&UOp) -> Result<UOp>,
    ) -> Result<(Tensor, Tensor)> {
        let values = self.map(|x| along(x, axis, |x| take_along(x, &positions(x)?)))?;
        let positions = along(&self.uop(), axis, positions)?;
        Ok((values, Tensor::new(positions, false)))
    }

    fn quantile_of(
        &self,
        op: &'static str,
        q: f64,
        axes: impl Axes,
        interpolation: Interpolation,
        keeps: bool,
    ) -> Result<Tensor> {
        let axes = axes_of(op, self.shape(), axes)?;
        let one = self.quantiles_of(&[q], &axes, interpolation, keeps)?;
        one.map(|x| x.reshape(&x.shape()[1..]))
    }

    fn quantiles_of(
        &self,
        q: &[f64],
        axes: &[usize],
        interpolation: Interpolation,
        keeps: bool,
    ) -> Result<Tensor> {
        if let Some(q) = q.iter().find(|q| !(0.0..=1.0).contains(*q)) {
            let message = format!("q = {q} is no part of the elements; give a number from 0 to 1");
            return Err(shape_error("quantile", message));
        }
        self.map(|x| {
            in_floats(x, |x| {
                let kept: Vec<usize> = (0..x.shape().rank())
                    .filter(|k| !axes.contains(k))
                    .collect();
                let mut dims: Vec<usize> = kept.iter().map(|&k| x.shape()[k]).collect();
                dims.push(axes.iter().map(|&k| x.shape()[k]).product());
                let order: Vec<usize> = kept.iter().chain(axes).copied().collect();
                let rows = x.permute(&order)?.reshape(&dims)?;
                let found = quantiles(&rows, q, interpolation)?;
                if !keeps {
                    return Ok(found);
                }
                let mut dims = vec![q.len()];
                let extent = |k: usize| if axes.contains(&k) { 1 } else { x.shape()[k] };
                dims.extend((0..x.shape().rank()).map(extent));
                found.reshape(&dims)
            })
        })
    }
}

/// The positions that sort the last axis. Descending is ascending from the end, read from the end:
/// then equal elements keep their order, and NaNs come first.
fn order(x: &UOp, descending: bool) -> Result<UOp> {
    if !descending {
        return x.argsort();
    }
    let last = [x.shape().rank() - 1];
    let from_end = flip(&flip(x, &last)?.argsort()?, &last)?;
    let end = x.shape()[last[0]] as i128 - 1;
    UOp::full(Scalar::from_i128(DType::I64, end), x.shape())?.sub(&from_end)
}

/// Elements along the last axis, at the positions that rows of another node name: integers inside.
fn take_along(x: &UOp, positions: &UOp) -> Result<UOp> {
    let (&n, outer) = x.shape().split_last().unwrap_or((&1, &[]));
    let m = positions.shape().last().copied().unwrap_or(1);
    let rows = outer.iter().product();
    let read = match rows {
        1 => x.reshape(&[n])?.index(&[positions.reshape(&[m])?])?,
        _ => {
            let row = UOp::iota(rows, positions.dtype())?.reshape(&[rows, 1])?;
            let at = [row.expand(&[rows, m])?, positions.reshape(&[rows, m])?];
            x.reshape(&[rows, n])?.index(&at)?
        }
    };
    read.reshape(positions.shape())
}

/// Quantiles along the last axis, which disappears; they are a new first one.
fn quantiles(x: &UOp, q: &[f64], interpolation: Interpolation) -> Result<UOp> {
    let (&n, outer) = x.shape().split_last().unwrap_or((&1, &[]));
    let dims = [&[q.len()], outer].concat();
    if n == 0 || q.is_empty() {
        return UOp::full(Scalar::from_f64(x.dtype(), f64::NAN), &dims[..].into());
    }
    let order = x.argsort()?;
    let at = |k: usize| -> Result<UOp> { take_along(x, &part(&order, k, k + 1)?)?.reshape(outer) };
    let largest = at(n - 1)?;
    let mut found = Vec::with_capacity(q.len());
    for q in q {
        let place = q * (n - 1) as f64;
        let (low, high) = (place.floor() as usize, place.ceil() as usize);
        let value = match interpolation {
            _ if low == high => at(low)?,
            Interpolation::Lower => at(low)?,
            Interpolation::Higher => at(high)?,
            Interpolation::Nearest => at(place.round_ties_even() as usize)?,
            Interpolation::Midpoint => between(&at(low)?, &at(high)?, 0.5)?,
            Interpolation::Linear => between(&at(low)?, &at(high)?, place - low as f64)?,
        };
        // NaNs are last in order.
        found.push(largest.cmpne(&largest)?.where_(&largest, &value)?);
    }
    UOp::stack(&found)?.reshape(&dims)
}

/// `a + (b - a) t` from the nearer end, so that it lies between the two, or a where they are equal,
/// infinities included. Where they are so far apart that the difference is infinite, it is the sum of
/// their parts. t is between 0 and 1.
fn between(a: &UOp, b: &UOp, t: f64) -> Result<UOp> {
    let times = |x: &UOp, t: f64| x.mul(&x.full_like(t)?);
    let difference = b.sub(a)?;
    let value = match t < 0.5 {
        true => a.add(&times(&difference, t)?)?,
        false => b.sub(&times(&difference, 1.0 - t)?)?,
    };
    let far = difference.eq(&difference.full_like(f64::INFINITY)?)?;
    let value = far.where_(&times(a, 1.0 - t)?.add(&times(b, t)?)?, &value)?;
    a.eq(b)?.where_(a, &value)
}

/// For each of `v` the number of elements in its sorted row that come before it: a bisection by
/// powers of two, from the largest that a row has room for.
fn search(x: &UOp, v: &UOp, side: Side) -> Result<UOp> {
    let n = x.shape().last().copied().unwrap_or(0);
    let constant = |k: usize| UOp::full(Scalar::from_i128(DType::I64, k as i128), v.shape());
    let mut found = constant(0)?;
    if v.shape().numel() == 0 || n == 0 {
        return Ok(found);
    }
    let single = x.shape().rank() == 1;
    let rows: usize = v.shape()[..v.shape().rank().saturating_sub(1)]
        .iter()
        .product();
    let flat = [rows, v.shape().numel() / rows.max(1)];
    let row = UOp::iota(rows, DType::I64)?
        .reshape(&[rows, 1])?
        .expand(&flat)?;
    let mut step = n.next_power_of_two();
    while step > 0 {
        // The first `next` elements come before v if the last of them does.
        let next = found.add(&constant(step)?)?;
        let last = next.sub(&constant(1)?)?;
        let element = match single {
            true => x.index(&[last])?,
            false => x
                .reshape(&[rows, n])?
                .index(&[row.clone(), last.reshape(&flat)?])?
                .reshape(v.shape())?,
        };
        let comes = match side {
            Side::Left => less(&element, v)?,
            Side::Right => less(v, &element)?.logical_not()?,
        };
        let inside = constant(n)?.cmplt(&next)?.logical_not()?;
        found = comes.and(&inside)?.where_(&next, &found)?;
        step /= 2;
    }
    Ok(found)
}

/// Whether a comes before b, where NaNs are equal and larger than all numbers.
fn less(a: &UOp, b: &UOp) -> Result<UOp> {
    let less = a.cmplt(b)?;
    if !a.dtype().is_float() {
        return Ok(less);
    }
    let last = b.cmpne(b)?.and(&a.cmpne(a)?.logical_not()?)?;
    less.or(&last)
}
