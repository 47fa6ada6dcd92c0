"""Optimisers: they compute new parameters from gradients, all as one plan."""

from .._uopc import EMA, SGD, Adam, AdamW, Muon, RMSprop, clip_grad_norm_, clip_grad_value_

__all__ = [
    "Adam",
    "AdamW",
    "EMA",
    "Muon",
    "RMSprop",
    "SGD",
    "clip_grad_norm_",
    "clip_grad_value_",
]
