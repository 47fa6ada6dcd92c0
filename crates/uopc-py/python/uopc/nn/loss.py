"""Losses: scalars that say how far predictions are off."""

from .._uopc import cross_entropy, mse

mse_loss = mse

__all__ = ["cross_entropy", "mse", "mse_loss"]
