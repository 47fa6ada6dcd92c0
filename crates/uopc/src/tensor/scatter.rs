//! Setting elements at positions that a tensor holds, as values: scatter, put, and reductions of what
//! meets in one place.
//!
//! Where several elements have one position, the last of them in row-major order is kept, for any
//! number of threads. Who that is, is computed first: for each place the number of the last element
//! that names it. Then each place reads its element. So the gradient of an element that was not kept
//! is 0.

use super::args::{Integer, axis_of};
use super::gather::{along, beside, constant, index_dtype, inverse, read_along, source_of};
use super::index::places;
use super::{
    DType, Index, Operand, Result, Shape, Site, Slice, Tensor, UOp, dtype_error, shape_error,
};
use crate::ir::op::ReduceOp;
use crate::ir::{Scalar, composite};

/// How elements that meet in one place are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combine {
    /// Added, in order.
    Sum,
    /// Multiplied.
    Prod,
    /// Averaged.
    Mean,
    /// The largest; NaN wins.
    Amax,
    /// The least; NaN wins.
    Amin,
}

impl Tensor {
    /// A copy with the elements of a source, or a number, at positions along an axis, as PyTorch's
    /// `scatter`: `x[p[i, j], j] = s[i, j]` for axis 0. Of several for one place the last in row-major
    /// order stays. Gradients flow to what is kept and to those that stay.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([0, 0, 0]);
    /// let set = t.scatter(0, &Tensor::from([2, 0, 2]), &Tensor::from([1, 2, 3]))?;
    /// assert_eq!(set.to_vec::<i32>()?, [2, 0, 3]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the positions are not integers, the numbers of axes differ, the positions' shape is not
    /// within the source's and, but for the axis, within this tensor's, or the source has another
    /// kind of numbers.
    #[track_caller]
    pub fn scatter(
        &self,
        axis: impl Integer,
        positions: &Tensor,
        source: impl Into<Operand>,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("scatter", self.shape(), axis.signed())?;
        let source = source_of("scatter", self, axis, positions, source.into())?;
        let at = places("scatter", positions, self.shape()[axis])?;
        let ((x, a), (s, b)) = (self.read(), source.read());
        Ok(Tensor::derived(set_along(&x, &at, &s, axis)?, a || b))
    }

    /// [`scatter`](Self::scatter) as NumPy's `put_along_axis`, as a value: all other axes of the
    /// positions broadcast against this tensor's, and the values against the positions.
    ///
    /// # Errors
    /// When the positions are not integers, their number of axes is not this tensor's, shapes do not
    /// broadcast, or the values have another kind of numbers.
    #[track_caller]
    pub fn put_along_axis(
        &self,
        positions: &Tensor,
        values: impl Into<Operand>,
        axis: impl Integer,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("put_along_axis", self.shape(), axis.signed())?;
        let [x, at] = beside("put_along_axis", self, positions, axis)?;
        if x.shape() != self.shape() {
            let (shape, named) = (self.shape(), positions.shape());
            let message = format!("positions of shape {named} name more than shape {shape} has");
            return Err(shape_error("put_along_axis", message));
        }
        let values = match values.into() {
            Operand::Tensor(t) => Operand::Tensor(t.expand(at.shape())?),
            number => number,
        };
        self.scatter(axis, &at, values)
    }

    /// A copy with the entries of a source at the positions of an axis, as PyTorch's `index_copy`. Of
    /// several for one position the last stays.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([1, 2, 3]);
    /// let set = t.index_copy(0, &Tensor::from([2, 0]), &Tensor::from([10, 20]))?;
    /// assert_eq!(set.to_vec::<i32>()?, [20, 2, 10]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the positions are not integers, there is no such axis, or the source does not broadcast to
    /// its entries.
    #[track_caller]
    pub fn index_copy(
        &self,
        axis: impl Integer,
        positions: &Tensor,
        source: &Tensor,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.index_fill(axis, positions, source)
    }

    /// A copy with a number in all entries at the positions of an axis, as PyTorch's `index_fill`.
    ///
    /// # Errors
    /// When the positions are not integers, there is no such axis, or the number does not fit.
    #[track_caller]
    pub fn index_fill(
        &self,
        axis: impl Integer,
        positions: &Tensor,
        value: impl Into<Operand>,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("index_fill", self.shape(), axis.signed())?;
        if positions.dtype() == DType::Bool {
            let message = "positions are integers, not bool; use masked_fill or with_index".into();
            return Err(dtype_error("index_fill", message));
        }
        let mut indices = vec![Index::Slice(Slice::Between(None, None)); axis];
        indices.push(positions.into());
        self.with_index(indices, value)
    }

