//! Convolutions and transposed convolutions in one, two and three dimensions.
//!
//! A convolution is one EXPAND-MUL-REDUCE over channels and kernel of a view of windows, which the
//! compiler recognises as a contraction: nothing is copied out, and with groups the contraction has
//! a batch. A transposed convolution is a convolution of the input with zeros between its elements.

use super::operand::broadcast_to;
use super::reduce::sum;
use super::windows::{PerAxis, Window, all_windows, around, padded_extent};
use super::{Result, Shape, Site, Tensor, UOp, shape_error};
use crate::ir::composite;

/// How a convolution goes along its axes; by default with stride 1, no padding, dilation 1 and one
/// group.
///
/// ```
/// use uopc::{Tensor, tensor::Conv};
///
/// let (images, weight) = (Tensor::ones([1, 4, 8, 8])?, Tensor::ones([6, 2, 3, 3])?);
/// let y = images.conv2d(&weight, None, &Conv::new().stride(2).padding(1).groups(2))?;
/// assert_eq!(y.shape()[..], [1, 6, 4, 4]);
/// # Ok::<(), uopc::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Conv {
    stride: PerAxis,
    padding: ConvPadding,
    output_padding: PerAxis,
    dilation: PerAxis,
    groups: usize,
}

/// The zeros around the input of a convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConvPadding {
    /// So many on both sides.
    Zeros(PerAxis),
    /// As many as keep the extents; an odd one comes behind.
    Same,
}

impl<T: Into<PerAxis>> From<T> for ConvPadding {
    fn from(numbers: T) -> ConvPadding {
        ConvPadding::Zeros(numbers.into())
    }
}

impl Default for Conv {
    fn default() -> Conv {
        Conv {
            stride: 1.into(),
            padding: 0.into(),
            output_padding: 0.into(),
            dilation: 1.into(),
            groups: 1,
        }
    }
}

impl Conv {
    /// The default.
    pub fn new() -> Conv {
        Conv::default()
    }

    /// How far apart windows begin; for a transposed convolution, how far apart the elements of
    /// the input are spread.
    pub fn stride(mut self, stride: impl Into<PerAxis>) -> Conv {
        self.stride = stride.into();
        self
    }

    /// Zeros around the input; for a transposed convolution, how much of the result is cut off.
    pub fn padding(mut self, padding: impl Into<ConvPadding>) -> Conv {
        self.padding = padding.into();
        self
    }

    /// How far apart the elements of a window are.
    pub fn dilation(mut self, dilation: impl Into<PerAxis>) -> Conv {
        self.dilation = dilation.into();
        self
    }

    /// Into how many groups channels are divided; each group of outputs sees one group of inputs.
    pub fn groups(mut self, groups: usize) -> Conv {
        self.groups = groups;
        self
    }

    /// The number of groups.
    pub fn group_count(&self) -> usize {
        self.groups
    }

    /// Rows that a transposed convolution adds at the end of its result, to choose among the sizes
    /// that a convolution maps to one.
    pub fn output_padding(mut self, output_padding: impl Into<PerAxis>) -> Conv {
        self.output_padding = output_padding.into();
        self
    }
}

macro_rules! convolutions {
    ($($name:ident, $transposed:ident: $n:literal, $extents:literal, $kernel:literal;)*) => {
        impl Tensor { $(
            #[doc = concat!("Convolution (without flipping the kernel) of inputs (N, C, ", $extents,
                ") or (C, ", $extents, ") with weights (O, C / groups, ", $kernel, ").")]
            ///
            /// Each output is the sum over channels and window of input times weight, plus the bias
            /// (O,) of its channel. Along an axis of n elements there are
            /// (n + 2 padding - dilation (k - 1) - 1) / stride + 1 outputs, rounded down. Dtypes are
            /// promoted.
            ///
            /// # Errors
            /// When ranks or channels do not fit, groups do not divide the channels, or the kernel
            /// is larger than the padded input.
            #[track_caller]
            pub fn $name(
                &self,
                weight: &Tensor,
                bias: Option<&Tensor>,
                conv: &Conv,
            ) -> Result<Tensor> {
                let _site = Site::caller().enter();
                apply(stringify!($name), [self, weight], bias, |op, x, weight| {
                    convolution(op, $n, x, weight, conv)
                })
            }

            #[doc = concat!("Transposed convolution of inputs (N, C, ", $extents, ") or (C, ",
                $extents, ") with weights (C, O / groups, ", $kernel, "): what the gradient of ")]
            #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name),
                ") by its input computes.")]
            ///
            /// Along an axis of n elements there are (n - 1) stride - 2 padding + dilation (k - 1) +
            /// output_padding + 1 outputs.
            ///
            /// # Errors
            /// When ranks or channels do not fit, groups do not divide the channels, the output
            /// padding is not smaller than stride or dilation, or nothing is left of the result.
            #[track_caller]
            pub fn $transposed(
                &self,
                weight: &Tensor,
                bias: Option<&Tensor>,
                conv: &Conv,
            ) -> Result<Tensor> {
                let _site = Site::caller().enter();
                apply(stringify!($transposed), [self, weight], bias, |op, x, weight| {
                    transposed(op, $n, x, weight, conv)
                })
            }
        )* }
    };
}

