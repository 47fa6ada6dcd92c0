//! Choices by bools, and what a tensor holds: results whose shape depends on values.
//!
//! A graph has its shapes before it has values, so these functions compute what they look at first
//! and say so; inside [`vmap`](crate::vmap), where there is nothing to look at, they are errors. What
//! has a size given to it, such as [`masked_select_padded`](Tensor::masked_select_padded), computes
//! nothing.

use super::operand::{broadcast, broadcast_to};
use super::{DType, Element, Operand, Result, Shape, Site, Tensor, UOp, dtype_error};
use crate::ir::Scalar;
use crate::ir::op::ReduceOp;

/// What [`Tensor::unique`] gives.
#[derive(Clone)]
pub struct Unique {
    /// Each value once, ascending, NaN last.
    pub values: Tensor,
    /// For each value the first place in row-major order where it is, i64.
    pub indices: Tensor,
    /// For each element the number of its value, i64 in the shape of the tensor.
    pub inverse: Tensor,
    /// How often each value is there, i64.
    pub counts: Tensor,
}

impl Tensor {
    /// The elements where a mask is true, in row-major order; the two broadcast. The mask is computed
    /// now, since the number of elements is the result's shape. Gradients flow to the elements.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([3, 1, 4, 1, 5]);
    /// assert_eq!(t.masked_select(&t.gt(2)?)?.to_vec::<i32>()?, [3, 4, 5]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the mask is no bool, the shapes do not broadcast, or the mask can't be computed.
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let [x, mask] = masked("masked_select", self, mask)?;
        let flat = mask.reshape([mask.numel()])?;
        x.reshape([x.numel()])?.index(&flat)
    }

    /// The first `size` of the elements where a mask is true, in row-major order, and then as many
    /// `fill`s as are missing. Nothing is computed now.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([3, 1, 4, 1, 5]);
    /// let chosen = t.masked_select_padded(&t.gt(2)?, 4, -1)?;
    /// assert_eq!(chosen.to_vec::<i32>()?, [3, 4, 5, -1]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the mask is no bool, the shapes do not broadcast, or the fill does not fit the dtype.
    #[track_caller]
    pub fn masked_select_padded(
        &self,
        mask: &Tensor,
        size: usize,
        fill: impl Into<Operand>,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let op = "masked_select";
        super::args::shape_of(op, [size])?;
        let (fill, _) = super::update::operand(op, fill.into(), self.dtype())?;
        let fill = fill.broadcast_scalar(&Shape::new(&[size]))?;
        let [x, mask] = masked(op, self, mask)?;
        let n = x.numel();
        if n == 0 {
            return Ok(Tensor::new(fill, false));
        }
        let dtype = match i32::try_from(n.max(size)) {
            Ok(_) => DType::I32,
            Err(_) => DType::I64,
        };
        let constant =
            |value: i128, n: usize| UOp::full(Scalar::from_i128(dtype, value), &Shape::new(&[n]));
        // The running count numbers what is chosen; each then tells its place where its number is.
        let flat = mask.uop().reshape(&[n])?;
        let count = flat.cast(dtype)?.scan(ReduceOp::Add)?;
        let number = count.sub(&constant(1, n)?)?;
        let number = flat.where_(&number, &constant(-1, n)?)?;
        let places = UOp::iota(n, dtype)?.scatter_add(&[number], &[size])?;
        let total = count.shrink(&[(n - 1, n)])?.expand(&[size])?;
        let is_there = UOp::iota(size, dtype)?.cmplt(&total)?;
        x.map(|x| is_there.where_(&x.reshape(&[n])?.index(&[places])?, &fill))
    }

    /// The places of all elements that are not 0, in row-major order: a row for each and a column for
    /// each axis, i64. The tensor is computed now. NaN is not 0.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([[0, 7], [8, 0]]);
    /// assert_eq!(t.nonzero()?.to_vec::<i64>()?, [0, 1, 1, 0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the tensor can't be computed.
    #[track_caller]
    pub fn nonzero(&self) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (count, columns) = self.true_places()?;
        let mut rows = Vec::with_capacity(count * columns.len());
        for k in 0..count {
            rows.extend(columns.iter().map(|column| column[k]));
        }
        Tensor::from_slice(&rows, [count, columns.len()])
    }

    /// How many elements are not 0, and their positions in each axis.
    pub(super) fn true_places(&self) -> Result<(usize, Vec<Vec<i64>>)> {
        let memory = self.detach()?.cast(DType::Bool)?.storage()?;
        let is_true = memory.as_bytes();
        let count = is_true.iter().filter(|&&b| b != 0).count();
        let shape = self.shape();
        let mut columns = vec![Vec::with_capacity(count); shape.rank()];
        let mut place = vec![0usize; shape.rank()];
        for &b in is_true {
            if b != 0 {
                for (column, &p) in columns.iter_mut().zip(&place) {
                    column.push(p as i64);
                }
            }
            for k in (0..shape.rank()).rev() {
                place[k] += 1;
                if place[k] < shape[k] {
                    break;
                }
                place[k] = 0;
            }
        }
        Ok((count, columns))
    }

    /// The different values, ascending, with their first places, counts, and where each element's
    /// value is among them. The tensor is computed now. -0 equals 0. All NaNs are one value, or, if
    /// not `equal_nan`, each is one of its own.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let found = Tensor::from([3, 1, 3, 2]).unique(true)?;
    /// assert_eq!(found.values.to_vec::<i32>()?, [1, 2, 3]);
    /// assert_eq!(found.counts.to_vec::<i64>()?, [1, 1, 2]);
    /// assert_eq!(found.inverse.to_vec::<i64>()?, [2, 0, 2, 1]);
    /// assert_eq!(found.indices.to_vec::<i64>()?, [1, 3, 0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the tensor can't be computed.
    #[track_caller]
    pub fn unique(&self, equal_nan: bool) -> Result<Unique> {
        let _site = Site::caller().enter();
        let memory = self.storage()?;
        let (dtype, size) = (self.dtype(), self.dtype().size());
        let bytes = memory.as_bytes();
        let mut sorted: Vec<(u64, usize)> = bytes
            .chunks_exact(size)
            .enumerate()
            .map(|(place, bytes)| (key(dtype, bytes), place))
            .collect();
        sorted.sort_unstable();
        let mut values = Vec::new();
        let (mut indices, mut counts) = (Vec::<i64>::new(), Vec::<i64>::new());
        let mut inverse = vec![0i64; sorted.len()];
        let mut before = None;
        for (key, place) in sorted {
            let is_apart = key == u64::MAX && dtype.is_float() && !equal_nan;
            if before != Some(key) || is_apart {
                values.extend_from_slice(&bytes[place * size..(place + 1) * size]);
                indices.push(place as i64);
                counts.push(0);
                before = Some(key);
            }
            let number = counts.len() - 1;
            counts[number] += 1;
            inverse[place] = number as i64;
        }
        let n = [counts.len()];
        Ok(Unique {
            values: Tensor::from_bytes(&values, dtype, n)?,
            indices: Tensor::from_slice(&indices, n)?,
            inverse: Tensor::from_slice(&inverse, self.shape())?,
            counts: Tensor::from_slice(&counts, n)?,
        })
    }
}

