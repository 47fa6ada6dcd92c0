"""Derivatives and batches as graphs: reverse mode, forward mode and maps of nodes."""

import warnings
from collections.abc import Sequence
from typing import List, NamedTuple, Tuple

from ._uopc import gradient as _gradient
from ._uopc import graph_jvp, graph_vmap
from .uop import UOp

__all__ = ["Batched", "GradientWarning", "gradient", "jvp", "vmap"]


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


def jvp(root: UOp, targets: Sequence[UOp], tangents: Sequence[UOp]) -> UOp:
    """The tangent of the root when the targets have these tangents, as a node of its shape.

    Nothing is computed. A target may be any node; zeros if the root does not depend on one.

    Raises RuntimeError when the root or a target is no float and for graphs with loops or effects,
    ValueError and TypeError when a tangent is not of its target's shape and dtype,
    NotImplementedError when an op on the way has no rule.

    >>> from uopc.uop import UOp
    >>> from uopc.gradient import jvp
    >>> x, v = UOp.buffer(3, slot=0), UOp.buffer(3, slot=1)
    >>> jvp(x.sin(), [x], [v]) == v * x.cos()
    True
    """
    (tangent,) = graph_jvp([root], list(targets), list(tangents))
    return tangent


class Batched(NamedTuple):
    """A node over a batch, as ``vmap`` gives it."""

    node: UOp
    """The node, with the batch as its first axis if there is one."""
    batched: bool
    """Whether there is: if not, the node is the same for all."""


def vmap(roots: Sequence[UOp], inputs: Sequence[Tuple[UOp, UOp]]) -> List[Batched]:
    """The roots over a batch: each input is a node, and what takes its place.

    That has one more axis in front, of the same extent for all inputs. What does not depend on an
    input stays as it is. Nothing is computed, and no op turns into a loop.

    Raises ValueError and TypeError when a replacement does not fit its node or a node has two,
    RuntimeError for graphs with loops or effects, NotImplementedError when an op has no rule.

    >>> from uopc.uop import UOp
    >>> from uopc.gradient import vmap
    >>> x, y = UOp.buffer(3, slot=0), UOp.buffer(3, slot=1)
    >>> xs = UOp.buffer(15, slot=2).reshape(5, 3)
    >>> product, same = vmap([x * y, y], [(x, xs)])
    >>> product.node.shape, product.batched, same.batched
    ((5, 3), True, False)
    """
    nodes, batches = [node for node, _ in inputs], [batch for _, batch in inputs]
    return [Batched(*result) for result in graph_vmap(list(roots), nodes, batches)]
