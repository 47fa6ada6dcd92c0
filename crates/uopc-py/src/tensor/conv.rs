//! Methods that convolve and pool.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use uopc::tensor::{Conv, ConvPadding, PerAxis, Pool};

use super::{PyTensor, located};
use crate::convert::{AnyPerAxis, AnyTensor, Whole, shown};
use crate::uop::Size;

/// Zeros around the input of a convolution: numbers, "same" or "valid".
pub struct AnyPadding(pub ConvPadding);

impl<'py> FromPyObject<'_, 'py> for AnyPadding {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<AnyPadding> {
        let Ok(text) = ob.cast::<PyString>() else {
            return Ok(AnyPadding(ob.extract::<AnyPerAxis>()?.0.into()));
        };
        match &*text.to_cow()? {
            "same" => Ok(AnyPadding(ConvPadding::Same)),
            "valid" => Ok(AnyPadding(0.into())),
            _ => {
                let message = format!(
                    "padding is numbers, \"same\" or \"valid\", not {}",
                    shown(&ob)
                );
                Err(located::<PyValueError>(ob.py(), message))
            }
        }
    }
}

/// What comes out of an adaptive pooling; None keeps the extent of an axis.
enum Outputs {
    All(i64),
    Each(Vec<Option<i64>>),
}

impl<'py> FromPyObject<'_, 'py> for Outputs {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Outputs> {
        if let Ok(Whole(number)) = ob.extract::<Whole>() {
            return Ok(Outputs::All(number));
        }
        let extent = |item: PyResult<Bound<'py, PyAny>>| {
            let extent: Option<Whole> = item?.extract()?;
            Ok(extent.map(|n| n.0))
        };
        let items = ob.try_iter()?.map(extent);
        Ok(Outputs::Each(items.collect::<PyResult<_>>()?))
    }
}

impl Outputs {
    fn resolve(&self, shape: &[usize]) -> PerAxis {
        match self {
            Outputs::All(number) => (*number).into(),
            Outputs::Each(extents) => {
                let lead = shape.len().saturating_sub(extents.len());
                let kept = |k: usize| shape.get(lead + k).map_or(0, |&n| n as i64);
                let extents = extents.iter().enumerate();
                let extents: Vec<i64> =
                    extents.map(|(k, n)| n.unwrap_or_else(|| kept(k))).collect();
                extents.into()
            }
        }
    }
}

macro_rules! convolutions {
    ($($(#[$doc:meta])* $name:ident; $(#[$turned_doc:meta])* $turned:ident;)*) => { $(
        #[pymethods]
        impl PyTensor {
            $(#[$doc])*
            #[pyo3(
                signature = (
                    weight,
                    bias=None,
                    stride=AnyPerAxis::all(1),
                    padding=AnyPadding(0.into()),
                    dilation=AnyPerAxis::all(1),
                    groups=Size(1),
                ),
                text_signature = "($self, weight, bias=None, stride=1, padding=0, dilation=1, groups=1)"
            )]
            #[allow(clippy::too_many_arguments)]
            fn $name(
                &self,
                py: Python<'_>,
                weight: AnyTensor,
                bias: Option<AnyTensor>,
                stride: AnyPerAxis,
                padding: AnyPadding,
                dilation: AnyPerAxis,
                groups: Size,
            ) -> PyResult<PyTensor> {
                let conv = Conv::new().stride(stride.0).padding(padding.0);
                let conv = conv.dilation(dilation.0).groups(groups.0);
                let bias = bias.map(|b| b.0);
                PyTensor::build(py, || self.tensor.$name(&weight.0, bias.as_ref(), &conv))
            }

            $(#[$turned_doc])*
            #[pyo3(
                signature = (
                    weight,
                    bias=None,
                    stride=AnyPerAxis::all(1),
                    padding=AnyPerAxis::all(0),
                    output_padding=AnyPerAxis::all(0),
                    groups=Size(1),
                    dilation=AnyPerAxis::all(1),
                ),
                text_signature = "($self, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1)"
            )]
            #[allow(clippy::too_many_arguments)]
            fn $turned(
                &self,
                py: Python<'_>,
                weight: AnyTensor,
                bias: Option<AnyTensor>,
                stride: AnyPerAxis,
                padding: AnyPerAxis,
                output_padding: AnyPerAxis,
                groups: Size,
                dilation: AnyPerAxis,
            ) -> PyResult<PyTensor> {
                let conv = Conv::new().stride(stride.0).padding(padding.0).groups(groups.0);
                let conv = conv.output_padding(output_padding.0).dilation(dilation.0);
                let bias = bias.map(|b| b.0);
                PyTensor::build(py, || self.tensor.$turned(&weight.0, bias.as_ref(), &conv))
            }
        }
    )* };
}

