//! Losses.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uopc::Tensor;
use uopc::nn::{self, CrossEntropy, Reduction};

use crate::convert::{AnyTensor, Real, Whole};
use crate::tensor::{PyTensor, located};

/// "none", "mean" or "sum", and where it is said so "batchmean".
struct AnyReduction(Reduction);

impl<'py> FromPyObject<'_, 'py> for AnyReduction {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<AnyReduction> {
        match ob.extract::<String>().as_deref() {
            Ok("none") => Ok(AnyReduction(Reduction::None)),
            Ok("mean") => Ok(AnyReduction(Reduction::Mean)),
            Ok("sum") => Ok(AnyReduction(Reduction::Sum)),
            Ok("batchmean") => Ok(AnyReduction(Reduction::BatchMean)),
            _ => {
                let message = format!(
                    "a reduction is \"none\", \"mean\" or \"sum\", not {}",
                    crate::convert::shown(&ob)
                );
                Err(located::<PyValueError>(ob.py(), message))
            }
        }
    }
}

const MEAN: AnyReduction = AnyReduction(Reduction::Mean);

fn inner(t: Option<AnyTensor>) -> Option<Tensor> {
    t.map(|t| t.0)
}

/// Cross-entropy of logits against labels or probabilities: minus the logarithm of the label's
/// softmax, by default the mean.
///
/// Logits have shape (..., classes); integer labels have that shape without the classes, and
/// probabilities (floats) have all of it. ``weight`` says how much each class counts, a label that
/// is ``ignore_index`` does not count, and ``label_smoothing`` is the share of the target that is
/// spread evenly over all classes. A mean is divided by the weights of the labels that count. Where
/// classes are not the last axis, ``dim`` says which they are (PyTorch's is 1).
///
/// A label that is no class and is not ignored makes the loss NaN. Raises ValueError for shapes that
/// do not fit.
///
/// >>> logits = Tensor([[0.0, 0.0]])
/// >>> round(uopc.nn.cross_entropy(logits, Tensor([1])).item(), 4)
/// 0.6931
/// >>> uopc.nn.cross_entropy(Tensor([[2.0, 1.0], [0.0, 0.0]]), [0, -100]).item() < 0.32
/// True
#[pyfunction]
#[pyo3(
    signature = (
        logits,
        target,
        weight=None,
        ignore_index=Whole(-100),
        reduction=MEAN,
        label_smoothing=Real(0.0),
        dim=Whole(-1),
    ),
    text_signature = "(logits, target, weight=None, ignore_index=-100, reduction='mean', label_smoothing=0.0, dim=-1)"
)]
#[allow(clippy::too_many_arguments)]
fn cross_entropy(
    py: Python<'_>,
    logits: AnyTensor,
    target: AnyTensor,
    weight: Option<AnyTensor>,
    ignore_index: Whole,
    reduction: AnyReduction,
    label_smoothing: Real,
    dim: Whole,
) -> PyResult<PyTensor> {
    let how = classes(weight, ignore_index, reduction, dim).label_smoothing(label_smoothing.0);
    PyTensor::build(py, || how.loss(&logits.0, &target.0))
}

fn classes(
    weight: Option<AnyTensor>,
    ignore_index: Whole,
    reduction: AnyReduction,
    dim: Whole,
) -> CrossEntropy {
    let how = CrossEntropy::new().ignore_index(ignore_index.0);
    let how = how.reduction(reduction.0).axis(dim.0);
    match weight {
        Some(weight) => how.weight(&weight.0),
        None => how,
    }
}

/// Minus the entry of each label among logarithms of probabilities (..., classes), by default the
/// mean; arguments are those of ``cross_entropy``.
///
/// Raises ValueError for shapes that do not fit, TypeError for labels that are no integers.
///
/// >>> uopc.nn.nll_loss(Tensor([[-1.0, -2.0], [-3.0, -4.0]]), [0, 1]).item()
/// 2.5
#[pyfunction]
#[pyo3(
    signature = (
        input,
        target,
        weight=None,
        ignore_index=Whole(-100),
        reduction=MEAN,
        dim=Whole(-1),
    ),
    text_signature = "(input, target, weight=None, ignore_index=-100, reduction='mean', dim=-1)"
)]
fn nll_loss(
    py: Python<'_>,
    input: AnyTensor,
    target: AnyTensor,
    weight: Option<AnyTensor>,
    ignore_index: Whole,
    reduction: AnyReduction,
    dim: Whole,
) -> PyResult<PyTensor> {
    let how = classes(weight, ignore_index, reduction, dim);
    PyTensor::build(py, || nn::nll_loss(&input.0, &target.0, &how))
}

/// The squared differences, by default their mean. The shapes broadcast.
///
/// >>> uopc.nn.mse(Tensor([1.0, 2.0]), Tensor([1.0, 4.0])).item()
/// 2.0
#[pyfunction]
#[pyo3(
    signature = (prediction, target, reduction=MEAN),
    text_signature = "(prediction, target, reduction='mean')"
)]
fn mse(
    py: Python<'_>,
    prediction: AnyTensor,
    target: AnyTensor,
    reduction: AnyReduction,
) -> PyResult<PyTensor> {
    PyTensor::build(py, || nn::mse_loss(&prediction.0, &target.0, reduction.0))
}

/// The absolute differences, by default their mean. The shapes broadcast.
///
/// >>> uopc.nn.l1_loss(Tensor([1.0, 2.0]), Tensor([1.0, 4.0])).item()
/// 1.0
#[pyfunction]
#[pyo3(
    signature = (input, target, reduction=MEAN),
    text_signature = "(input, target, reduction='mean')"
)]
fn l1_loss(
    py: Python<'_>,
    input: AnyTensor,
    target: AnyTensor,
    reduction: AnyReduction,
) -> PyResult<PyTensor> {
    PyTensor::build(py, || nn::l1_loss(&input.0, &target.0, reduction.0))
}

