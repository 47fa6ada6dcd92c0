"""Optimisers: they compute new parameters from gradients, all as one plan."""

from .._uopc import SGD, AdamW

__all__ = ["AdamW", "SGD"]
