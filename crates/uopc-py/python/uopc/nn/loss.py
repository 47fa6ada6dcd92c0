"""Losses: numbers that say how far predictions are off."""

from .._uopc import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse,
    nll_loss,
    smooth_l1_loss,
)

mse_loss = mse

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
]
