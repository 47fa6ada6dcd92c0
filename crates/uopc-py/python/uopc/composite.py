"""Operations on nodes that are made of other operations."""

from ._uopc import cat, flip, pad, sum_to, zeros_like

__all__ = ["cat", "flip", "pad", "sum_to", "zeros_like"]