convolutions! {
    conv1d, conv_transpose1d: 1, "L", "K";
    conv2d, conv_transpose2d: 2, "H, W", "KH, KW";
    conv3d, conv_transpose3d: 3, "D, H, W", "KD, KH, KW";
}

/// A function of input and weight in one dtype, and the bias added to its channels, which come
/// before `weight.rank() - 2` axes.
fn apply(
    op: &'static str,
    [x, weight]: [&Tensor; 2],
    bias: Option<&Tensor>,
    f: impl FnOnce(&'static str, &UOp, &UOp) -> Result<UOp>,
) -> Result<Tensor> {
    let mut dtype = x.dtype().promote(weight.dtype());
    if let Some(bias) = bias {
        dtype = dtype.promote(bias.dtype());
    }
    let ((x, a), (weight, b)) = (x.read(), weight.read());
    let y = f(op, &x.cast(dtype)?, &weight.cast(dtype)?)?;
    let Some(bias) = bias else {
        return Ok(Tensor::derived(y, a || b));
    };
    let (bias, c) = bias.read();
    let spatial = weight.shape().rank() - 2;
    let channels = y.shape()[y.shape().rank() - spatial - 1];
    if bias.shape()[..] != [channels] {
        let shape = bias.shape();
        let message =
            format!("a bias of shape {shape} does not fit {channels} channels; ({channels},) does");
        return Err(shape_error(op, message));
    }
    let mut dims = vec![1; spatial + 1];
    dims[0] = channels;
    let bias = broadcast_to(&bias.cast(dtype)?.reshape(&dims)?, y.shape())?;
    Ok(Tensor::derived(y.add(&bias)?, a || b || c))
}

/// The input with its batch axis, and whether it had none.
fn batched(op: &'static str, n: usize, x: &UOp, weight: &UOp, layout: &str) -> Result<(UOp, bool)> {
    let (rank, shapes) = (x.shape().rank(), (x.shape(), weight.shape()));
    if weight.shape().rank() != n + 2 || rank != n + 2 && rank != n + 1 {
        let message = format!(
            "an input of shape {} and a weight of shape {}: the input needs {} axes (or {}, \
             without those of a batch), the weight {}, {layout}",
            shapes.0,
            shapes.1,
            n + 2,
            n + 1,
            n + 2
        );
        return Err(shape_error(op, message));
    }
    if rank == n + 2 {
        return Ok((x.clone(), false));
    }
    Ok((x.reshape(&[&[1], &x.shape()[..]].concat())?, true))
}

fn convolution(op: &'static str, n: usize, x: &UOp, weight: &UOp, conv: &Conv) -> Result<UOp> {
    let layout = "(out channels, in channels / groups, kernel)";
    let (x, single) = batched(op, n, x, weight, layout)?;
    let stride = conv.stride.resolve(op, "the stride", n, 1)?;
    let dilation = conv.dilation.resolve(op, "the dilation", n, 1)?;
    let kernel = kernel_of(op, weight)?;
    let groups = groups_of(op, conv.groups, &x, weight.shape(), 0)?;
    if x.shape()[1] / groups != weight.shape()[1] {
        let (c, per_group) = (x.shape()[1], weight.shape()[1]);
        let message = format!(
            "an input of shape {} has {c} channels, and a weight of shape {} in {groups} groups \
             needs {}",
            x.shape(),
            weight.shape(),
            per_group.saturating_mul(groups)
        );
        return Err(shape_error(op, message));
    }
    let padding: Vec<(usize, usize)> = match &conv.padding {
        ConvPadding::Zeros(numbers) => {
            let numbers = numbers.resolve(op, "the padding", n, 0)?;
            numbers.into_iter().map(|k| (k, k)).collect()
        }
        ConvPadding::Same => {
            if stride.iter().any(|&s| s != 1) {
                let message = format!(
                    "padding \"same\" keeps extents only with stride 1, not {stride:?}; give the \
                     padding in numbers"
                );
                return Err(shape_error(op, message));
            }
            let total = kernel.iter().zip(&dilation);
            let total = total.map(|(k, d)| d.saturating_mul(k - 1));
            total.map(|t| (t / 2, t - t / 2)).collect()
        }
    };
    let along = windows_along(&kernel, &stride, &dilation);
    let y = contract(op, &zeros_around(op, &x, &padding)?, weight, &along, groups)?;
    without_batch(y, single)
}

fn transposed(op: &'static str, n: usize, x: &UOp, weight: &UOp, conv: &Conv) -> Result<UOp> {
    let layout = "(in channels, out channels / groups, kernel)";
    let (x, single) = batched(op, n, x, weight, layout)?;
    let stride = conv.stride.resolve(op, "the stride", n, 1)?;
    let dilation = conv.dilation.resolve(op, "the dilation", n, 1)?;
    let extra = conv
        .output_padding
        .resolve(op, "the output padding", n, 0)?;
    let ConvPadding::Zeros(padding) = &conv.padding else {
        let message = "padding \"same\" has no meaning for a transposed convolution; give numbers";
        return Err(shape_error(op, message.into()));
    };
    let padding = padding.resolve(op, "the padding", n, 0)?;
    let kernel = kernel_of(op, weight)?;
    let (c, per_group) = (weight.shape()[0], weight.shape()[1]);
    if x.shape()[1] != c {
        let message = format!(
            "an input of shape {} has {} channels, and a weight of shape {} needs {c}",
            x.shape(),
            x.shape()[1],
            weight.shape()
        );
        return Err(shape_error(op, message));
    }
    let groups = groups_of(op, conv.groups, &x, weight.shape(), c)?;
    let mut spread = x;
    for k in 0..n {
        if extra[k] > 0 && extra[k] >= stride[k].max(dilation[k]) {
            let message = format!(
                "the output padding {extra:?} must be smaller than the stride {stride:?} or the \
                 dilation {dilation:?}"
            );
            return Err(shape_error(op, message));
        }
        let reach = dilation[k].saturating_mul(kernel[k] - 1);
        spread = spread_axis(op, &spread, 2 + k, stride[k], (reach, padding[k], extra[k]))?;
    }
    // (G, C/G, O/G, kernel) to (O, C/G, kernel) with the kernel reversed.
    let split = [&[groups, c / groups, per_group], &kernel[..]].concat();
    let mut order: Vec<usize> = (0..split.len()).collect();
    order.swap(1, 2);
    let whole = [&[groups * per_group, c / groups], &kernel[..]].concat();
    let turned = weight.reshape(&split)?.permute(&order)?.reshape(&whole)?;
    let turned = composite::flip(&turned, &(2..n + 2).collect::<Vec<usize>>())?;
    let along = windows_along(&kernel, &vec![1; n], &dilation);
    let y = contract(op, &spread, &turned, &along, groups)?;
    without_batch(y, single)
}

/// An axis with stride - 1 zeros between its elements, and as many around as the windows need.
fn spread_axis(
    op: &'static str,
    x: &UOp,
    axis: usize,
    stride: usize,
    (reach, cut, extra): (usize, usize, usize),
) -> Result<UOp> {
    let n = x.shape()[axis];
    if n == 0 {
        let message = format!(
            "an input of shape {} has nothing along axis {axis}",
            x.shape()
        );
        return Err(shape_error(op, message));
    }
    let length = (n - 1).checked_mul(stride).map(|k| k + 1);
    let Some(length) = length.filter(|&k| k <= isize::MAX as usize / 2) else {
        let message = format!("{n} elements {stride} apart are more than memory holds");
        return Err(shape_error(op, message));
    };
    let mut apart = x.clone();
    if n > 1 && stride > 1 {
        let mut padding = vec![(0, 0); x.shape().rank() + 1];
        padding[axis + 1] = (0, stride - 1);
        let rows = composite::pad(&x.reshape(&around(x, axis, &[n, 1]))?, &padding)?;
        apart = rows.reshape(&around(x, axis, &[n * stride]))?;
    }
    // What a window reaches beyond the input, less what is cut off of the result, may be negative.
    let side = |more: usize| reach as i64 + more as i64 - cut.min(i64::MAX as usize / 4) as i64;
    let (before, after) = (side(0), side(extra));
    let (begin, end) = ((-before).max(0), length as i64 - (-after).max(0));
    if end - begin + before.max(0) + after.max(0) <= reach as i64 {
        let message = format!(
            "padding {cut} cuts off all that axis {axis} of the input, of {n} elements, gives"
        );
        return Err(shape_error(op, message));
    }
    let mut bounds: Vec<(usize, usize)> = apart.shape().iter().map(|&d| (0, d)).collect();
    // With little left, zeros that are put on may be cut off again.
    let mut padding = vec![(0, 0); x.shape().rank()];
    padding[axis] = (before.max(0) as usize, after.max(0) as usize);
    padded_extent(op, length, padding[axis])?;
    bounds[axis] = (0, length);
    let padded = composite::pad(&apart.shrink(&bounds)?, &padding)?;
    let mut bounds: Vec<(usize, usize)> = padded.shape().iter().map(|&d| (0, d)).collect();
    let total = padded.shape()[axis];
    bounds[axis] = (begin as usize, total - (-after).max(0) as usize);
    padded.shrink(&bounds)
}

/// The extents of the kernel, none of which is 0.
fn kernel_of(op: &'static str, weight: &UOp) -> Result<Vec<usize>> {
    let kernel = weight.shape()[2..].to_vec();
    if kernel.contains(&0) {
        let message = format!("a weight of shape {} has an empty kernel", weight.shape());
        return Err(shape_error(op, message));
    }
    Ok(kernel)
}

/// The number of groups, which divides the channels on both sides.
fn groups_of(
    op: &'static str,
    groups: usize,
    x: &UOp,
    weight: &Shape,
    inputs: usize,
) -> Result<usize> {
    let (c, o) = (x.shape()[1], weight[0].max(inputs));
    if groups == 0 || !c.is_multiple_of(groups) || !o.is_multiple_of(groups) {
        let message = format!(
            "{groups} groups do not divide the channels of an input of shape {} and a weight of \
             shape {weight}",
            x.shape()
        );
        return Err(shape_error(op, message));
    }
    Ok(groups)
}

fn windows_along(kernel: &[usize], stride: &[usize], dilation: &[usize]) -> Vec<Window> {
    let window = |k: usize| Window {
        kernel: kernel[k],
        stride: stride[k],
        dilation: dilation[k],
    };
    (0..kernel.len()).map(window).collect()
}

/// The last axes with zeros around.
fn zeros_around(op: &'static str, x: &UOp, padding: &[(usize, usize)]) -> Result<UOp> {
    let lead = x.shape().rank() - padding.len();
    for (k, &pair) in padding.iter().enumerate() {
        padded_extent(op, x.shape()[lead + k], pair)?;
    }
    composite::pad(x, &[&vec![(0, 0); lead][..], padding].concat())
}

/// The sums over channels and windows: (B, C, n...) and (O, C/G, k...) give (B, O, counts...).
fn contract(
    op: &'static str,
    x: &UOp,
    weight: &UOp,
    along: &[Window],
    groups: usize,
) -> Result<UOp> {
    let n = along.len();
    let mut counts = Vec::with_capacity(n);
    for (k, window) in along.iter().enumerate() {
        counts.push(window.count(op, 2 + k, x.shape()[2 + k])?);
    }
    let (b, c) = (x.shape()[0], x.shape()[1] / groups);
    let o = weight.shape()[0] / groups;
    let dtype = x.dtype();
    // Where a factor is not repeated the sum is no contraction, and the products of narrow floats
    // would be rounded one by one. In f32 they are exact, as in a contraction.
    let alone = o == 1 || b * counts.iter().product::<usize>() == 1;
    let sums = if alone { dtype.accumulator() } else { dtype };
    let (x, weight) = (x.cast(sums)?, weight.cast(sums)?);
    let view = all_windows(&x, along)?;
    let kernel: Vec<usize> = along.iter().map(|w| w.kernel).collect();
    let ones = vec![1; n];
    // Without groups there is no axis for them, so that the graph is the shorter one.
    let (in_groups, of_weight) = match groups {
        1 => (vec![b, 1, c], vec![1, o, c]),
        _ => (vec![b, groups, 1, c], vec![1, groups, o, c]),
    };
    let first = in_groups.len() - 1;
    let view = view.reshape(&[&in_groups[..], &kernel, &counts].concat())?;
    let weight = weight.reshape(&[&of_weight[..], &kernel, &ones].concat())?;
    let mut dims = view.shape().to_vec();
    dims[first - 1] = o;
    let dims = Shape::new(&dims);
    let products = broadcast_to(&view, &dims)?.mul(&broadcast_to(&weight, &dims)?)?;
    let summed: Vec<usize> = (first..first + n + 1).collect();
    let y = sum(&products, &summed)?;
    // Narrow integers are added as wider ones; the result has their own dtype, as in a product.
    let y = if y.dtype() == sums && sums == dtype {
        y
    } else {
        y.cast(dtype)?
    };
    y.reshape(&[&[b, o * groups], &counts[..]].concat())
}

fn without_batch(y: UOp, single: bool) -> Result<UOp> {
    if single {
        return y.reshape(&y.shape()[1..]);
    }
    Ok(y)
}