    /// A copy in which what a source has for a place is combined there, and with what stood there
    /// unless `include_self` is false. Places that nothing is for stay as they are. As PyTorch's
    /// `scatter_reduce`.
    ///
    /// Sums and means cost as much as the source is large; the others compare each place of the axis
    /// with each position of it.
    ///
    /// ```
    /// # use uopc::{Tensor, tensor::Combine};
    /// let (t, at) = (Tensor::from([5, 5, 5]), Tensor::from([0, 0, 1]));
    /// let most = t.scatter_reduce(0, &at, &Tensor::from([3, 9, 2]), Combine::Amax, false)?;
    /// assert_eq!(most.to_vec::<i32>()?, [9, 2, 5]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`scatter`](Self::scatter).
    #[track_caller]
    pub fn scatter_reduce(
        &self,
        axis: impl Integer,
        positions: &Tensor,
        source: impl Into<Operand>,
        combine: Combine,
        include_self: bool,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let op = "scatter_reduce";
        let axis = axis_of(op, self.shape(), axis.signed())?;
        let source = source_of(op, self, axis, positions, source.into())?;
        let ones = Tensor::full_of(Operand::Int(1), DType::I32, positions.shape())?;
        let count = self.sums_along(op, axis, positions, &ones)?;
        let is_hit = count.gt(0)?;
        if matches!(combine, Combine::Sum | Combine::Mean) {
            let sums = self.sums_along(op, axis, positions, &source)?;
            let (mut sums, mut count) = match include_self {
                true => (self.add(sums)?, count.add(1)?),
                false => (sums, count),
            };
            if combine == Combine::Mean {
                count = is_hit.where_(&count, 1)?;
                sums = match self.dtype().is_float() {
                    true => sums.div(count.cast(self.dtype())?)?,
                    false => sums.floordiv(count.cast(self.dtype())?)?,
                };
            }
            return is_hit.where_(sums, self);
        }
        let at = places(op, positions, self.shape()[axis])?;
        let reduced = self.met(&at, &source, axis, combine)?;
        let both = match (combine, include_self) {
            (_, false) => reduced,
            (Combine::Prod, _) => self.mul(reduced)?,
            (Combine::Amin, _) => self.minimum(reduced)?,
            _ => self.maximum(reduced)?,
        };
        is_hit.where_(both, self)
    }

    /// For each place along an axis the source's elements for it, multiplied, or the largest or least.
    fn met(&self, at: &UOp, source: &Tensor, axis: usize, combine: Combine) -> Result<Tensor> {
        let n = self.shape()[axis];
        // Each axis as in the source, with the places before the positions of the axis.
        let mut apart = source.shape().to_vec();
        apart.insert(axis, 1);
        let mut dims = apart.clone();
        dims[axis] = n;
        let hits = hits(at, axis, n)?;
        let neutral = match combine {
            Combine::Prod => Scalar::identity(ReduceOp::Mul, self.dtype()),
            Combine::Amin => greatest(self.dtype()),
            _ => Scalar::identity(ReduceOp::Max, self.dtype()),
        };
        let met = source.map(|s| {
            let otherwise = UOp::full(neutral, &Shape::new(&dims))?;
            hits.where_(&s.reshape(&apart)?.expand(&dims)?, &otherwise)
        })?;
        let met = match combine {
            Combine::Prod => met.prod(axis as i64 + 1)?,
            Combine::Amin => met.min(axis as i64 + 1)?,
            _ => met.max(axis as i64 + 1)?,
        };
        // Rows that the positions do not reach are not hit.
        let beyond = self.shape().iter().zip(met.shape().iter());
        let padding: Vec<(usize, usize)> = beyond.map(|(n, m)| (0, n - m)).collect();
        met.pad(padding)
    }
}

/// Whether the position is the place, with the places as a new axis in front of the positions' one.
fn hits(at: &UOp, axis: usize, n: usize) -> Result<UOp> {
    let dtype = index_dtype(at.dtype(), n);
    let mut apart = at.shape().to_vec();
    apart.insert(axis, 1);
    let mut dims = apart.clone();
    dims[axis] = n;
    let mut ones = vec![1; dims.len()];
    ones[axis] = n;
    let places = UOp::iota(n, dtype)?.reshape(&ones)?.expand(&dims)?;
    at.cast(dtype)?.reshape(&apart)?.expand(&dims)?.eq(&places)
}

/// Positions along the last axis up to which each place is compared with each of them.
const COMPARED: usize = 32;
/// As many comparisons take less time than sorting and compiling what sorts.
const COMPARISONS: usize = 1 << 22;

/// For each of n places along the last axis the number of the last position that names it, or -1.
/// Positions out of range name nothing. The result has the positions' shape with n places.
pub(super) fn last_named(at: &UOp, n: usize) -> Result<UOp> {
    let rank = at.shape().rank();
    let k = at.shape()[rank - 1];
    let mut dims = at.shape().to_vec();
    dims[rank - 1] = n;
    let dtype = match i32::try_from(k.max(n)) {
        Ok(_) => DType::I32,
        Err(_) => DType::I64,
    };
    if k == 0 || at.shape().numel() == 0 {
        return constant(-1, dtype, &Shape::new(&dims));
    }
    // Numbers begin with 1, so that 0 stands for none.
    let one = |shape: &Shape| constant(1, dtype, shape);
    let numbers = UOp::iota(k, dtype)?;
    let numbers = numbers.add(&one(numbers.shape())?)?;
    let work = at.shape().numel().saturating_mul(n);
    let found = if k <= COMPARED || work <= COMPARISONS {
        let hits = hits(at, rank - 1, n)?;
        let mut ones = vec![1; rank + 1];
        ones[rank] = k;
        let numbers = numbers.reshape(&ones)?.expand(hits.shape())?;
        let none = constant(0, dtype, hits.shape())?;
        hits.where_(&numbers, &none)?.reduce(ReduceOp::Max, 1)?
    } else {
        by_sorting(at, &dims, dtype)?
    };
    found.sub(&one(found.shape())?)
}

