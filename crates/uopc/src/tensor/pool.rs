//! Pooling: the largest element or the mean of each window, in one, two and three dimensions.

use super::elementwise::real;
use super::pad::pad_constant;
use super::reduce::{max, reduce};
use super::windows::{PerAxis, Window, all_windows, around, gather, numbers_along, padded_extent};
use super::{DType, Result, Site, Tensor, UOp, shape_error};
use crate::ir::Scalar;
use crate::ir::op::ReduceOp;

/// The windows of a pooling: a kernel, by default with a stride of its size, no padding and dilation
/// 1. A number or an array is a kernel.
///
/// ```
/// use uopc::{Tensor, tensor::Pool};
///
/// let x = Tensor::from([1.0f32, 5.0, 2.0, 4.0, 3.0]).reshape([1, 1, 5])?;
/// assert_eq!(x.max_pool1d(2)?.to_vec::<f32>()?, [5.0, 4.0]);
/// let overlapping = Pool::new(3).stride(1).padding(1);
/// assert_eq!(x.max_pool1d(overlapping)?.to_vec::<f32>()?, [5.0, 5.0, 5.0, 4.0, 4.0]);
/// # Ok::<(), uopc::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    kernel: PerAxis,
    stride: Option<PerAxis>,
    padding: PerAxis,
    dilation: PerAxis,
    ceil: bool,
    count_padding: bool,
    divisor: Option<usize>,
}

impl Pool {
    /// Windows of that size, one after the other.
    pub fn new(kernel: impl Into<PerAxis>) -> Pool {
        Pool {
            kernel: kernel.into(),
            stride: None,
            padding: 0.into(),
            dilation: 1.into(),
            ceil: false,
            count_padding: true,
            divisor: None,
        }
    }

    /// How far apart windows begin.
    pub fn stride(mut self, stride: impl Into<PerAxis>) -> Pool {
        self.stride = Some(stride.into());
        self
    }

    /// How many elements are put on both sides, at most half a window: minus infinity for the
    /// largest, 0 for a mean.
    pub fn padding(mut self, padding: impl Into<PerAxis>) -> Pool {
        self.padding = padding.into();
        self
    }

    /// How far apart the elements of a window are; for the largest element only.
    pub fn dilation(mut self, dilation: impl Into<PerAxis>) -> Pool {
        self.dilation = dilation.into();
        self
    }

    /// Whether a last window that is partly outside counts, too, if it begins inside.
    pub fn ceil_mode(mut self, ceil: bool) -> Pool {
        self.ceil = ceil;
        self
    }

    /// Whether a mean counts the zeros of the padding; true by default.
    pub fn count_include_pad(mut self, count: bool) -> Pool {
        self.count_padding = count;
        self
    }

    /// What a mean divides by, in place of the number of elements.
    pub fn divisor(mut self, divisor: usize) -> Pool {
        self.divisor = Some(divisor);
        self
    }
}

impl<T: Into<PerAxis>> From<T> for Pool {
    fn from(kernel: T) -> Pool {
        Pool::new(kernel)
    }
}

impl From<&Pool> for Pool {
    fn from(pool: &Pool) -> Pool {
        pool.clone()
    }
}

