//! Random integers, choices and permutations, and first values of weights.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use uopc::tensor::{Fan, Nonlinearity, Operand};
use uopc::{DType, Tensor};

use super::create::{create, dtype_or};
use super::matrices::count;
use super::{PyTensor, located, type_error};
use crate::convert::{AnyOperand, Real, Whole, Wholes};
use crate::dtype::AnyDType;
use crate::run::build;

/// What follows a layer, by its name.
fn nonlinearity(py: Python<'_>, name: &str, slope: Option<f64>) -> PyResult<Nonlinearity> {
    let is_convolution = name.starts_with("conv") && name.ends_with('d');
    match name {
        "linear" | "sigmoid" => Ok(Nonlinearity::Linear),
        _ if is_convolution => Ok(Nonlinearity::Linear),
        "tanh" => Ok(Nonlinearity::Tanh),
        "relu" => Ok(Nonlinearity::Relu),
        "leaky_relu" => Ok(Nonlinearity::LeakyRelu(slope.unwrap_or(0.01))),
        "selu" => Ok(Nonlinearity::Selu),
        other => {
            let message = format!(
                "{other:?} has no gain; \"linear\", \"sigmoid\", \"tanh\", \"relu\", \"leaky_relu\" and \
                 \"selu\" have"
            );
            Err(located::<PyValueError>(py, message))
        }
    }
}

fn fan(py: Python<'_>, mode: &str) -> PyResult<Fan> {
    match mode {
        "fan_in" => Ok(Fan::In),
        "fan_out" => Ok(Fan::Out),
        other => {
            let message = format!("mode is \"fan_in\" or \"fan_out\", not {other:?}");
            Err(located::<PyValueError>(py, message))
        }
    }
}

/// A whole number, of any size that integers of 64 bits have.
fn integer(py: Python<'_>, number: AnyOperand) -> PyResult<i128> {
    match number.0 {
        Operand::Int(value) => Ok(value),
        _ => {
            let message = "bounds of integers are integers".into();
            Err(type_error(py, "randint", message))
        }
    }
}