/// Sorted, equal positions stand beside each other in their order; the last of them adds its number
/// at its place, where nothing else adds.
fn by_sorting(at: &UOp, dims: &[usize], dtype: DType) -> Result<UOp> {
    let shape = at.shape();
    let (rank, k) = (shape.rank(), shape[shape.rank() - 1]);
    let order = at.argsort()?;
    let sorted = read_along(at, &order, rank - 1)?;
    let mut next: Vec<(usize, usize)> = shape.iter().map(|&d| (0, d)).collect();
    next[rank - 1] = (1, k);
    let mut around = vec![(0, 0); rank];
    around[rank - 1] = (0, 1);
    let next = composite::pad(&sorted.shrink(&next)?, &around)?;
    let mut ones = vec![1; rank];
    ones[rank - 1] = k;
    let count = UOp::iota(k, dtype)?;
    let is_end = count
        .eq(&constant(k as i128 - 1, dtype, count.shape())?)?
        .reshape(&ones)?
        .expand(shape)?;
    let is_last = sorted.cmpne(&next)?.or(&is_end)?;
    let numbers = order.cast(dtype)?;
    let numbers = numbers.add(&constant(1, dtype, shape)?)?;
    let numbers = is_last.where_(&numbers, &constant(0, dtype, shape)?)?;
    let to = along(&sorted, &Shape::new(dims), rank - 1)?;
    numbers.scatter_add(&to, dims)
}

/// x with the source's elements at positions along an axis.
fn set_along(x: &UOp, at: &UOp, source: &UOp, axis: usize) -> Result<UOp> {
    let rank = x.shape().rank();
    if at.shape().numel() == 0 {
        return Ok(x.clone());
    }
    let mut order: Vec<usize> = (0..rank).filter(|&k| k != axis).collect();
    order.push(axis);
    let (x, at, source) = (
        x.permute(&order)?,
        at.permute(&order)?,
        source.permute(&order)?,
    );
    let named = last_named(&at, x.shape()[rank - 1])?;
    // Rows that the positions do not reach keep all they have.
    let dims = named.shape().clone();
    let window: Vec<(usize, usize)> = dims.iter().map(|&d| (0, d)).collect();
    let part = x.shrink(&window)?;
    let none = constant(0, named.dtype(), &dims)?;
    let set = named
        .cmplt(&none)?
        .where_(&part, &read_along(&source, &named, rank - 1)?)?;
    let set = match dims == *x.shape() {
        true => set,
        false => {
            let around: Vec<(usize, usize)> = dims
                .iter()
                .zip(x.shape().iter())
                .map(|(n, m)| (0, m - n))
                .collect();
            let reached = UOp::full(Scalar::from_bool(true), &dims)?;
            let reached = composite::pad(&reached, &around)?;
            reached.where_(&composite::pad(&set, &around)?, &x)?
        }
    };
    set.permute(&inverse(&order))
}

/// The largest value of a dtype, +infinity of a float.
fn greatest(dtype: DType) -> Scalar {
    match dtype.int_range() {
        Some((_, most)) => Scalar::from_i128(dtype, most),
        None if dtype == DType::Bool => Scalar::from_bool(true),
        None => Scalar::from_f64(dtype, f64::INFINITY),
    }
}

/// x with values at places of its first `n` axes, or with them added there: the places are one flat
/// number for each value, -1 for none; the values have the places' shape and then the other axes.
pub(super) fn put(x: &UOp, n: usize, flat: &UOp, values: &UOp, adds: bool) -> Result<UOp> {
    let (first, rest) = x.shape().split_at(n);
    let count: usize = first.iter().product();
    let places = flat.shape().numel();
    let with = |n: usize| [&[n], rest].concat();
    let (rows, flat) = (x.reshape(&with(count))?, flat.reshape(&[places])?);
    let values = values.reshape(&with(places))?;
    let put = if adds {
        rows.add(&values.scatter_add(&[flat], &with(count))?)?
    } else {
        let named = last_named(&flat, count)?;
        let is_none = named.cmplt(&constant(0, named.dtype(), named.shape())?)?;
        let mut ones = vec![1; rest.len() + 1];
        ones[0] = count;
        let is_none = is_none.reshape(&ones)?.expand(rows.shape())?;
        is_none.where_(&rows, &values.index(&[named])?)?
    };
    put.reshape(x.shape())
}
