//! Losses: numbers that say how far predictions are off, by default their mean.

use super::setting_error;
use crate::error::Result;
use crate::tensor::{Site, Tensor};

/// What becomes of the losses of single elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reduction {
    /// They stay as they are.
    None,
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// Their sum divided by the extent of the first axis.
    BatchMean,
}

impl Reduction {
    /// The losses reduced.
    ///
    /// # Errors
    /// When there is no batch to divide by.
    pub(super) fn of(self, losses: &Tensor) -> Result<Tensor> {
        match self {
            Reduction::None => Ok(losses.clone()),
            Reduction::Mean => losses.mean(..),
            Reduction::Sum => losses.sum(..),
            Reduction::BatchMean => match losses.shape().first() {
                Some(&n) => losses.sum(..)?.div(n as f64),
                None => Err(setting_error(
                    "reduction batchmean: a scalar has no batch; take the mean".into(),
                )),
            },
        }
    }
}

/// The mean cross-entropy of logits against integer labels, see [`Tensor::cross_entropy`];
/// [`CrossEntropy`](super::CrossEntropy) has weights, smoothing and more.
///
/// # Errors
/// When the shapes do not fit or the labels are not integers.
#[track_caller]
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let _site = Site::caller().enter();
    logits.cross_entropy(labels)
}

/// The mean of the squared differences.
///
/// # Errors
/// When the shapes do not broadcast.
#[track_caller]
pub fn mse(prediction: &Tensor, target: &Tensor) -> Result<Tensor> {
    let _site = Site::caller().enter();
    mse_loss(prediction, target, Reduction::Mean)
}

/// The squared differences: `(p - t)^2`.
///
/// # Errors
/// When the shapes do not broadcast.
#[track_caller]
pub fn mse_loss(prediction: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _site = Site::caller().enter();
    reduction.of(&prediction.sub(target)?.square()?)
}

/// The absolute differences: `|p - t|`.
///
/// ```
/// use uopc::{Tensor, nn::{l1_loss, Reduction}};
///
/// let (p, t) = (Tensor::from([1.0f32, 2.0]), Tensor::from([0.0f32, 4.0]));
/// assert_eq!(l1_loss(&p, &t, Reduction::Mean)?.item()?, 1.5);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// When the shapes do not broadcast.
#[track_caller]
pub fn l1_loss(prediction: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _site = Site::caller().enter();
    reduction.of(&prediction.sub(target)?.abs()?)
}

/// Half the square of a difference d up to `delta`, beyond that `delta * (|d| - delta / 2)`.
///
/// # Errors
/// When the shapes do not broadcast, or delta is not positive and finite.
#[track_caller]
pub fn huber_loss(
    prediction: &Tensor,
    target: &Tensor,
    delta: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let _site = Site::caller().enter();
    if !(delta.is_finite() && delta > 0.0) {
        let message = format!("huber_loss: delta is {delta}; a positive finite number is needed");
        return Err(setting_error(message));
    }
    let difference = prediction.sub(target)?;
    let size = difference.abs()?;
    let near = difference.square()?.mul(0.5)?;
    let far = size.sub(0.5 * delta)?.mul(delta)?;
    reduction.of(&size.le(delta)?.where_(&near, &far)?)
}

/// `d^2 / (2 beta)` for a difference d below `beta`, beyond that `|d| - beta / 2`; with beta 0 it
/// is [`l1_loss`].
///
/// # Errors
/// When the shapes do not broadcast, or beta is negative or not finite.
#[track_caller]
pub fn smooth_l1_loss(
    prediction: &Tensor,
    target: &Tensor,
    beta: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let _site = Site::caller().enter();
    if !(beta.is_finite() && beta >= 0.0) {
        let message =
            format!("smooth_l1_loss: beta is {beta}; a finite number that is at least 0 is needed");
        return Err(setting_error(message));
    }
    if beta == 0.0 {
        return l1_loss(prediction, target, reduction);
    }
    let difference = prediction.sub(target)?;
    let size = difference.abs()?;
    let near = difference.square()?.mul(0.5 / beta)?;
    let far = size.sub(0.5 * beta)?;
    reduction.of(&size.lt(beta)?.where_(&near, &far)?)
}

/// Cross-entropy of probabilities p against targets t in 0..1: `-(t log p + (1 - t) log(1 - p))`
/// times the weight, if there is one. Logarithms are held above -100, so that it is finite.
///
/// # Errors
/// When the shapes do not broadcast.
#[track_caller]
pub fn binary_cross_entropy(
    prediction: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: Reduction,
) -> Result<Tensor> {
    let _site = Site::caller().enter();
    let held = |log: Tensor| log.le(-100.0)?.where_(-100.0, &log);
    let yes = target.mul(&held(prediction.log()?)?)?;
    let against = prediction.neg()?.add(1.0)?;
    let no = target.neg()?.add(1.0)?.mul(&held(against.log()?)?)?;
    reduction.of(&weighted(yes.add(&no)?.neg()?, weight)?)
}

/// [`binary_cross_entropy`] of sigmoid(x), computed without its overflow:
/// `t softplus(-x) + (1 - t) softplus(x)`. `pos_weight` multiplies the first term.
///
/// # Errors
/// When the shapes do not broadcast.
#[track_caller]
pub fn binary_cross_entropy_with_logits(
    logits: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    pos_weight: Option<&Tensor>,
    reduction: Reduction,
) -> Result<Tensor> {
    let _site = Site::caller().enter();
    let yes = weighted(target.mul(&logits.neg()?.softplus()?)?, pos_weight)?;
    let no = target.neg()?.add(1.0)?.mul(&logits.softplus()?)?;
    reduction.of(&weighted(yes.add(&no)?, weight)?)
}

/// The divergence of Kullback and Leibler of probabilities t from those whose logarithms are given:
/// `t (log t - input)`, 0 where t is 0. With `log_target` the targets are logarithms, too.
///
/// # Errors
/// When the shapes do not broadcast.
#[track_caller]
pub fn kl_div(
    input: &Tensor,
    target: &Tensor,
    log_target: bool,
    reduction: Reduction,
) -> Result<Tensor> {
    let _site = Site::caller().enter();
    if log_target {
        return reduction.of(&target.exp()?.mul(&target.sub(input)?)?);
    }
    let own = target.gt(0.0)?.where_(target.mul(&target.log()?)?, 0.0)?;
    reduction.of(&own.sub(&target.mul(input)?)?)
}

fn weighted(losses: Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
    match weight {
        Some(weight) => losses.mul(weight),
        None => Ok(losses),
    }
}
