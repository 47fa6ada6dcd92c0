//! Indices of every kind, by NumPy's rules: slices, integer tensors, lists of positions, masks, in any
//! mixture, read and replaced.
//!
//! Slices are taken first, as movement. The axes that positions name come to the front, one INDEX reads
//! all of them, and the axes of the positions go where NumPy puts them: in the place of the first if
//! the positions stand side by side, else to the front. An integer beside positions counts as one of
//! them.

use super::args::Dims;
use super::gather::{index_dtype, inverse};
use super::index::places;
use super::operand::{broadcast, broadcast_to};
use super::scatter::put;
use super::slices::{index_error, position_in};
use super::update::operand;
use super::{DType, Operand, Result, Shape, Site, Slice, Tensor, UOp, shape_error};
use crate::ir::Scalar;

/// What to read of one axis, or of several.
#[derive(Clone)]
pub enum Index {
    /// A position, a range, a new axis, or the rest of the axes.
    Slice(Slice),
    /// Entries at the positions in an integer tensor, or, of a bool tensor, those of as many axes as it
    /// has where it is true. Negative positions count from the end; those out of range read zeros,
    /// since their values are not known when the graph is made. A mask is computed at once, as
    /// the shape of the result depends on it.
    Tensor(Tensor),
    /// Entries at positions that are known now, in a shape. Those out of range are errors.
    Positions(Vec<i64>, Shape),
}

impl Index {
    /// Positions of a list.
    pub fn list(positions: impl Dims) -> Index {
        let positions = positions.dims();
        let shape = Shape::new(&[positions.len()]);
        Index::Positions(positions, shape)
    }
}

impl From<Tensor> for Index {
    fn from(positions: Tensor) -> Index {
        Index::Tensor(positions)
    }
}

impl From<&Tensor> for Index {
    fn from(positions: &Tensor) -> Index {
        Index::Tensor(positions.clone())
    }
}

impl<S: Into<Slice>> From<S> for Index {
    fn from(slice: S) -> Index {
        Index::Slice(slice.into())
    }
}

/// Indices of the first axes: one, a tuple of them, or a list of [`Index`].
pub trait Indices {
    /// One index after the other.
    fn indices(self) -> Vec<Index>;
}

impl Indices for Vec<Index> {
    fn indices(self) -> Vec<Index> {
        self
    }
}

impl<const N: usize> Indices for [Index; N] {
    fn indices(self) -> Vec<Index> {
        self.into()
    }
}

impl<I: Into<Index>> Indices for I {
    fn indices(self) -> Vec<Index> {
        vec![self.into()]
    }
}