convolutions! {
    /// Convolution (without flipping the kernel) of inputs (N, C, L) or (C, L) with weights
    /// (O, C / groups, K).
    ///
    /// Each output is the sum over channels and window of input times weight, plus the bias (O,) of
    /// its channel. There are (L + 2 padding - dilation (K - 1) - 1) / stride + 1 of them, rounded
    /// down. ``padding`` may be "same" (with stride 1) or "valid", too. Dtypes are promoted.
    ///
    /// Raises ValueError if shapes do not fit, groups do not divide the channels, or the kernel is
    /// larger than the padded input.
    ///
    /// >>> x = Tensor([[[1.0, 2.0, 4.0, 8.0]]])
    /// >>> x.conv1d(Tensor([[[-1.0, 1.0]]])).tolist()
    /// [[[1.0, 2.0, 4.0]]]
    conv1d;
    /// Transposed convolution of inputs (N, C, L) or (C, L) with weights (C, O / groups, K): what
    /// the gradient of ``conv1d`` by its input computes.
    ///
    /// There are (L - 1) stride - 2 padding + dilation (K - 1) + output_padding + 1 outputs.
    ///
    /// Raises ValueError if shapes do not fit, groups do not divide the channels, or the output
    /// padding is not smaller than stride or dilation.
    ///
    /// >>> x = Tensor([[[1.0, 2.0]]])
    /// >>> x.conv_transpose1d(Tensor([[[1.0, 10.0]]]), stride=2).tolist()
    /// [[[1.0, 10.0, 2.0, 20.0]]]
    conv_transpose1d;
    /// Convolution (without flipping the kernel) of images (N, C, H, W) or (C, H, W) with weights
    /// (O, C / groups, KH, KW). What ``conv1d`` says holds along each axis; a pair of numbers gives
    /// each axis its own stride, padding or dilation.
    ///
    /// Raises ValueError as ``conv1d``.
    ///
    /// >>> x = Tensor.ones(1, 4, 8, 8)
    /// >>> x.conv2d(Tensor.ones(6, 2, 3, 3), stride=2, padding=1, groups=2).shape
    /// (1, 6, 4, 4)
    conv2d;
    /// Transposed convolution of images (N, C, H, W) or (C, H, W) with weights (C, O / groups, KH,
    /// KW), see ``conv_transpose1d``.
    ///
    /// Raises ValueError as ``conv_transpose1d``.
    ///
    /// >>> x = Tensor.ones(1, 4, 8, 8)
    /// >>> x.conv_transpose2d(Tensor.ones(4, 6, 2, 2), stride=2).shape
    /// (1, 6, 16, 16)
    conv_transpose2d;
    /// Convolution of volumes (N, C, D, H, W) or (C, D, H, W) with weights (O, C / groups, KD, KH,
    /// KW), see ``conv1d``.
    ///
    /// Raises ValueError as ``conv1d``.
    ///
    /// >>> Tensor.ones(1, 2, 4, 4, 4).conv3d(Tensor.ones(3, 2, 2, 2, 2)).shape
    /// (1, 3, 3, 3, 3)
    conv3d;
    /// Transposed convolution of volumes (N, C, D, H, W) or (C, D, H, W) with weights (C, O /
    /// groups, KD, KH, KW), see ``conv_transpose1d``.
    ///
    /// Raises ValueError as ``conv_transpose1d``.
    ///
    /// >>> Tensor.ones(1, 2, 2, 2, 2).conv_transpose3d(Tensor.ones(2, 3, 2, 2, 2)).shape
    /// (1, 3, 3, 3, 3)
    conv_transpose3d;
}