/// A tensor and a mask in the shape to which they broadcast.
fn masked(op: &'static str, x: &Tensor, mask: &Tensor) -> Result<[Tensor; 2]> {
    if mask.dtype() != DType::Bool {
        let message = format!(
            "the mask is {}, not bool; compare it with something",
            mask.dtype()
        );
        return Err(dtype_error(op, message));
    }
    let shape = broadcast(op, x.shape(), mask.shape())?;
    let each = |t: &Tensor| t.map(|x| broadcast_to(x, &shape));
    Ok([each(x)?, each(mask)?])
}

/// An unsigned integer that compares as the element does; NaN is the largest.
fn key(dtype: DType, bytes: &[u8]) -> u64 {
    const TOP: u64 = 1 << 63;
    let signed = |value: i64| value as u64 ^ TOP;
    let float = |value: f64| {
        let bits = (value + 0.0).to_bits();
        match () {
            _ if value.is_nan() => u64::MAX,
            _ if bits & TOP != 0 => !bits,
            _ => bits | TOP,
        }
    };
    match dtype {
        DType::Bool | DType::U8 => bytes[0] as u64,
        DType::I8 => signed(i8::load(bytes) as i64),
        DType::I16 => signed(i16::load(bytes) as i64),
        DType::I32 => signed(i32::load(bytes) as i64),
        DType::I64 => signed(i64::load(bytes)),
        DType::U16 => u16::load(bytes) as u64,
        DType::U32 => u32::load(bytes) as u64,
        DType::U64 => u64::load(bytes),
        DType::F16 => float(half::f16::load(bytes).to_f64()),
        DType::BF16 => float(half::bf16::load(bytes).to_f64()),
        DType::F32 => float(f32::load(bytes) as f64),
        DType::F64 => float(f64::load(bytes)),
    }
}
