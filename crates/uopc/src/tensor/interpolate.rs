//! Resizing the spatial axes: the nearest element, or linearly between neighbours.

use super::elementwise::real;
use super::windows::{PerAxis, around, gather, numbers_along};
use super::{DType, Error, Result, Site, Tensor, UOp, shape_error};
use crate::ir::Scalar;

/// The extents that [`Tensor::interpolate`] gives the spatial axes.
#[derive(Clone, Debug)]
pub enum Resize {
    /// These.
    To(PerAxis),
    /// The old ones times these factors, rounded down: one factor for each axis, or one for all.
    By(Vec<f64>),
}

/// How [`Tensor::interpolate`] fills the new positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResizeMode {
    /// Position i reads old position i * scale, rounded down, where scale is old through new extent.
    Nearest,
    /// Position i reads old position (i + 1/2) * scale, rounded down: the nearest centre.
    NearestExact,
    /// Linearly between the two neighbours of (i + 1/2) * scale - 1/2, along each axis.
    Linear,
    /// Linearly between the neighbours of i * (old - 1) / (new - 1): the outer elements stay.
    LinearAligned,
    /// Means of windows, see [`Tensor::adaptive_avg_pool2d`].
    Area,
}

impl Tensor {
    /// Inputs (N, C, ...) with one, two or three spatial axes, resized.
    ///
    /// ```
    /// use uopc::{Tensor, tensor::{ResizeMode, Resize}};
    ///
    /// let x = Tensor::from([1.0f32, 2.0]).reshape([1, 1, 2])?;
    /// let by_two = Resize::By(vec![2.0]);
    /// let y = x.interpolate(&by_two, ResizeMode::Linear)?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 1.25, 1.75, 2.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there are not three to five axes, an extent is or becomes 0, or a factor is not
    /// positive and finite.
    #[track_caller]
    pub fn interpolate(&self, size: &Resize, how: ResizeMode) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = self.shape();
        if !(3..=5).contains(&shape.rank()) {
            let message = format!(
                "shape {shape}; a batch, channels and one to three spatial axes are needed"
            );
            return Err(shape_error("interpolate", message));
        }
        let n = shape.rank() - 2;
        let axes = new_extents(size, &shape[2..])?;
        if shape[2..].contains(&0) {
            let message = format!("shape {shape} has nothing between which to interpolate");
            return Err(shape_error("interpolate", message));
        }
        if how == ResizeMode::Area {
            let extents: Vec<usize> = axes.iter().map(|a| a.to).collect();
            return match n {
                1 => self.adaptive_avg_pool1d(extents),
                2 => self.adaptive_avg_pool2d(extents),
                _ => self.adaptive_avg_pool3d(extents),
            };
        }
        self.map(|x| {
            let linear = matches!(how, ResizeMode::Linear | ResizeMode::LinearAligned);
            let dtype = if linear { real(x.dtype()) } else { x.dtype() };
            let mut y = match linear {
                true => x.cast(dtype.accumulator())?,
                false => x.clone(),
            };
            for (k, along) in axes.iter().enumerate() {
                y = along.resize(&y, 2 + k, how)?;
            }
            y.cast(dtype)
        })
    }
}

/// An axis that is resized.
#[derive(Clone, Copy)]
struct Along {
    from: usize,
    to: usize,
    /// Old positions for one new one, if that is not `from / to`.
    scale: Option<f64>,
}

fn new_extents(size: &Resize, old: &[usize]) -> Result<Vec<Along>> {
    let op = "interpolate";
    let with = |from: usize, to: usize, scale| Along { from, to, scale };
    match size {
        Resize::To(extents) => {
            let extents = extents.resolve(op, "the size", old.len(), 1)?;
            let pairs = old.iter().zip(extents);
            Ok(pairs.map(|(&from, to)| with(from, to, None)).collect())
        }
        Resize::By(factors) => {
            let factors = match factors[..] {
                [one] => vec![one; old.len()],
                _ => factors.clone(),
            };
            if factors.len() != old.len() {
                let message = format!(
                    "factors {factors:?} are not one for each of {} axes, nor one for all",
                    old.len()
                );
                return Err(shape_error(op, message));
            }
            let mut axes = Vec::new();
            for (&from, factor) in old.iter().zip(factors) {
                let to = (from as f64 * factor).floor();
                if !(factor.is_finite() && factor > 0.0) || to > isize::MAX as f64 {
                    return Err(Error::Setting(format!(
                        "{op}: the factor {factor} is not positive, or too large for any memory"
                    )));
                }
                if to < 1.0 {
                    let message = format!("{from} elements times {factor} leave none");
                    return Err(shape_error(op, message));
                }
                let exact = from as f64 * factor == to;
                axes.push(with(from, to as usize, (!exact).then_some(1.0 / factor)));
            }
            Ok(axes)
        }
    }
}