macro_rules! tuples {
    ($(($($name:ident)+))*) => { $(
        impl<$($name: Into<Index>),+> Indices for ($($name,)+) {
            #[allow(non_snake_case)]
            fn indices(self) -> Vec<Index> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    )* };
}

tuples! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

impl Tensor {
    /// A part by indices of every kind, as in NumPy: `t.index((&rows, .., 0))`. See [`Index`].
    ///
    /// ```
    /// # use uopc::{Tensor, tensor::Index};
    /// let t = Tensor::arange(12)?.reshape([3, 4])?;
    /// let (rows, columns) = (Tensor::from([2, 0]), Tensor::from([-1, 1]));
    /// assert_eq!(t.index((&rows, &columns))?.to_vec::<i32>()?, [11, 1]);
    /// assert_eq!(t.index((.., Index::list([3, 0])))?.shape()[..], [3, 2]);
    /// assert_eq!(t.index(t.gt(8)?)?.to_vec::<i32>()?, [9, 10, 11]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there are more indices than axes, positions that are known do not exist, positions do not
    /// broadcast, a mask has another shape than its axes, or it can't be computed.
    #[track_caller]
    pub fn index(&self, indices: impl Indices) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let indices = indices.indices();
        if let Some(slices) = plain(&indices) {
            return self.slice(slices);
        }
        let pick = Picked::of("index", self, &indices)?;
        if pick.at.is_empty() {
            return Ok(pick.part);
        }
        let node = pick.part.map(|x| {
            let front = x.permute(&pick.order)?.index(&pick.at)?;
            front.permute(&pick.result_order())
        })?;
        Ok(node)
    }

    /// A copy in which the part that [`index`](Self::index) reads is replaced. The value broadcasts to
    /// the part; of several values for one place the last one in row-major order stays. What is out of
    /// range is not set. Dtypes as for [`with_slice`](Self::with_slice).
    ///
    /// With a mask alone and a value that is the same for all its places nothing is computed now.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::zeros([4])?;
    /// let t = t.with_index(Tensor::from([0, -1, 0]), Tensor::from([1.0f32, 2.0, 3.0]))?;
    /// assert_eq!(t.to_vec::<f32>()?, [3.0, 0.0, 0.0, 2.0]);
    /// let t = t.with_index(t.eq(0.0)?, 9)?;
    /// assert_eq!(t.to_vec::<f32>()?, [3.0, 9.0, 9.0, 2.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`index`](Self::index), and when the value does not broadcast to the part or its dtype
    /// does not fit.
    #[track_caller]
    pub fn with_index(&self, indices: impl Indices, value: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.put_at("with_index", indices.indices(), value.into(), false)
    }

    /// [`set`](Self::set) to this tensor with a part replaced, as [`with_index`](Self::with_index)
    /// does it.
    ///
    /// # Errors
    /// Those of both.
    #[track_caller]
    pub fn set_index(&self, indices: impl Indices, value: impl Into<Operand>) -> Result<()> {
        let _site = Site::caller().enter();
        let indices = indices.indices();
        match plain(&indices) {
            Some(slices) => self.set_slice(slices, value),
            None => self.set(&self.put_at("set_index", indices, value.into(), false)?),
        }
    }

    /// A copy with values at the places that one tensor for each of the first axes names together, or
    /// with the values added there if `accumulate`. As PyTorch's `index_put`; the tensors may be masks.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::zeros([2, 2])?;
    /// let (rows, columns) = (Tensor::from([0, 1, 0]), Tensor::from([1, 0, 1]));
    /// let sums = t.index_put(&[&rows, &columns], Tensor::from([1.0f32, 2.0, 4.0]), true)?;
    /// assert_eq!(sums.to_vec::<f32>()?, [0.0, 5.0, 2.0, 0.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`with_index`](Self::with_index).
    #[track_caller]
    pub fn index_put(
        &self,
        positions: &[&Tensor],
        values: impl Into<Operand>,
        accumulate: bool,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let indices = positions.iter().map(|&t| t.into()).collect();
        self.put_at("index_put", indices, values.into(), accumulate)
    }

    fn put_at(
        &self,
        op: &'static str,
        indices: Vec<Index>,
        value: Operand,
        adds: bool,
    ) -> Result<Tensor> {
        if let (Some(slices), false) = (plain(&indices), adds) {
            return self.with_slice(slices, value);
        }
        let (value, value_needs_grad) = operand(op, value, self.dtype())?;
        let value = Tensor::derived(value, value_needs_grad);
        if let ([Index::Tensor(mask)], false) = (&indices[..], adds)
            && mask.dtype() == DType::Bool
            && let Some(chosen) = self.where_mask(op, mask, &value)?
        {
            return Ok(chosen);
        }
        let pick = Picked::of(op, self, &indices)?;
        let dims = pick.result();
        let beyond = value.rank().saturating_sub(dims.rank());
        let idle = value
            .shape()
            .iter()
            .take(beyond)
            .take_while(|&&d| d == 1)
            .count();
        let own = Shape::new(&value.shape()[idle..]);
        if broadcast(op, &own, &dims)? != dims {
            let given = value.shape();
            let message =
                format!("a value of shape {given} does not broadcast to the part, {dims}");
            return Err(shape_error(op, message));
        }
        let spread = value.map(|v| broadcast_to(&v.reshape(&own)?, &dims))?;
        if dims.numel() == 0 {
            return Ok(self.clone());
        }
        let part = if pick.at.is_empty() {
            // Only masks without axes, all of them true.
            spread.reshape(pick.part.shape())?
        } else {
            let front = inverse(&pick.result_order());
            let flat = pick.flat()?;
            let ((x, a), (v, b)) = (pick.part.read(), spread.read());
            let (x, v) = (x.permute(&pick.order)?, v.permute(&front)?);
            let set = put(&x, pick.at.len(), &flat, &v, adds)?;
            Tensor::derived(set.permute(&inverse(&pick.order))?, a || b)
        };
        self.with_slice(pick.slices, &part)
    }

    /// A choice between the value and this tensor by a mask of its first axes, if the value is the same
    /// at all places of the mask.
    fn where_mask(
        &self,
        op: &'static str,
        mask: &Tensor,
        value: &Tensor,
    ) -> Result<Option<Tensor>> {
        check_mask(op, self.shape(), 0, mask)?;
        let rest = Shape::new(&self.shape()[mask.rank()..]);
        let beyond = value.rank().saturating_sub(rest.rank());
        if mask.rank() == 0 || value.shape()[..beyond].iter().any(|&d| d != 1) {
            return Ok(None);
        }
        let own = Shape::new(&value.shape()[beyond..]);
        if broadcast(op, &own, &rest)? != rest {
            let given = value.shape();
            let message =
                format!("a value of shape {given} does not broadcast to the part, (n,) + {rest}");
            return Err(shape_error(op, message));
        }
        let mut dims = mask.shape().to_vec();
        dims.resize(self.rank(), 1);
        let mask = mask.map(|m| m.reshape(&dims)?.expand(self.shape()))?;
        let value = value.map(|v| broadcast_to(&v.reshape(&own)?, self.shape()))?;
        Ok(Some(mask.where_(value, self)?))
    }
}