macro_rules! pools {
    ($($max:ident, $mean:ident, $adaptive_mean:ident, $adaptive_max:ident: $n:literal,
        $extents:literal;)*) => { impl Tensor { $(
        #[doc = concat!("The largest element of each window of (N, C, ", $extents, ") or (C, ",
            $extents, ").")]
        ///
        /// Along an axis of n elements there are (n + 2 padding - dilation (k - 1) - 1) / stride + 1
        /// windows, rounded down, or up in ceil mode. NaN if there is one; a gradient is shared evenly by
        /// equal ones.
        ///
        /// # Errors
        /// When the rank does not fit, a window is larger than the padded input, or the padding
        /// larger than half a window.
        #[track_caller]
        pub fn $max(&self, pool: impl Into<Pool>) -> Result<Tensor> {
            let _site = Site::caller().enter();
            let pool = pool.into();
            let plan = Plan::new(stringify!($max), $n, self, &pool)?;
            self.map(|x| plan.max(x))
        }

        #[doc = concat!("The mean of each window of (N, C, ", $extents, ") or (C, ", $extents,
            ").")]
        ///
        /// Windows are those of [`Pool`]. Zeros of the padding are counted unless
        /// [`count_include_pad`](Pool::count_include_pad) is off; what ceil mode adds never is.
        /// Integers become f32.
        ///
        /// # Errors
        /// When the rank does not fit, a window is larger than the padded input, or the padding
        /// larger than half a window; when a dilation or the divisor 0 is given.
        #[track_caller]
        pub fn $mean(&self, pool: impl Into<Pool>) -> Result<Tensor> {
            let _site = Site::caller().enter();
            let pool = pool.into();
            let plan = Plan::new(stringify!($mean), $n, self, &pool)?;
            plan.check_mean(&pool)?;
            self.map(|x| plan.mean(x, &pool))
        }

        #[doc = concat!("Means of windows of (N, C, ", $extents, ") or (C, ", $extents,
            ") such that that many come out.")]
        ///
        /// Of n elements, output i of o is the mean of those from i n / o, rounded down, to
        /// (i + 1) n / o, rounded up.
        ///
        /// # Errors
        /// When the rank does not fit, an output extent is 0, or the input is empty there.
        #[track_caller]
        pub fn $adaptive_mean(&self, output: impl Into<PerAxis>) -> Result<Tensor> {
            let _site = Site::caller().enter();
            let op = stringify!($adaptive_mean);
            let outputs = adaptive_outputs(op, $n, self, output.into())?;
            self.map(|x| adaptive(x, &outputs, true))
        }

        #[doc = concat!("The largest elements of the windows of [`", stringify!($adaptive_mean),
            "`](Self::", stringify!($adaptive_mean), ").")]
        ///
        /// # Errors
        /// When the rank does not fit, an output extent is 0, or the input is empty there.
        #[track_caller]
        pub fn $adaptive_max(&self, output: impl Into<PerAxis>) -> Result<Tensor> {
            let _site = Site::caller().enter();
            let op = stringify!($adaptive_max);
            let outputs = adaptive_outputs(op, $n, self, output.into())?;
            self.map(|x| adaptive(x, &outputs, false))
        }
    )* } };
}

pools! {
    max_pool1d, avg_pool1d, adaptive_avg_pool1d, adaptive_max_pool1d: 1, "L";
    max_pool2d, avg_pool2d, adaptive_avg_pool2d, adaptive_max_pool2d: 2, "H, W";
    max_pool3d, avg_pool3d, adaptive_avg_pool3d, adaptive_max_pool3d: 3, "D, H, W";
}

/// The windows of a pooling along the last axes of one input.
struct Plan {
    op: &'static str,
    along: Vec<Window>,
    /// What is put before each axis, and behind it without what ceil mode adds.
    padding: Vec<usize>,
    /// What is put behind each axis.
    behind: Vec<usize>,
    counts: Vec<usize>,
}

impl Plan {
    fn new(op: &'static str, n: usize, x: &Tensor, pool: &Pool) -> Result<Plan> {
        let shape = x.shape();
        check_rank(op, n, x)?;
        let kernel = pool.kernel.resolve(op, "the kernel", n, 1)?;
        let stride = match &pool.stride {
            Some(stride) => stride.resolve(op, "the stride", n, 1)?,
            None => kernel.clone(),
        };
        let padding = pool.padding.resolve(op, "the padding", n, 0)?;
        let dilation = pool.dilation.resolve(op, "the dilation", n, 1)?;
        let mut plan = Plan {
            op,
            along: Vec::new(),
            padding,
            behind: Vec::new(),
            counts: Vec::new(),
        };
        let lead = shape.rank() - n;
        for k in 0..n {
            let window = Window {
                kernel: kernel[k],
                stride: stride[k],
                dilation: dilation[k],
            };
            let (extent, pad) = (shape[lead + k], plan.padding[k]);
            if pad > window.reach() / 2 {
                let message = format!(
                    "padding {pad} is more than half of a window that reaches over {}",
                    window.reach()
                );
                return Err(shape_error(op, message));
            }
            let padded = padded_extent(op, extent, (pad, pad))?;
            let mut behind = pad;
            let count = match pool.ceil {
                false => window.count(op, lead + k, padded)?,
                true => {
                    let s = window.stride;
                    let missing = |count: usize| {
                        let last = (count - 1).saturating_mul(s);
                        last.saturating_add(window.reach()).saturating_sub(padded)
                    };
                    let mut count = padded.saturating_sub(window.reach()).div_ceil(s) + 1;
                    // A window that begins behind the input would hold padding only.
                    if (count - 1).saturating_mul(s) >= extent.saturating_add(pad) {
                        count = count.saturating_sub(1);
                    }
                    if count > 0 {
                        behind = pad.saturating_add(missing(count));
                        let whole = padded_extent(op, extent, (pad, behind))?;
                        window.count(op, lead + k, whole)?;
                    } else {
                        window.count(op, lead + k, padded)?;
                    }
                    count
                }
            };
            plan.along.push(window);
            plan.behind.push(behind);
            plan.counts.push(count);
        }
        Ok(plan)
    }

