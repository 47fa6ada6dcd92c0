//! What layers compute, and the tensors with which they start.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uopc::Tensor;
use uopc::nn::{
    Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Embedding, Linear,
    MultiheadAttention,
};
use uopc::tensor::{Attention, Conv};

use crate::convert::{AnyTensor, Real, Wholes};
use crate::run::{build, compute};
use crate::tensor::{PyTensor, located};
use crate::uop::Size;

/// The weight and the bias with which a Linear layer starts.
#[pyfunction]
fn linear_parameters(
    py: Python<'_>,
    in_features: Size,
    out_features: Size,
    bias: bool,
) -> PyResult<(PyTensor, Option<PyTensor>)> {
    let layer = compute(py, || match bias {
        true => Linear::new(in_features.0, out_features.0),
        false => Linear::without_bias(in_features.0, out_features.0),
    })?;
    Ok((layer.weight.into(), layer.bias.map(PyTensor::from)))
}

/// What a Linear layer computes.
#[pyfunction]
#[pyo3(signature = (x, weight, bias=None))]
fn linear(
    py: Python<'_>,
    x: AnyTensor,
    weight: AnyTensor,
    bias: Option<AnyTensor>,
) -> PyResult<PyTensor> {
    let layer = Linear {
        weight: weight.0,
        bias: bias.map(|b| b.0),
    };
    PyTensor::build(py, || layer.forward(&x.0))
}

/// The table with which an Embedding starts.
#[pyfunction]
fn embedding_parameters(py: Python<'_>, count: Size, size: Size) -> PyResult<PyTensor> {
    compute(py, || Embedding::new(count.0, size.0)).map(|layer| layer.weight.into())
}

/// What an Embedding computes.
#[pyfunction]
fn embedding(py: Python<'_>, indices: AnyTensor, weight: AnyTensor) -> PyResult<PyTensor> {
    let layer = Embedding { weight: weight.0 };
    PyTensor::build(py, || layer.forward(&indices.0))
}

/// A weight and a bias, if there is one.
type Parameters = (PyTensor, Option<PyTensor>);

/// The weight and the bias with which a convolution starts; the kernel says along how many axes.
#[pyfunction]
fn conv_parameters(
    py: Python<'_>,
    inputs: Size,
    outputs: Size,
    kernel: Wholes,
    groups: Size,
    transposed: bool,
    bias: bool,
) -> PyResult<Parameters> {
    let kernel: Option<Vec<usize>> = kernel.0.iter().map(|&k| usize::try_from(k).ok()).collect();
    let kernel = kernel.ok_or_else(|| {
        let message = "the extents of a kernel are not negative";
        located::<PyValueError>(py, message)
    })?;
    let conv = Conv::new().groups(groups.0);
    macro_rules! started {
        ($class:ident, $kernel:expr) => {{
            let layer = match bias {
                true => $class::new(inputs.0, outputs.0, $kernel, conv),
                false => $class::without_bias(inputs.0, outputs.0, $kernel, conv),
            }?;
            Ok((layer.weight, layer.bias))
        }};
    }
    let started = compute(py, || match (kernel[..].len(), transposed) {
        (1, false) => started!(Conv1d, [kernel[0]]),
        (1, true) => started!(ConvTranspose1d, [kernel[0]]),
        (2, false) => started!(Conv2d, [kernel[0], kernel[1]]),
        (2, true) => started!(ConvTranspose2d, [kernel[0], kernel[1]]),
        (_, false) => started!(Conv3d, [kernel[0], kernel[1], kernel[2]]),
        (_, true) => started!(ConvTranspose3d, [kernel[0], kernel[1], kernel[2]]),
    });
    let (weight, bias): (Tensor, Option<Tensor>) = started?;
    Ok((weight.into(), bias.map(PyTensor::from)))
}

/// The weights and biases with which the four projections of attention start.
#[pyfunction]
fn attention_parameters(
    py: Python<'_>,
    size: Size,
    heads: Size,
    kv_heads: Size,
    bias: bool,
) -> PyResult<Vec<Parameters>> {
    let layer = compute(py, || {
        MultiheadAttention::grouped(size.0, heads.0, kv_heads.0, bias)
    })?;
    let parts = [layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj].into_iter();
    Ok(parts
        .map(|part| (part.weight.into(), part.bias.map(PyTensor::from)))
        .collect())
}

/// What attention with several heads computes, and the weights of each head.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn multihead_attention(
    py: Python<'_>,
    inputs: [AnyTensor; 3],
    weights: [AnyTensor; 4],
    biases: [Option<AnyTensor>; 4],
    heads: Size,
    kv_heads: Size,
    mask: Option<AnyTensor>,
    is_causal: bool,
    dropout: Real,
) -> PyResult<(PyTensor, PyTensor)> {
    let [q, k, v, o] = weights;
    let [bq, bk, bv, bo] = biases;
    let linear = |weight: AnyTensor, bias: Option<AnyTensor>| Linear {
        weight: weight.0,
        bias: bias.map(|b| b.0),
    };
    let layer = MultiheadAttention {
        q_proj: linear(q, bq),
        k_proj: linear(k, bk),
        v_proj: linear(v, bv),
        out_proj: linear(o, bo),
        heads: heads.0,
        kv_heads: kv_heads.0,
        dropout: dropout.0,
    };
    let mut how = Attention::new().causal(is_causal);
    if let Some(mask) = mask {
        how = how.mask(&mask.0);
    }
    let [q, k, v] = inputs;
    let (y, weights) = build(py, || layer.forward_with_weights(&q.0, &k.0, &v.0, &how))?;
    Ok((y.into(), weights.into()))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(linear_parameters, m)?)?;
    m.add_function(wrap_pyfunction!(linear, m)?)?;
    m.add_function(wrap_pyfunction!(embedding_parameters, m)?)?;
    m.add_function(wrap_pyfunction!(embedding, m)?)?;
    m.add_function(wrap_pyfunction!(conv_parameters, m)?)?;
    m.add_function(wrap_pyfunction!(attention_parameters, m)?)?;
    m.add_function(wrap_pyfunction!(multihead_attention, m)?)
}