/// The indices as slices, if they are nothing else.
fn plain(indices: &[Index]) -> Option<Vec<Slice>> {
    let slices = indices.iter().map(|index| match index {
        Index::Slice(slice) => Some(*slice),
        _ => None,
    });
    slices.collect()
}

/// Refuses a mask that has not the extents of the axes from `first` on.
fn check_mask(op: &'static str, shape: &Shape, first: usize, mask: &Tensor) -> Result<()> {
    let named = mask.shape();
    let axes = shape.get(first..first + named.rank());
    if axes.is_some_and(|axes| *axes == named[..]) {
        return Ok(());
    }
    let message = format!(
        "a mask of shape {named} for the axes from {first} on of shape {shape}; it has the extents \
         of the axes that it chooses from"
    );
    Err(index_error(op, message))
}

/// What indices pick: a part by slices, and positions in some of its axes.
struct Picked {
    /// The slices, whole where positions are.
    slices: Vec<Slice>,
    /// What they keep.
    part: Tensor,
    /// The part's axes with those that positions name in front.
    order: Vec<usize>,
    /// Positions in these axes, all of one dtype and shape.
    at: Vec<UOp>,
    /// The shape of the positions.
    shape: Shape,
    /// Before which of the other axes the positions' axes come.
    place: usize,
}

/// An index as it is worked on.
enum Step {
    Slice(Slice),
    /// Positions in the next axis.
    Positions(UOp),
    /// Positions in an axis of extent 1 that the part gets for them: a mask without axes.
    OfNewAxis(UOp),
}

