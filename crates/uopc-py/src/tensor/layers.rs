//! Methods that layers are made of: normalisation, attention, dropout, resizing; and the state of the
//! random generator.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use uopc::Tensor;
use uopc::tensor::{Attention, BatchStatistics, Resize, ResizeMode};

use super::{PyTensor, located};
use crate::convert::{AnyPerAxis, AnyTensor, Real, Wholes};
use crate::uop::Size;

fn inner(t: Option<AnyTensor>) -> Option<Tensor> {
    t.map(|t| t.0)
}

/// Factors by which axes are resized: one for all, or one for each.
struct Factors(Vec<f64>);

impl<'py> FromPyObject<'_, 'py> for Factors {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Factors> {
        if let Ok(Real(factor)) = ob.extract::<Real>() {
            return Ok(Factors(vec![factor]));
        }
        let items = ob.try_iter()?.map(|item| Ok(item?.extract::<Real>()?.0));
        Ok(Factors(items.collect::<PyResult<_>>()?))
    }
}

#[pymethods]
impl PyTensor {
    /// The part that the last axes form, with mean 0 and variance 1, times ``weight`` plus ``bias``:
    /// ``(x - mean) / sqrt(var + eps) * weight + bias``, weight and bias of the part's shape. Half
    /// floats are computed in f32.
    ///
    /// Raises ValueError if the tensor does not end in the shape, or weight or bias differ from it.
    ///
    /// >>> Tensor([[1.0, 3.0], [10.0, 30.0]]).layer_norm(2, eps=0.0).tolist()
    /// [[-1.0, 1.0], [-1.0, 1.0]]
    #[pyo3(
        signature = (normalized_shape, weight=None, bias=None, eps=Real(1e-5)),
        text_signature = "($self, normalized_shape, weight=None, bias=None, eps=1e-05)"
    )]
    fn layer_norm(
        &self,
        py: Python<'_>,
        normalized_shape: Wholes,
        weight: Option<AnyTensor>,
        bias: Option<AnyTensor>,
        eps: Real,
    ) -> PyResult<PyTensor> {
        let (weight, bias) = (inner(weight), inner(bias));
        PyTensor::build(py, || {
            self.tensor
                .layer_norm(normalized_shape, weight.as_ref(), bias.as_ref(), eps.0)
        })
    }

    /// The part that the last axes form, divided by the root of its mean square, times ``weight``:
    /// ``x / sqrt(mean(x * x) + eps) * weight``. Without ``eps`` it is the epsilon of the dtype.
    ///
    /// Raises ValueError if the tensor does not end in the shape, or the weight differs from it.
    ///
    /// >>> Tensor([3.0, 4.0]).rms_norm(2, eps=12.5).tolist()
    /// [0.6000000238418579, 0.800000011920929]
    #[pyo3(signature = (normalized_shape, weight=None, eps=None))]
    fn rms_norm(
        &self,
        py: Python<'_>,
        normalized_shape: Wholes,
        weight: Option<AnyTensor>,
        eps: Option<Real>,
    ) -> PyResult<PyTensor> {
        let weight = inner(weight);
        let eps = eps.map_or_else(|| Tensor::epsilon(self.tensor.dtype()), |eps| eps.0);
        PyTensor::build(py, || {
            self.tensor.rms_norm(normalized_shape, weight.as_ref(), eps)
        })
    }

    /// Channels of (N, C, ...) in groups, each group of each example with mean 0 and variance 1,
    /// times the weight plus the bias of the channel, both of shape (C,).
    ///
    /// Raises ValueError if groups do not divide the channels, or weight or bias do not fit.
    ///
    /// >>> Tensor([[1.0, 3.0, 5.0, 7.0]]).group_norm(2, eps=0.0).tolist()
    /// [[-1.0, 1.0, -1.0, 1.0]]
    #[pyo3(
        signature = (num_groups, weight=None, bias=None, eps=Real(1e-5)),
        text_signature = "($self, num_groups, weight=None, bias=None, eps=1e-05)"
    )]
    fn group_norm(
        &self,
        py: Python<'_>,
        num_groups: Size,
        weight: Option<AnyTensor>,
        bias: Option<AnyTensor>,
        eps: Real,
    ) -> PyResult<PyTensor> {
        let (weight, bias) = (inner(weight), inner(bias));
        PyTensor::build(py, || {
            self.tensor
                .group_norm(num_groups.0, weight.as_ref(), bias.as_ref(), eps.0)
        })
    }

    /// Each channel of (N, C, ...) with mean 0 and variance 1 over the batch and all positions,
    /// times the weight plus the bias of the channel, both of shape (C,).
    ///
    /// With ``training`` the batch's own mean and variance are used, and running ones, if there are
    /// any, move towards them by ``momentum`` (with the variance of N - 1); they get their values
    /// with what is computed next, in the same plan. Otherwise the running ones are used.
    ///
    /// Raises ValueError if tensors do not fit the channels, if there is a single element a channel
    /// to train with, and for running statistics of which one is missing.
    ///
    /// >>> mean, var = Tensor([1.0]), Tensor([4.0])
    /// >>> Tensor([[1.0], [5.0]]).batch_norm(mean, var, eps=0.0).tolist()
    /// [[0.0], [2.0]]
    #[pyo3(
        signature = (
            running_mean=None,
            running_var=None,
            weight=None,
            bias=None,
            training=false,
            momentum=Real(0.1),
            eps=Real(1e-5),
        ),
        text_signature = "($self, running_mean=None, running_var=None, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05)"
    )]
    #[allow(clippy::too_many_arguments)]
    fn batch_norm(
        &self,
        py: Python<'_>,
        running_mean: Option<AnyTensor>,
        running_var: Option<AnyTensor>,
        weight: Option<AnyTensor>,
        bias: Option<AnyTensor>,
        training: bool,
        momentum: Real,
        eps: Real,
    ) -> PyResult<PyTensor> {
        let (weight, bias) = (inner(weight), inner(bias));
        let running = match (inner(running_mean), inner(running_var)) {
            (Some(mean), Some(var)) => Some((mean, var)),
            (None, None) => None,
            _ => {
                let message = "batch_norm: a running mean and a running variance go together";
                return Err(located::<PyValueError>(py, message));
            }
        };
        let statistics = match (&running, training) {
            (Some((mean, var)), false) => BatchStatistics::Fixed(mean, var),
            (None, false) => {
                let message = "batch_norm: without training it needs a running mean and variance";
                return Err(located::<PyValueError>(py, message));
            }
            (running, true) => BatchStatistics::OfBatch {
                running: running.as_ref().map(|(mean, var)| (mean, var)),
                momentum: momentum.0,
            },
        };
        PyTensor::build(py, || {
            self.tensor
                .batch_norm(statistics, weight.as_ref(), bias.as_ref(), eps.0)
        })
    }

    /// Each element set to 0 with probability p, and what is left divided by 1 - p. Without
    /// ``training`` nothing happens.
    ///
    /// Numbers are drawn from the thread's generator; each call draws others, and a training step
    /// has one plan all the same.
    ///
    /// Raises ValueError if p is not from 0 to 1.
    ///
    /// >>> Tensor.manual_seed(1)
    /// >>> sorted(set(Tensor.ones(100).dropout(0.5).tolist()))
    /// [0.0, 2.0]
    #[pyo3(
        signature = (p=Real(0.5), training=true),
        text_signature = "($self, p=0.5, training=True)"
    )]
    fn dropout(&self, py: Python<'_>, p: Real, training: bool) -> PyResult<PyTensor> {
        PyTensor::build(py, || match training {
            true => self.tensor.dropout(p.0),
            false => Ok(self.tensor.clone()),
        })
    }

    /// softmax(q kᵀ scale) v for queries (this tensor) (..., L, E), keys (..., S, E) and values
    /// (..., S, V), which gives (..., L, V). The scale is 1 / sqrt(E) if none is given.
    ///
    /// ``attn_mask`` says where a query may look: bools (true: it may) or numbers that are added to
    /// the scores; it broadcasts to (..., L, S), and a query that may look nowhere gets zeros. With
    /// ``is_causal`` query i sees keys 0 to i. ``dropout_p`` drops weights. With ``enable_gqa``
    /// several heads of queries (the third axis from the end) share one of keys and values.
    ///
    /// Raises ValueError if shapes do not fit or both kinds of masks are given, TypeError for dtypes
    /// that are no floats.
    ///
    /// >>> q = Tensor.zeros(2, 1)
    /// >>> q.scaled_dot_product_attention(q, Tensor([[1.0], [3.0]]), is_causal=True).tolist()
    /// [[1.0], [2.0]]
    #[pyo3(
        signature = (
            key,
            value,
            attn_mask=None,
            dropout_p=Real(0.0),
            is_causal=false,
            scale=None,
            enable_gqa=false,
        ),
        text_signature = "($self, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False)"
    )]
    #[allow(clippy::too_many_arguments)]
    fn scaled_dot_product_attention(
        &self,
        py: Python<'_>,
        key: AnyTensor,
        value: AnyTensor,
        attn_mask: Option<AnyTensor>,
        dropout_p: Real,
        is_causal: bool,
        scale: Option<Real>,
        enable_gqa: bool,
    ) -> PyResult<PyTensor> {
        let mut how = Attention::new().causal(is_causal).dropout(dropout_p.0);
        how = how.grouped(enable_gqa);
        if let Some(mask) = attn_mask {
            how = how.mask(&mask.0);
        }
        if let Some(scale) = scale {
            how = how.scale(scale.0);
        }
        PyTensor::build(py, || self.tensor.attention(&key.0, &value.0, &how))
    }

    /// Inputs (N, C, ...) with one to three spatial axes, resized: to the extents ``size``, or by
    /// ``scale_factor``, rounded down.
    ///
    /// ``mode`` is "nearest" (position i reads i * old / new, rounded down), "nearest-exact" (the
    /// nearest centre), "linear", "bilinear" or "trilinear" (between the neighbours along one, two or
    /// three axes; with ``align_corners`` outer elements stay where they are), or "area" (means of
    /// windows).
    ///
    /// Raises ValueError if shapes do not fit or the mode is none of these, TypeError unless one of
    /// size and factor is given.
    ///
    /// >>> Tensor([[[1.0, 2.0]]]).interpolate(scale_factor=2, mode="linear").tolist()
    /// [[[1.0, 1.25, 1.75, 2.0]]]
    #[pyo3(signature = (size=None, scale_factor=None, mode="nearest", align_corners=false))]
    fn interpolate(
        &self,
        py: Python<'_>,
        size: Option<AnyPerAxis>,
        scale_factor: Option<Factors>,
        mode: &str,
        align_corners: bool,
    ) -> PyResult<PyTensor> {
        let size = match (size, scale_factor) {
            (Some(size), None) => Resize::To(size.0),
            (None, Some(Factors(factors))) => Resize::By(factors),
            _ => {
                let message = "interpolate: either a size or a scale_factor is needed";
                return Err(located::<PyTypeError>(py, message));
            }
        };
        let linear = ["linear", "bilinear", "trilinear"];
        let how = match mode {
            "nearest" => ResizeMode::Nearest,
            "nearest-exact" => ResizeMode::NearestExact,
            "area" => ResizeMode::Area,
            _ if linear.contains(&mode) => match align_corners {
                true => ResizeMode::LinearAligned,
                false => ResizeMode::Linear,
            },
            _ => {
                let message = format!(
                    "interpolate: mode {mode:?} is none of nearest, nearest-exact, linear, bilinear, \
                     trilinear, area"
                );
                return Err(located::<PyValueError>(py, message));
            }
        };
        let spatial = self.tensor.rank().saturating_sub(2);
        let axes_of_mode = linear.iter().position(|&name| name == mode).map(|k| k + 1);
        if axes_of_mode.is_some_and(|n| n != spatial) {
            let message = format!(
                "interpolate: mode {mode:?} does not fit {spatial} spatial axes of shape {}",
                self.tensor.shape()
            );
            return Err(located::<PyValueError>(py, message));
        }
        if align_corners && axes_of_mode.is_none() {
            let message = format!("interpolate: align_corners has no meaning for mode {mode:?}");
            return Err(located::<PyValueError>(py, message));
        }
        PyTensor::build(py, || self.tensor.interpolate(&size, how))
    }

    /// The state of the generator that this thread draws from: its seed and the number of calls.
    ///
    /// >>> state = Tensor.random_state()
    /// >>> first = Tensor.randn(3).tolist()
    /// >>> Tensor.set_random_state(state)
    /// >>> Tensor.randn(3).tolist() == first
    /// True
    #[staticmethod]
    fn random_state() -> (u64, u64) {
        let [seed, calls] = Tensor::random_state();
        (seed, calls)
    }

    /// Gives this thread a generator in a state that ``random_state`` gave.
    ///
    /// >>> Tensor.set_random_state((7, 0))
    #[staticmethod]
    fn set_random_state(state: (u64, u64)) {
        Tensor::set_random_state([state.0, state.1]);
    }
}
