"""Tensors: what a user writes."""

import functools
import inspect

from . import _uopc
from ._uopc import Tensor

__all__ = ["Tensor", "no_grad"]


class _NoGrad:
    """Keeps gradients off on the thread that enters it until it is left."""

    __slots__ = ()

    def __enter__(self):
        _uopc.enter_no_grad()

    def __exit__(self, *_):
        _uopc.leave_no_grad()

    def __call__(self, function):
        return no_grad(function)


def no_grad(function=None):
    """Results made inside need no gradients and keep no history: for evaluation and updates.

    Used as ``with no_grad():``, or as a decorator, ``@no_grad`` or ``@no_grad()``, of a function or
    a generator. It may be nested and counts for the current thread.

    Raises TypeError if it decorates what can't be called, or an async function.

    >>> w = Tensor([1.0, 2.0], requires_grad=True)
    >>> with uopc.tensor.no_grad():
    ...     score = (w * 2).sum()
    >>> score.requires_grad
    False
    """
    if function is None:
        return _NoGrad()
    if not callable(function):
        raise TypeError(f"no_grad decorates functions, not {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            "no_grad would stay in force where an async function waits and others run; write "
            "`with no_grad():` around what does not wait"
        )
    if inspect.isgeneratorfunction(function):
        return _each_step(function)

    @functools.wraps(function)
    def without_gradients(*args, **kwargs):
        with _NoGrad():
            return function(*args, **kwargs)

    return without_gradients


def _each_step(function):
    """The generator function whose steps run without gradients, unlike what uses its items."""

    @functools.wraps(function)
    def without_gradients(*args, **kwargs):
        generator = function(*args, **kwargs)
        resume, message = generator.send, None
        while True:
            try:
                with _NoGrad():
                    item = resume(message)
            except StopIteration as end:
                return end.value
            try:
                message = yield item
                resume = generator.send
            except GeneratorExit:
                with _NoGrad():
                    generator.close()
                raise
            except BaseException as error:
                resume, message = generator.throw, error

    return without_gradients


Tensor.no_grad = staticmethod(no_grad)