    /// The windows as (..., counts, kernels), with that number around.
    fn view(&self, x: &UOp, fill: Scalar) -> Result<UOp> {
        let (rank, n) = (x.shape().rank(), self.along.len());
        let lead = rank - n;
        let mut padding = vec![(0, 0); lead];
        padding.extend(
            self.padding
                .iter()
                .copied()
                .zip(self.behind.iter().copied()),
        );
        all_windows(&pad_constant(x, &padding, fill)?, &self.along)
    }

    /// The places of the kernels in the view.
    fn kernels(&self, x: &UOp) -> Vec<usize> {
        let (rank, n) = (x.shape().rank(), self.along.len());
        (rank - n..rank).collect()
    }

    fn max(&self, x: &UOp) -> Result<UOp> {
        max(&self.view(x, least(x.dtype()))?, &self.kernels(x))
    }

    fn check_mean(&self, pool: &Pool) -> Result<()> {
        let message = if self.along.iter().any(|w| w.dilation != 1) {
            "means are taken of whole windows; there is no dilation"
        } else if pool.divisor == Some(0) {
            "the divisor is 0"
        } else {
            return Ok(());
        };
        Err(shape_error(self.op, message.into()))
    }

    fn mean(&self, x: &UOp, pool: &Pool) -> Result<UOp> {
        let dtype = real(x.dtype());
        let x = x.cast(dtype.accumulator())?;
        let view = self.view(&x, Scalar::zero(x.dtype()))?;
        let total = reduce(&view, ReduceOp::Add, &self.kernels(&x))?;
        let n = match pool.divisor {
            Some(divisor) => total.full_like(divisor as f64)?,
            None => self.sizes(&total, &x, pool.count_padding)?,
        };
        total.div(&n)?.cast(dtype)
    }

    /// How many elements each window has, spread over the result.
    fn sizes(&self, total: &UOp, x: &UOp, count_padding: bool) -> Result<UOp> {
        let lead = x.shape().rank() - self.along.len();
        let mut even = 1.0;
        let mut uneven: Option<UOp> = None;
        for (k, window) in self.along.iter().enumerate() {
            let (n, pad) = (x.shape()[lead + k], self.padding[k]);
            let (from, to) = match count_padding {
                true => (0, n + 2 * pad),
                false => (pad, n + pad),
            };
            let size = |j: usize| {
                let begin = j * window.stride;
                (begin + window.kernel)
                    .min(to)
                    .saturating_sub(begin.max(from))
            };
            // Sizes only fall short at the ends.
            let last = self.counts[k] - 1;
            if size(0) == window.kernel && size(last) == window.kernel {
                even *= size(0) as f64;
                continue;
            }
            let begin = UOp::iota(self.counts[k], DType::I64)?;
            let number = |i: usize| begin.full_like(i as f64);
            let begin = begin.mul(&number(window.stride)?)?;
            let end = lesser(&begin.add(&number(window.kernel)?)?, &number(to)?)?;
            let own = end
                .sub(&begin.maximum(&number(from)?)?)?
                .cast(total.dtype())?;
            let own = numbers_along(&own, lead + k, total.shape().rank())?.expand(total.shape())?;
            uneven = Some(match uneven {
                Some(others) => others.mul(&own)?,
                None => own,
            });
        }
        let even = total.full_like(even)?;
        uneven.map_or(Ok(even.clone()), |sizes| sizes.mul(&even))
    }
}

fn lesser(a: &UOp, b: &UOp) -> Result<UOp> {
    a.cmplt(b)?.where_(a, b)
}

/// What is largest where there is nothing.
fn least(dtype: DType) -> Scalar {
    match dtype.int_range() {
        Some((lowest, _)) => Scalar::from_i128(dtype, lowest),
        None if dtype.is_float() => Scalar::from_f64(dtype, f64::NEG_INFINITY),
        None => Scalar::zero(dtype),
    }
}

fn check_rank(op: &'static str, n: usize, x: &Tensor) -> Result<()> {
    if x.rank() == n + 1 || x.rank() == n + 2 {
        return Ok(());
    }
    let message = format!(
        "shape {}: {} axes are needed, or {} without those of a batch",
        x.shape(),
        n + 2,
        n + 1
    );
    Err(shape_error(op, message))
}

/// How many come out along each axis.
fn adaptive_outputs(op: &'static str, n: usize, x: &Tensor, output: PerAxis) -> Result<Vec<usize>> {
    check_rank(op, n, x)?;
    let outputs = output.resolve(op, "the output size", n, 1)?;
    let shape = x.shape();
    if shape[shape.rank() - n..].contains(&0) {
        let message = format!("shape {shape} has nothing to take the mean or the largest of");
        return Err(shape_error(op, message));
    }
    Ok(outputs)
}