impl Picked {
    fn of(op: &'static str, x: &Tensor, indices: &[Index]) -> Result<Picked> {
        let steps = steps(op, x, indices)?;
        let (mut slices, mut places) = (Vec::new(), Vec::new());
        // In the order of indices: whether each is a position, and in which axis of the part.
        let mut kinds = Vec::new();
        let named = |s: &&Step| {
            !matches!(
                s,
                Step::Slice(Slice::NewAxis | Slice::Rest) | Step::OfNewAxis(_)
            )
        };
        let rest = x.rank() - steps.iter().filter(named).count();
        let (mut axis, mut part_axis) = (0, 0);
        for step in steps {
            let is_position = !matches!(step, Step::Slice(s) if !matches!(s, Slice::At(_)));
            kinds.push(is_position);
            match step {
                Step::Slice(Slice::At(position)) => {
                    // An axis of extent 1, whose only entry is read.
                    let i = position_in(op, x.shape(), axis, position)? as i64;
                    slices.push(Slice::Between(Some(i), Some(i + 1)));
                    places.push((part_axis, UOp::int(0, DType::I32)));
                    (axis, part_axis) = (axis + 1, part_axis + 1);
                }
                Step::Slice(slice) => {
                    slices.push(slice);
                    let (named, shown) = match slice {
                        Slice::NewAxis => (0, 1),
                        Slice::Rest => (rest, rest),
                        _ => (1, 1),
                    };
                    (axis, part_axis) = (axis + named, part_axis + shown);
                }
                Step::Positions(at) => {
                    slices.push(Slice::Between(None, None));
                    places.push((part_axis, at));
                    (axis, part_axis) = (axis + 1, part_axis + 1);
                }
                Step::OfNewAxis(at) => {
                    slices.push(Slice::NewAxis);
                    places.push((part_axis, at));
                    part_axis += 1;
                }
            }
        }
        let part = x.slice(slices.clone())?;
        // Side by side: one run of positions.
        let runs = kinds.iter().zip(std::iter::once(&false).chain(&kinds));
        let is_one = runs.filter(|(now, before)| **now && !**before).count() == 1;
        let mut shape = Shape::scalar();
        for (_, at) in &places {
            shape = broadcast(op, &shape, at.shape()).map_err(|_| {
                let shapes: Vec<String> = places
                    .iter()
                    .map(|(_, at)| at.shape().to_string())
                    .collect();
                let message = format!("positions of shapes {} do not broadcast", shapes.join(", "));
                index_error(op, message)
            })?;
        }
        let all_narrow = places.iter().all(|(_, at)| at.dtype() == DType::I32);
        let dtype = if all_narrow { DType::I32 } else { DType::I64 };
        let at = places
            .iter()
            .map(|(_, at)| broadcast_to(&at.cast(dtype)?, &shape));
        let at = at.collect::<Result<Vec<UOp>>>()?;
        let mut order: Vec<usize> = places.iter().map(|(axis, _)| *axis).collect();
        let place = if is_one {
            order.first().copied().unwrap_or(0)
        } else {
            0
        };
        order.extend((0..part.rank()).filter(|k| !places.iter().any(|(axis, _)| axis == k)));
        Ok(Picked {
            slices,
            part,
            order,
            at,
            shape,
            place,
        })
    }

    /// The order of axes that brings the positions' axes from the front to their place.
    fn result_order(&self) -> Vec<usize> {
        let (new, others) = (self.shape.rank(), self.order.len() - self.at.len());
        let mut order: Vec<usize> = (new..new + self.place).collect();
        order.extend(0..new);
        order.extend(new + self.place..new + others);
        order
    }

    /// The shape of what is picked.
    fn result(&self) -> Shape {
        let others: Vec<usize> = self.order[self.at.len()..]
            .iter()
            .map(|&k| self.part.shape()[k])
            .collect();
        Shape::new(&[&others[..self.place], &self.shape, &others[self.place..]].concat())
    }

