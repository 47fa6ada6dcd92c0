//! Losses: scalars that say how far predictions are off.

use crate::error::Result;
use crate::tensor::{Site, Tensor};

/// The mean cross-entropy of logits against integer labels, see [`Tensor::cross_entropy`].
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
    prediction.sub(target)?.square()?.mean(..)
}