/// Half the square of each difference d up to ``delta``, beyond that delta (|d| - delta / 2); by
/// default the mean.
///
/// Raises ValueError if delta is not positive.
///
/// >>> uopc.nn.huber_loss(Tensor([1.0, 3.0]), Tensor([0.0, 0.0]), reduction="none").tolist()
/// [0.5, 2.5]
#[pyfunction]
#[pyo3(
    signature = (input, target, reduction=MEAN, delta=Real(1.0)),
    text_signature = "(input, target, reduction='mean', delta=1.0)"
)]
fn huber_loss(
    py: Python<'_>,
    input: AnyTensor,
    target: AnyTensor,
    reduction: AnyReduction,
    delta: Real,
) -> PyResult<PyTensor> {
    PyTensor::build(py, || {
        nn::huber_loss(&input.0, &target.0, delta.0, reduction.0)
    })
}

/// d * d / (2 beta) for each difference d below ``beta``, beyond that |d| - beta / 2; by default
/// the mean.
///
/// Raises ValueError if beta is negative.
///
/// >>> uopc.nn.smooth_l1_loss(Tensor([1.0, 3.0]), Tensor([0.0, 0.0]), reduction="none").tolist()
/// [0.5, 2.5]
#[pyfunction]
#[pyo3(
    signature = (input, target, reduction=MEAN, beta=Real(1.0)),
    text_signature = "(input, target, reduction='mean', beta=1.0)"
)]
fn smooth_l1_loss(
    py: Python<'_>,
    input: AnyTensor,
    target: AnyTensor,
    reduction: AnyReduction,
    beta: Real,
) -> PyResult<PyTensor> {
    PyTensor::build(py, || {
        nn::smooth_l1_loss(&input.0, &target.0, beta.0, reduction.0)
    })
}

/// Cross-entropy of probabilities p against targets t from 0 to 1:
/// -(t log p + (1 - t) log(1 - p)) times the weight, by default the mean. Logarithms are held above
/// -100.
///
/// >>> uopc.nn.binary_cross_entropy(Tensor([1.0, 0.0]), Tensor([1.0, 1.0])).item()
/// 50.0
#[pyfunction]
#[pyo3(
    signature = (input, target, weight=None, reduction=MEAN),
    text_signature = "(input, target, weight=None, reduction='mean')"
)]
fn binary_cross_entropy(
    py: Python<'_>,
    input: AnyTensor,
    target: AnyTensor,
    weight: Option<AnyTensor>,
    reduction: AnyReduction,
) -> PyResult<PyTensor> {
    let weight = inner(weight);
    PyTensor::build(py, || {
        nn::binary_cross_entropy(&input.0, &target.0, weight.as_ref(), reduction.0)
    })
}

/// ``binary_cross_entropy`` of sigmoid(input), which never overflows. ``pos_weight`` multiplies the
/// part of positive targets.
///
/// >>> uopc.nn.binary_cross_entropy_with_logits(Tensor([-200.0]), Tensor([1.0])).item()
/// 200.0
#[pyfunction]
#[pyo3(
    signature = (input, target, weight=None, reduction=MEAN, pos_weight=None),
    text_signature = "(input, target, weight=None, reduction='mean', pos_weight=None)"
)]
fn binary_cross_entropy_with_logits(
    py: Python<'_>,
    input: AnyTensor,
    target: AnyTensor,
    weight: Option<AnyTensor>,
    reduction: AnyReduction,
    pos_weight: Option<AnyTensor>,
) -> PyResult<PyTensor> {
    let (weight, pos_weight) = (inner(weight), inner(pos_weight));
    let (weight, pos_weight) = (weight.as_ref(), pos_weight.as_ref());
    PyTensor::build(py, || {
        let (input, target) = (&input.0, &target.0);
        nn::binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction.0)
    })
}

/// The divergence of probabilities t from those whose logarithms are the input: t (log t - input), by
/// default the mean over all elements; "batchmean" divides by the extent of the first axis. With
/// ``log_target`` targets are logarithms, too.
///
/// >>> p = Tensor([0.5, 0.5])
/// >>> uopc.nn.kl_div(p.log(), p, reduction="sum").item()
/// 0.0
#[pyfunction]
#[pyo3(
    signature = (input, target, reduction=MEAN, log_target=false),
    text_signature = "(input, target, reduction='mean', log_target=False)"
)]
fn kl_div(
    py: Python<'_>,
    input: AnyTensor,
    target: AnyTensor,
    reduction: AnyReduction,
    log_target: bool,
) -> PyResult<PyTensor> {
    PyTensor::build(py, || {
        nn::kl_div(&input.0, &target.0, log_target, reduction.0)
    })
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(cross_entropy, m)?)?;
    m.add_function(wrap_pyfunction!(nll_loss, m)?)?;
    m.add_function(wrap_pyfunction!(mse, m)?)?;
    m.add_function(wrap_pyfunction!(l1_loss, m)?)?;
    m.add_function(wrap_pyfunction!(huber_loss, m)?)?;
    m.add_function(wrap_pyfunction!(smooth_l1_loss, m)?)?;
    m.add_function(wrap_pyfunction!(binary_cross_entropy, m)?)?;
    m.add_function(wrap_pyfunction!(binary_cross_entropy_with_logits, m)?)?;
    m.add_function(wrap_pyfunction!(kl_div, m)?)
}