macro_rules! pools {
    ($($(#[$max_doc:meta])* $max:ident; $(#[$mean_doc:meta])* $mean:ident;
        $(#[$adaptive_mean_doc:meta])* $adaptive_mean:ident;
        $(#[$adaptive_max_doc:meta])* $adaptive_max:ident;)*) => { $(
        #[pymethods]
        impl PyTensor {
            $(#[$max_doc])*
            #[pyo3(
                signature = (
                    kernel_size,
                    stride=None,
                    padding=AnyPerAxis::all(0),
                    dilation=AnyPerAxis::all(1),
                    ceil_mode=false,
                ),
                text_signature = "($self, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False)"
            )]
            fn $max(
                &self,
                py: Python<'_>,
                kernel_size: AnyPerAxis,
                stride: Option<AnyPerAxis>,
                padding: AnyPerAxis,
                dilation: AnyPerAxis,
                ceil_mode: bool,
            ) -> PyResult<PyTensor> {
                let pool = pooling(kernel_size, stride, padding, ceil_mode);
                PyTensor::build(py, || self.tensor.$max(pool.dilation(dilation.0)))
            }

            $(#[$mean_doc])*
            #[pyo3(
                signature = (
                    kernel_size,
                    stride=None,
                    padding=AnyPerAxis::all(0),
                    ceil_mode=false,
                    count_include_pad=true,
                    divisor_override=None,
                ),
                text_signature = "($self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None)"
            )]
            #[allow(clippy::too_many_arguments)]
            fn $mean(
                &self,
                py: Python<'_>,
                kernel_size: AnyPerAxis,
                stride: Option<AnyPerAxis>,
                padding: AnyPerAxis,
                ceil_mode: bool,
                count_include_pad: bool,
                divisor_override: Option<Size>,
            ) -> PyResult<PyTensor> {
                let pool = pooling(kernel_size, stride, padding, ceil_mode);
                let mut pool = pool.count_include_pad(count_include_pad);
                if let Some(divisor) = divisor_override {
                    pool = pool.divisor(divisor.0);
                }
                PyTensor::build(py, || self.tensor.$mean(pool))
            }

            $(#[$adaptive_mean_doc])*
            fn $adaptive_mean(&self, py: Python<'_>, output_size: Outputs) -> PyResult<PyTensor> {
                let outputs = output_size.resolve(self.tensor.shape());
                PyTensor::build(py, || self.tensor.$adaptive_mean(outputs))
            }

            $(#[$adaptive_max_doc])*
            fn $adaptive_max(&self, py: Python<'_>, output_size: Outputs) -> PyResult<PyTensor> {
                let outputs = output_size.resolve(self.tensor.shape());
                PyTensor::build(py, || self.tensor.$adaptive_max(outputs))
            }
        }
    )* };
}

fn pooling(
    kernel: AnyPerAxis,
    stride: Option<AnyPerAxis>,
    padding: AnyPerAxis,
    ceil: bool,
) -> Pool {
    let pool = Pool::new(kernel.0).padding(padding.0).ceil_mode(ceil);
    match stride {
        Some(stride) => pool.stride(stride.0),
        None => pool,
    }
}

pools! {
    /// The largest element of each window of (N, C, L) or (C, L).
    ///
    /// There are (L + 2 padding - dilation (kernel - 1) - 1) / stride + 1 windows, rounded down; with
    /// ``ceil_mode`` also one that is partly outside, if it begins inside. The stride is that of the
    /// kernel if none is given. NaN if there is one; a gradient is shared evenly by equal ones.
    ///
    /// Raises ValueError if a window is larger than the padded input, or the padding larger than
    /// half a window.
    ///
    /// >>> Tensor([[[1.0, 5.0, 2.0, 4.0, 3.0]]]).max_pool1d(2).tolist()
    /// [[[5.0, 4.0]]]
    max_pool1d;
    /// The mean of each window of (N, C, L) or (C, L), windows as in ``max_pool1d``.
    ///
    /// Zeros of the padding are counted unless ``count_include_pad`` is off; what ``ceil_mode`` adds
    /// never is. ``divisor_override`` takes the place of the number of elements. Integers become f32.
    ///
    /// Raises ValueError if a window is larger than the padded input, or the padding larger than
    /// half a window.
    ///
    /// >>> Tensor([[[1.0, 5.0, 2.0, 4.0, 3.0]]]).avg_pool1d(2).tolist()
    /// [[[3.0, 3.0]]]
    avg_pool1d;
    /// Means of windows of (N, C, L) or (C, L) such that that many come out: output i of o is the
    /// mean of the elements from i L / o, rounded down, to (i + 1) L / o, rounded up.
    ///
    /// Raises ValueError if nothing is to come out, or nothing is there.
    ///
    /// >>> Tensor([[[1.0, 2.0, 3.0, 4.0]]]).adaptive_avg_pool1d(2).tolist()
    /// [[[1.5, 3.5]]]
    adaptive_avg_pool1d;
    /// The largest elements of the windows of ``adaptive_avg_pool1d``.
    ///
    /// Raises ValueError if nothing is to come out, or nothing is there.
    ///
    /// >>> Tensor([[[1.0, 2.0, 3.0, 4.0]]]).adaptive_max_pool1d(2).tolist()
    /// [[[2.0, 4.0]]]
    adaptive_max_pool1d;
    /// The largest element of each window of images (N, C, H, W) or (C, H, W), see ``max_pool1d``.
    ///
    /// Raises ValueError as ``max_pool1d``.
    ///
    /// >>> Tensor.zeros(1, 3, 8, 8).max_pool2d(2).shape
    /// (1, 3, 4, 4)
    max_pool2d;
    /// The mean of each window of images (N, C, H, W) or (C, H, W), see ``avg_pool1d``.
    ///
    /// Raises ValueError as ``avg_pool1d``.
    ///
    /// >>> Tensor.zeros(1, 3, 8, 8).avg_pool2d((4, 2)).shape
    /// (1, 3, 2, 4)
    avg_pool2d;
    /// Means of windows of images (N, C, H, W) or (C, H, W), see ``adaptive_avg_pool1d``; None in a
    /// pair keeps the extent of an axis.
    ///
    /// Raises ValueError as ``adaptive_avg_pool1d``.
    ///
    /// >>> Tensor.zeros(1, 3, 8, 8).adaptive_avg_pool2d((None, 3)).shape
    /// (1, 3, 8, 3)
    adaptive_avg_pool2d;
    /// The largest elements of the windows of ``adaptive_avg_pool2d``.
    ///
    /// Raises ValueError as ``adaptive_avg_pool1d``.
    ///
    /// >>> Tensor.zeros(1, 3, 8, 8).adaptive_max_pool2d(1).shape
    /// (1, 3, 1, 1)
    adaptive_max_pool2d;
    /// The largest element of each window of volumes (N, C, D, H, W) or (C, D, H, W), see
    /// ``max_pool1d``.
    ///
    /// Raises ValueError as ``max_pool1d``.
    ///
    /// >>> Tensor.zeros(1, 3, 4, 4, 4).max_pool3d(2).shape
    /// (1, 3, 2, 2, 2)
    max_pool3d;
    /// The mean of each window of volumes (N, C, D, H, W) or (C, D, H, W), see ``avg_pool1d``.
    ///
    /// Raises ValueError as ``avg_pool1d``.
    ///
    /// >>> Tensor.zeros(1, 3, 4, 4, 4).avg_pool3d(2).shape
    /// (1, 3, 2, 2, 2)
    avg_pool3d;
    /// Means of windows of volumes (N, C, D, H, W) or (C, D, H, W), see ``adaptive_avg_pool1d``.
    ///
    /// Raises ValueError as ``adaptive_avg_pool1d``.
    ///
    /// >>> Tensor.zeros(1, 3, 4, 4, 4).adaptive_avg_pool3d(3).shape
    /// (1, 3, 3, 3, 3)
    adaptive_avg_pool3d;
    /// The largest elements of the windows of ``adaptive_avg_pool3d``.
    ///
    /// Raises ValueError as ``adaptive_avg_pool1d``.
    ///
    /// >>> Tensor.zeros(1, 3, 4, 4, 4).adaptive_max_pool3d(3).shape
    /// (1, 3, 3, 3, 3)
    adaptive_max_pool3d;
}
