"""Less memory for more time: limits for what a computation takes, and functions that keep nothing.

Gradients read values that were computed on the way to the result. Where memory is short these can be
computed a second time instead of being kept, which changes no bit of any result. ``memory_limit``
lets the library choose which; ``checkpoint`` says so for the interior of a function.

>>> w = Tensor([[0.5, -0.25], [1.0, 0.75]])
>>> def step(w):
...     return (w.exp() @ w).sin().sum()
>>> with uopc.memory_limit("64M"):
...     within = uopc.grad(step)(w).tolist()
>>> within == uopc.grad(step)(w).tolist() == uopc.grad(uopc.checkpoint(step))(w).tolist()
True
"""

import functools
from typing import Any, Callable, List, Union

from . import _uopc
from .tensor import Tensor
from .tree import tree_flatten, tree_unflatten

__all__ = ["checkpoint", "memory_limit"]


class memory_limit:
    """Inside of ``with memory_limit(bytes):`` each computation of this thread keeps within a limit.

    ``bytes`` is a number of bytes, or a text such as ``"512M"`` (K, M and G are powers of 1024).
    It bounds what one computation takes at once beside the tensors that it reads: its results, the
    memory that kernels share, and what threads work in. Where that is short, interior values are
    computed again instead of kept; which ones is decided for the computation as a whole, from what
    computing them costs. Results are the same, to the last bit. Nothing is kept for gradients
    after a computation: a loss whose value is asked for before its gradients is computed twice.

    A limit inside of another one holds until it ends. Without any, the environment variable
    ``UOPC_MEMORY_LIMIT`` holds. When a limit can't be kept, asking for values raises MemoryError,
    which names the least that works.

    Raises ValueError for a text that is no size, TypeError for what is neither number nor text.

    >>> x = Tensor([1.0, 2.0])
    >>> with uopc.memory_limit(1 << 20):
    ...     (x * x).tolist()
    [1.0, 4.0]
    """

    def __init__(self, bytes: Union[int, str]) -> None:
        self._bytes = _uopc.memory_limit_bytes(bytes)
        self._entered: List[int] = []

    def __enter__(self) -> None:
        self._entered.append(_uopc.enter_memory_limit(self._bytes))

    def __exit__(self, *exception: Any) -> None:
        _uopc.leave_memory_limit(self._entered.pop())


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function that computes the same as ``f``, but keeps nothing of it for gradients.

    When gradients need interior values, they are computed again from the arguments, which are kept:
    at most one more evaluation of ``f`` for each gradient, and not a bit of any result changes.
    Checkpoints nest, and the function is differentiated and mapped like any other.

    Arguments and results are trees of tensors, see ``uopc.tree``; what else is in them is passed
    on. What ``f`` computes from tensors that it did not get as arguments is kept as usual; modules
    are arguments, too. ``memory_limit`` finds by itself what to compute again.

    The function that is returned raises whatever ``f`` raises.

    >>> layer = uopc.checkpoint(lambda w, x: (x @ w).exp().sin())
    >>> w, x = Tensor([[1.0, 0.5], [0.25, -1.0]]), Tensor([[1.0, 2.0]])
    >>> uopc.grad(lambda w: layer(w, layer(w, x)).sum())(w).shape
    (2, 2)
    """

    @functools.wraps(f)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _marked((args, kwargs), _uopc.checkpoint_arguments)
        return _marked(f(*args, **kwargs), _uopc.checkpoint_results)

    return checkpointed


def _marked(tree: Any, mark: Callable[[List[Tensor]], List[Tensor]]) -> Any:
    """The tree with marks on its tensors."""
    leaves, structure = tree_flatten(tree)
    tensors = iter(mark([leaf for leaf in leaves if isinstance(leaf, Tensor)]))
    marked = [next(tensors) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return tree_unflatten(structure, marked)