#[pymethods]
impl PyTensor {
    /// Random integers from ``low`` up to but without ``high``, all equally likely; with one bound they
    /// begin with 0. i32 unless ``dtype`` says otherwise.
    ///
    /// Raises ValueError if there are none or the size is no shape, TypeError if they do not fit the
    /// dtype.
    ///
    /// >>> Tensor.manual_seed(0)
    /// >>> dice = Tensor.randint(1, 7, (100,))
    /// >>> dice.min().item(), dice.max().item()
    /// (1, 6)
    #[staticmethod]
    #[pyo3(
        signature = (low, high=None, size=Wholes(Vec::new()), *, dtype=None),
        text_signature = "(low, high=None, size=(), *, dtype=None)"
    )]
    fn randint(
        py: Python<'_>,
        low: AnyOperand,
        high: Option<AnyOperand>,
        size: Wholes,
        dtype: Option<AnyDType>,
    ) -> PyResult<PyTensor> {
        let low = integer(py, low)?;
        let (low, high) = match high {
            Some(high) => (low, integer(py, high)?),
            None => (0, low),
        };
        let dtype = dtype_or(dtype, DType::I32);
        PyTensor::build(py, || Tensor::randint_as(dtype, low, high, size))
    }

    /// Random numbers of the normal distribution with a mean and a standard deviation, which may be
    /// tensors; gradients flow to them.
    ///
    /// Without ``size`` the shape is that to which the two broadcast. f32, or the dtype of the tensors,
    /// unless ``dtype`` says otherwise.
    ///
    /// Raises ValueError if the size is no shape or they do not broadcast to it.
    ///
    /// >>> Tensor.normal(5.0, 0.0, (2,))
    /// Tensor([5., 5.], shape=(2,), dtype=f32)
    #[staticmethod]
    #[pyo3(
        signature = (mean=AnyOperand(Operand::Float(0.0)), std=AnyOperand(Operand::Float(1.0)), size=None, *, dtype=None),
        text_signature = "(mean=0.0, std=1.0, size=None, *, dtype=None)"
    )]
    fn normal(
        py: Python<'_>,
        mean: AnyOperand,
        std: AnyOperand,
        size: Option<Wholes>,
        dtype: Option<AnyDType>,
    ) -> PyResult<PyTensor> {
        PyTensor::build(py, || {
            let size = match size {
                Some(size) => size,
                None => {
                    let parts = [&mean.0, &std.0].into_iter().filter_map(|part| match part {
                        Operand::Tensor(t) => Some(t.clone()),
                        _ => None,
                    });
                    let parts = Tensor::broadcast_tensors(&parts.collect::<Vec<Tensor>>())?;
                    let dims = parts.first().map_or(Vec::new(), |t| t.shape().to_vec());
                    Wholes(dims.into_iter().map(|d| d as i64).collect())
                }
            };
            let numbers = Tensor::normal(mean.0, std.0, size)?;
            dtype.map_or(Ok(numbers.clone()), |dtype| numbers.cast(dtype.0))
        })
    }

    /// 1 with the probability that this tensor holds in that place, else 0, in its dtype.
    ///
    /// What is no probability counts as the nearest one, NaN as 0. No gradient flows to them.
    ///
    /// Raises TypeError if the probabilities are no floats.
    ///
    /// >>> Tensor([0.0, 1.0]).bernoulli()
    /// Tensor([0., 1.], shape=(2,), dtype=f32)
    fn bernoulli(&self, py: Python<'_>) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.bernoulli())
    }

    /// Numbers of classes drawn by their weights, the last axis: so many for each row, as i64.
    ///
    /// The weights need not add up to 1. Without ``replacement`` no class comes twice. A class of weight
    /// 0 is not drawn as long as there is another one; negative weights and NaN count as 0.
    ///
    /// Raises TypeError if the weights are no floats, ValueError if they have not one or two axes, or for
    /// more draws than classes without replacement.
    ///
    /// >>> Tensor([0.0, 3.0, 0.0]).multinomial(2, replacement=True)
    /// Tensor([1, 1], shape=(2,), dtype=i64)
    #[pyo3(signature = (num_samples, replacement=false))]
    fn multinomial(
        &self,
        py: Python<'_>,
        num_samples: Whole,
        replacement: bool,
    ) -> PyResult<PyTensor> {
        let n = count(py, "multinomial", &num_samples)?;
        PyTensor::build(py, || self.tensor.multinomial(n, replacement))
    }

    /// The numbers 0 to n - 1 in random order, i32 unless ``dtype`` says otherwise (i64 if they do not
    /// fit).
    ///
    /// Raises ValueError if ``n`` is negative.
    ///
    /// >>> sorted(Tensor.randperm(4).tolist())
    /// [0, 1, 2, 3]
    #[staticmethod]
    #[pyo3(signature = (n, *, dtype=None))]
    fn randperm(py: Python<'_>, n: Whole, dtype: Option<AnyDType>) -> PyResult<PyTensor> {
        let n = count(py, "randperm", &n)?;
        PyTensor::build(py, || {
            let order = Tensor::randperm(n)?;
            dtype.map_or(Ok(order.clone()), |dtype| order.cast(dtype.0))
        })
    }

    /// Weights of shape (outputs, inputs, window...), uniform with standard deviation
    /// gain * sqrt(2 / (fan_in + fan_out)); after Glorot and Bengio.
    ///
    /// Raises ValueError if the shape has fewer than two axes.
    ///
    /// >>> Tensor.xavier_uniform(4, 3).shape
    /// (4, 3)
    #[staticmethod]
    #[pyo3(
        signature = (*shape, gain=Real(1.0), dtype=None, requires_grad=false),
        text_signature = "(*shape, gain=1.0, dtype=None, requires_grad=False)"
    )]
    fn xavier_uniform(
        py: Python<'_>,
        shape: &Bound<'_, PyTuple>,
        gain: Real,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let (shape, dtype) = (Wholes::of_args(shape)?, dtype_or(dtype, DType::F32));
        create(py, requires_grad, || {
            Tensor::xavier_uniform(shape, gain.0)?.cast(dtype)
        })
    }

    /// Weights of shape (outputs, inputs, window...), normal with standard deviation
    /// gain * sqrt(2 / (fan_in + fan_out)); after Glorot and Bengio.
    ///
    /// Raises ValueError if the shape has fewer than two axes.
    ///
    /// >>> Tensor.xavier_normal(4, 3).shape
    /// (4, 3)
    #[staticmethod]
    #[pyo3(
        signature = (*shape, gain=Real(1.0), dtype=None, requires_grad=false),
        text_signature = "(*shape, gain=1.0, dtype=None, requires_grad=False)"
    )]
    fn xavier_normal(
        py: Python<'_>,
        shape: &Bound<'_, PyTuple>,
        gain: Real,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let (shape, dtype) = (Wholes::of_args(shape)?, dtype_or(dtype, DType::F32));
        create(py, requires_grad, || {
            Tensor::xavier_normal(shape, gain.0)?.cast(dtype)
        })
    }

    /// Weights of shape (outputs, inputs, window...), uniform with standard deviation gain / sqrt(fan);
    /// after He and others.
    ///
    /// The gain is that of ``nonlinearity``, for "leaky_relu" with the slope ``a`` below 0; ``mode`` says
    /// whose variance is kept, of values ("fan_in") or of gradients ("fan_out"). A weight that is stored
    /// as (inputs, outputs), as that of nn.Linear, has its inputs in "fan_out".
    ///
    /// Raises ValueError if the shape has fewer than two axes, or for a name that is none of these.
    ///
    /// >>> Tensor.kaiming_uniform(4, 3, nonlinearity="relu").shape
    /// (4, 3)
    #[staticmethod]
    #[pyo3(
        signature = (*shape, a=Real(0.0), mode="fan_in", nonlinearity="leaky_relu", dtype=None, requires_grad=false),
        text_signature = "(*shape, a=0.0, mode='fan_in', nonlinearity='leaky_relu', dtype=None, requires_grad=False)"
    )]
    fn kaiming_uniform(
        py: Python<'_>,
        shape: &Bound<'_, PyTuple>,
        a: Real,
        mode: &str,
        nonlinearity: &str,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let (shape, dtype) = (Wholes::of_args(shape)?, dtype_or(dtype, DType::F32));
        let after = self::nonlinearity(py, nonlinearity, Some(a.0))?;
        let fan = fan(py, mode)?;
        create(py, requires_grad, || {
            Tensor::kaiming_uniform(shape, fan, after)?.cast(dtype)
        })
    }

    /// Weights of shape (outputs, inputs, window...), normal with standard deviation gain / sqrt(fan);
    /// see ``kaiming_uniform``.
    ///
    /// Raises ValueError if the shape has fewer than two axes, or for a name that is none.
    ///
    /// >>> Tensor.kaiming_normal(4, 3, mode="fan_out").shape
    /// (4, 3)
    #[staticmethod]
    #[pyo3(
        signature = (*shape, a=Real(0.0), mode="fan_in", nonlinearity="leaky_relu", dtype=None, requires_grad=false),
        text_signature = "(*shape, a=0.0, mode='fan_in', nonlinearity='leaky_relu', dtype=None, requires_grad=False)"
    )]
    fn kaiming_normal(
        py: Python<'_>,
        shape: &Bound<'_, PyTuple>,
        a: Real,
        mode: &str,
        nonlinearity: &str,
        dtype: Option<AnyDType>,
        requires_grad: bool,
    ) -> PyResult<PyTensor> {
        let (shape, dtype) = (Wholes::of_args(shape)?, dtype_or(dtype, DType::F32));
        let after = self::nonlinearity(py, nonlinearity, Some(a.0))?;
        let fan = fan(py, mode)?;
        create(py, requires_grad, || {
            Tensor::kaiming_normal(shape, fan, after)?.cast(dtype)
        })
    }

    /// What the standard deviation of weights is multiplied by, for what follows a layer: "linear",
    /// "sigmoid", "tanh", "relu", "leaky_relu" (with the slope ``param``, 0.01 if left out) or "selu".
    ///
    /// Raises ValueError for another name.
    ///
    /// >>> Tensor.calculate_gain("tanh")
    /// 1.6666666666666667
    #[staticmethod]
    #[pyo3(signature = (nonlinearity, param=None))]
    fn calculate_gain(py: Python<'_>, nonlinearity: &str, param: Option<f64>) -> PyResult<f64> {
        let after = self::nonlinearity(py, nonlinearity, param)?;
        build(py, || Ok(after.gain()))
    }
}
