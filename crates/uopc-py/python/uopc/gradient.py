"""Gradients as graphs: reverse-mode differentiation of nodes."""

import warnings
from collections.abc import Sequence
from typing import List

from ._uopc import gradient as _gradient
from .uop import UOp

__all__ = ["GradientWarning", "gradient"]


class GradientWarning(UserWarning):
    """A target that the root mentions got zeros, because every path between them is cut."""


def gradient(root: UOp, targets: Sequence[UOp], strict: bool = False) -> List[UOp]:
    """The derivatives of the sum of root's elements with respect to each target, as nodes.

    Nothing is computed: the result is a graph over the forward nodes, and can be differentiated
    again. A target may be any node. One that the root does not mention gets zeros of its shape; one
    whose every path to the root is cut (by a detach, a comparison, a cast to integers) does, too,
    with a GradientWarning that names the op, or a RuntimeError if ``strict``.

    Raises RuntimeError when the root or a target is no float and for graphs with loops or effects,
    NotImplementedError when an op on the way has no rule.

    >>> from uopc.uop import Ops, UOp
    >>> from uopc.gradient import gradient
    >>> x, y = UOp.buffer(3, slot=0), UOp.buffer(3, slot=1)
    >>> (dx,) = gradient((x * y + x).reduce(Ops.ADD, 1), [x])
    >>> print(dx.to_uir(), end="")
    %0 = reshape 1.0, (1,)
    %1 = expand %0, (3,)
    %2 = buffer 3 : dtype=f32 slot=1
    %3 = mul %1, %2
    %4 = add %1, %3
    """
    gradients, cuts = _gradient(root, list(targets), strict)
    for text in cuts:
        warnings.warn(text, GradientWarning, stacklevel=2)
    return gradients