fn adaptive(x: &UOp, outputs: &[usize], mean: bool) -> Result<UOp> {
    let dtype = if mean { real(x.dtype()) } else { x.dtype() };
    let mut y = if mean {
        x.cast(dtype.accumulator())?
    } else {
        x.clone()
    };
    let lead = x.shape().rank() - outputs.len();
    let mut sizes = UOp::float(1.0, dtype.accumulator());
    for (k, &o) in outputs.iter().enumerate() {
        let (axis, n) = (lead + k, x.shape()[lead + k]);
        let own;
        (y, own) = adaptive_axis(&y, axis, o, mean)?;
        if !mean {
            continue;
        }
        sizes = match own {
            Some(own) => {
                let own = numbers_along(&own.cast(y.dtype())?, k, outputs.len())?;
                let mut dims = vec![1; outputs.len()];
                dims[..k].copy_from_slice(&outputs[..k]);
                dims[k] = o;
                let before = match sizes.shape().rank() {
                    0 => sizes.broadcast_scalar(own.shape())?,
                    _ => sizes,
                };
                before.expand(&dims)?.mul(&own.expand(&dims)?)?
            }
            None => sizes.mul(&sizes.full_like((n / o) as f64)?)?,
        };
    }
    if !mean {
        return Ok(y);
    }
    let sizes = match sizes.shape().rank() {
        0 => sizes.broadcast_scalar(y.shape())?,
        _ => {
            let mut dims = vec![1; lead];
            dims.extend_from_slice(sizes.shape());
            sizes.reshape(&dims)?.expand(y.shape())?
        }
    };
    y.div(&sizes)?.cast(dtype)
}

/// One axis reduced to `o` sums or largest elements, and how many elements went into each if it is
/// not the same number.
fn adaptive_axis(x: &UOp, axis: usize, o: usize, mean: bool) -> Result<(UOp, Option<UOp>)> {
    let n = x.shape()[axis];
    let op = if mean { ReduceOp::Add } else { ReduceOp::Max };
    if n.is_multiple_of(o) {
        let rows = x.reshape(&around(x, axis, &[o, n / o]))?;
        return Ok((reduce(&rows, op, &[axis + 1])?, None));
    }
    // Windows differ in size. All are read as wide as the widest, and what is beyond does not count.
    let begin_of = |i: usize| (i as u128 * n as u128 / o as u128) as usize;
    let end_of = |i: usize| ((i as u128 + 1) * n as u128).div_ceil(o as u128) as usize;
    // No window is wider than n / o, rounded up, and one more; mostly that one is not needed, which
    // some of the windows tell, as they repeat when o and n have a common factor.
    let most = n.div_ceil(o) + 1;
    let repeats = o / gcd(n, o);
    let widest = match repeats {
        0..4096 => (0..repeats)
            .map(|i| end_of(i) - begin_of(i))
            .max()
            .unwrap_or(most),
        _ => most,
    };
    let i = UOp::iota(o, DType::I64)?;
    let number = |i: &UOp, k: i64| UOp::full(Scalar::from_i128(DType::I64, k as i128), i.shape());
    let scaled = i.mul(&number(&i, n as i64)?)?;
    let begin = scaled.floordiv(&number(&i, o as i64)?)?;
    let up = scaled.add(&number(&i, (n + o - 1) as i64)?)?;
    let end = up.floordiv(&number(&i, o as i64)?)?;
    let size = end.sub(&begin)?;
    let dims = [o, widest];
    let column = |u: &UOp| u.reshape(&[o, 1])?.expand(&dims);
    let within = UOp::iota(widest, DType::I64)?
        .reshape(&[1, widest])?
        .expand(&dims)?;
    let inside = within.cmplt(&column(&size)?)?;
    let positions = column(&begin)?.add(&within)?;
    let read = gather(x, axis, &positions)?;
    let mut ones = vec![1; read.shape().rank()];
    ones[axis..axis + 2].copy_from_slice(&dims);
    let inside = inside.reshape(&ones)?.expand(read.shape())?;
    let nothing = match mean {
        true => Scalar::zero(read.dtype()),
        false => least(read.dtype()),
    };
    let kept = inside.where_(&read, &UOp::full(nothing, read.shape())?)?;
    Ok((reduce(&kept, op, &[axis + 1])?, Some(size)))
}

fn gcd(mut a: usize, mut b: usize) -> usize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