impl Along {
    fn resize(&self, x: &UOp, axis: usize, how: ResizeMode) -> Result<UOp> {
        let Along { from, to, scale } = *self;
        if from == to && scale.is_none() {
            return Ok(x.clone());
        }
        match how {
            ResizeMode::Nearest | ResizeMode::NearestExact => {
                if scale.is_none() && to.is_multiple_of(from) {
                    // Each element several times: no positions have to be computed.
                    let column = x.reshape(&around(x, axis, &[from, 1]))?;
                    let repeated = column.expand(&around(x, axis, &[from, to / from]))?;
                    return repeated.reshape(&around(x, axis, &[to]));
                }
                let half = how == ResizeMode::NearestExact;
                gather(x, axis, &self.nearest(half)?)
            }
            ResizeMode::Linear | ResizeMode::LinearAligned => {
                let (low, share) = self.neighbours(how == ResizeMode::LinearAligned)?;
                let last = low.full_like((from - 1) as f64)?;
                let next = low.add(&low.full_like(1.0)?)?;
                let high = next.cmplt(&last)?.where_(&next, &last)?;
                let (a, b) = (gather(x, axis, &low)?, gather(x, axis, &high)?);
                let share = numbers_along(&share.cast(x.dtype())?, axis, x.shape().rank())?;
                let rest = share.full_like(1.0)?.sub(&share)?;
                let spread = |u: &UOp| u.expand(a.shape());
                a.mul(&spread(&rest)?)?.add(&b.mul(&spread(&share)?)?)
            }
            // Windows are taken of all axes at once.
            ResizeMode::Area => Ok(x.clone()),
        }
    }

    /// The old position of each new one, in whole numbers where the scale is a quotient of them.
    fn nearest(&self, half: bool) -> Result<UOp> {
        let i = UOp::iota(self.to, DType::I64)?;
        let (offset, double) = if half { (1, 2) } else { (0, 1) };
        let at = match self.scale {
            None => {
                let scaled = affine(&i, double * self.from as i128, offset * self.from as i128)?;
                scaled.floordiv(&constant(&i, double * self.to as i128)?)?
            }
            Some(scale) => {
                let at = i.cast(DType::F64)?;
                let at = at.add(&at.full_like(offset as f64 / 2.0)?)?;
                at.mul(&at.full_like(scale)?)?.cast(DType::I64)?
            }
        };
        let last = constant(&i, self.from as i128 - 1)?;
        at.cmplt(&last)?.where_(&at, &last)
    }

    /// The lower neighbour of each new position, and the share of the upper one in f64.
    fn neighbours(&self, aligned: bool) -> Result<(UOp, UOp)> {
        let i = UOp::iota(self.to, DType::I64)?;
        let (from, to) = (self.from as i128, self.to as i128);
        // A position is a fraction of whole numbers, but for factors that are none.
        let (above, below) = match (aligned, self.scale) {
            (true, _) if to == 1 => (constant(&i, 0)?, 1),
            (true, _) => (affine(&i, from - 1, 0)?, to - 1),
            (false, None) => {
                let above = affine(&i, 2 * from, from - to)?;
                let zero = constant(&i, 0)?;
                (above.cmplt(&zero)?.where_(&zero, &above)?, 2 * to)
            }
            (false, Some(scale)) => {
                let half = |u: &UOp| u.full_like(0.5);
                let at = i.cast(DType::F64)?;
                let at = at
                    .add(&half(&at)?)?
                    .mul(&at.full_like(scale)?)?
                    .sub(&half(&at)?)?;
                let zero = at.full_like(0.0)?;
                let at = at.cmplt(&zero)?.where_(&zero, &at)?;
                let low = at.cast(DType::I64)?;
                let last = constant(&i, from - 1)?;
                let low = low.cmplt(&last)?.where_(&low, &last)?;
                return Ok((low.clone(), at.sub(&low.cast(DType::F64)?)?));
            }
        };
        let below = constant(&i, below)?;
        let low = above.floordiv(&below)?;
        let rest = above.floormod(&below)?.cast(DType::F64)?;
        Ok((low, rest.div(&below.cast(DType::F64)?)?))
    }
}

fn constant(like: &UOp, value: i128) -> Result<UOp> {
    UOp::full(Scalar::from_i128(like.dtype(), value), like.shape())
}

fn affine(i: &UOp, factor: i128, offset: i128) -> Result<UOp> {
    i.mul(&constant(i, factor)?)?.add(&constant(i, offset)?)
}
