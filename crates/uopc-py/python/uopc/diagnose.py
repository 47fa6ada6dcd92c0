"""Why a gradient is zero, missing or NaN.

``explain_gradient`` lists the paths by which a tensor reaches a loss, or where they are cut;
``strict_gradients`` makes a cut an error; ``find_nan`` names the op from which a NaN comes.

>>> w = Tensor([4.0, 0.0], requires_grad=True)
>>> loss = w.sqrt().sum().backward()
>>> found = uopc.find_nan(loss, w)
>>> found.what, found.op, found.index, found.site.split(", ")[1]
('infinity', 'div', (1,), 'vjp of sqrt')
"""

import functools
from typing import Any, Callable, Optional

from . import _uopc
from ._uopc import Explanation, Finding
from .tensor import Tensor
from .tree import tree_leaves

__all__ = ["Explanation", "Finding", "explain_gradient", "find_nan", "strict_gradients"]


def explain_gradient(loss: Tensor, target: Tensor) -> Explanation:
    """Explains the gradient of ``loss`` with respect to ``target``.

    The result prints the shortest paths by which the target reaches the loss, op by op with the
    lines of the program, or each place where they are cut (by a detach, a comparison, a cast to
    integers, a position, a rule of one's own, an update since), with the line and the remedy.
    Nothing is computed. It is true if a derivative flows from the target to the loss.

    Raises RuntimeError when one of the two is no float, TypeError when it is no tensor.

    >>> w = Tensor([1.0, 2.0], requires_grad=True)
    >>> print(uopc.explain_gradient((w.detach() * 2).sum(), w))
    the tensor, ... gets no gradient from the loss, reduce ADD f32 () (at ...): every path is cut
    it is cut here:
       - stage detach of buffer f32 (2,): it is detached; leave out the detach (at ...)
    """
    for name, given in (("loss", loss), ("target", target)):
        if not isinstance(given, Tensor):
            raise TypeError(f"explain_gradient: the {name} is a tensor, not a {type(given).__name__}")
    return loss.explain_gradient(target)


def find_nan(*tensors: Any) -> Optional[Finding]:
    """The first op whose result holds a NaN or an infinity while its sources hold none.

    Only an op that made one of the tensors hold one counts, or the gradient that ``backward`` has
    left at one. So after a training step's ``backward`` it is ``find_nan(loss, model)``: trees of
    tensors may be given, such as modules. None if all are finite. The graphs are computed anew, op by
    op; tensors that were computed and keep no graph are inputs. What a branch holds that no ``where``
    takes does not count, and infinities of inputs and constants are taken as meant, unless there is
    nothing else.

    With the environment variable ``UOPC_CHECK_NAN=1`` whatever is computed is looked at, and a
    FloatingPointError has the same report.

    >>> x = Tensor([4.0, -1.0])
    >>> print(uopc.find_nan(x.sqrt().sum()))
    the first NaN is in the result of sqrt f32 (2,) (at ...): at [1] it is NaN, computed from
       buffer f32 (2,) (at ...): -1
    >>> uopc.find_nan(x.abs().sqrt().sum()) is None
    True
    """
    given = [x for x in tree_leaves(tensors) if isinstance(x, Tensor)]
    gradients = [x.grad for x in given if x.grad is not None]
    found: Optional[Finding] = _uopc.diagnose_find_nan(given + gradients)
    return found


class _Strict:
    """Keeps strict mode on, on the thread that enters it, until it is left."""

    __slots__ = ()

    def __enter__(self) -> None:
        _uopc.enter_strict_gradients()

    def __exit__(self, *_: Any) -> None:
        _uopc.leave_strict_gradients()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def strictly(*args: Any, **kwargs: Any) -> Any:
            with _Strict():
                return function(*args, **kwargs)

        return strictly


def strict_gradients() -> _Strict:
    """Whatever differentiates inside refuses what is cut off, instead of zeros and a warning.

    That is an argument of ``uopc.grad``, ``value_and_grad``, ``vjp`` or what is made of them, or a
    target of ``uopc.gradient.gradient``, whose every path to the result is cut. Elsewhere it gets
    zeros with a GradientWarning; ``backward`` always refuses it. Used as
    ``with strict_gradients():`` or as a decorator, ``@strict_gradients()``. It may be nested and
    counts for the current thread.

    >>> f = lambda x: x.detach().sum()
    >>> with uopc.strict_gradients():
    ...     uopc.grad(f)(Tensor([1.0, 2.0]))
    Traceback (most recent call last):
    ...
    RuntimeError: gradient: argument 0, f32 (2,), gets zeros: every path from it to the root is cut, ...
    """
    return _Strict()