    /// The positions in all their axes as one number, -1 where one is out of range.
    fn flat(&self) -> Result<UOp> {
        let extents: Vec<usize> = self.order[..self.at.len()]
            .iter()
            .map(|&k| self.part.shape()[k])
            .collect();
        let count = extents.iter().fold(1usize, |n, &d| n.saturating_mul(d));
        let dtype = match self.at.first() {
            Some(at) => index_dtype(at.dtype(), count),
            None => DType::I32,
        };
        let constant = |value: i128| UOp::full(Scalar::from_i128(dtype, value), &self.shape);
        let (mut flat, mut is_in) = (constant(0)?, None::<UOp>);
        for (at, &n) in self.at.iter().zip(&extents) {
            let at = at.cast(dtype)?;
            flat = flat.mul(&constant(n as i128)?)?.add(&at)?;
            let is_below = at.cmplt(&constant(n as i128)?)?;
            let fits = at.cmplt(&constant(0)?)?.logical_not()?.and(&is_below)?;
            is_in = Some(match is_in {
                Some(others) => others.and(&fits)?,
                None => fits,
            });
        }
        match is_in {
            Some(is_in) => is_in.where_(&flat, &constant(-1)?),
            None => Ok(flat),
        }
    }
}

/// The indices with masks as positions, and all positions counted from the beginning.
fn steps(op: &'static str, x: &Tensor, indices: &[Index]) -> Result<Vec<Step>> {
    let shape = x.shape();
    let named = |index: &Index| match index {
        Index::Slice(Slice::NewAxis | Slice::Rest) => 0,
        Index::Tensor(t) if t.dtype() == DType::Bool => t.rank(),
        _ => 1,
    };
    let count: usize = indices.iter().map(named).sum();
    if count > shape.rank() {
        let message = format!("{count} axes of shape {shape}, which has {}", shape.rank());
        return Err(index_error(op, message));
    }
    let rests = indices
        .iter()
        .filter(|i| matches!(i, Index::Slice(Slice::Rest)));
    if rests.count() > 1 {
        let message = "several indices mean the rest of the axes; one can".into();
        return Err(index_error(op, message));
    }
    let mut steps = Vec::with_capacity(indices.len());
    let mut axis = 0;
    for index in indices {
        match index {
            Index::Slice(slice) => {
                axis += match slice {
                    Slice::NewAxis => 0,
                    Slice::Rest => shape.rank() - count,
                    _ => 1,
                };
                steps.push(Step::Slice(*slice));
            }
            Index::Positions(positions, own) => {
                let at = known(op, shape, axis, positions, own)?;
                steps.push(Step::Positions(at));
                axis += 1;
            }
            Index::Tensor(mask) if mask.dtype() == DType::Bool => {
                check_mask(op, shape, axis, mask)?;
                let (count, columns) = mask.true_places()?;
                if mask.rank() == 0 {
                    let zeros = UOp::full(Scalar::from_i128(DType::I32, 0), &Shape::new(&[count]))?;
                    steps.push(Step::OfNewAxis(zeros));
                }
                for column in columns {
                    let at = known(op, shape, axis, &column, &Shape::new(&[count]))?;
                    steps.push(Step::Positions(at));
                    axis += 1;
                }
            }
            Index::Tensor(positions) => {
                let n = shape[axis];
                let at = places(op, positions, n)?;
                steps.push(Step::Positions(at.cast(index_dtype(at.dtype(), n))?));
                axis += 1;
            }
        }
    }
    Ok(steps)
}

/// Positions that are known now, in memory.
fn known(
    op: &'static str,
    shape: &Shape,
    axis: usize,
    positions: &[i64],
    own: &Shape,
) -> Result<UOp> {
    if own.numel() != positions.len() {
        let message = format!("{} positions do not fill shape {own}", positions.len());
        return Err(shape_error(op, message));
    }
    let each = positions.iter().map(|&p| position_in(op, shape, axis, p));
    let each = each.collect::<Result<Vec<usize>>>()?;
    let at = match i32::try_from(shape[axis]) {
        Ok(_) => {
            let narrow: Vec<i32> = each.iter().map(|&p| p as i32).collect();
            Tensor::from_slice(&narrow, own)?
        }
        Err(_) => {
            let wide: Vec<i64> = each.iter().map(|&p| p as i64).collect();
            Tensor::from_slice(&wide, own)?
        }
    };
    Ok(at.uop())
}
