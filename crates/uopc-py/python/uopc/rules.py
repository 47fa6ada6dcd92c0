"""Functions with derivatives of one's own, and what is made of them.

>>> log1pexp = uopc.custom(
...     lambda x: (x.exp() + 1.0).log(),
...     vjp=lambda args, y, g: g / ((-args[0]).exp() + 1.0),
... )
>>> uopc.grad(lambda x: log1pexp(x).sum())(Tensor([0.0, 100.0])).tolist()
[0.5, 1.0]
"""

from typing import Any, Callable, List, Optional, Sequence, Tuple

from . import _uopc
from .tensor import Tensor
from .tree import _up_to, tree_flatten, tree_unflatten

__all__ = [
    "Custom",
    "clip_gradient",
    "custom",
    "gradient_hook",
    "scale_gradient",
    "straight_through",
]


class Custom:
    """A function whose derivatives are given, not derived; see ``custom``.

    >>> double = uopc.custom(lambda x: 2 * x, vjp=lambda args, y, g: 2 * g, name="double")
    >>> double(Tensor([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """

    def __init__(
        self,
        f: Callable[..., Tensor],
        vjp: Optional[Callable[..., Any]],
        jvp: Optional[Callable[..., Tensor]],
        name: str,
    ) -> None:
        self._f, self._vjp, self._jvp, self._name = f, vjp, jvp, name

    def __call__(self, *args: Any) -> Tensor:
        """The function at these arguments."""
        function, inputs = self._native(args)
        result: Tensor = function.call(inputs)
        return result

    def check(self, *args: Any, tolerance: float = 1e-4) -> Tuple[float, float]:
        """Compares the two rules at these arguments in a random direction.

        The sum of cotangent times tangent must be the same in forward and in reverse mode; both sums
        are returned. Raises RuntimeError if they differ by more than ``tolerance``, relative to the
        magnitude of the terms, or if a rule is missing.

        >>> square = uopc.custom(
        ...     lambda x: x * x,
        ...     vjp=lambda args, y, g: 2 * args[0] * g,
        ...     jvp=lambda args, y, t: 2 * args[0] * t[0],
        ... )
        >>> forward, reverse = square.check(Tensor([1.0, 2.0, 3.0]))
        >>> abs(forward - reverse) < 1e-4
        True
        """
        function, inputs = self._native(args)
        forward, reverse = function.check(inputs, tolerance)
        return forward, reverse

    def __repr__(self) -> str:
        return f"Custom({self._name})"

    def _native(self, args: Tuple[Any, ...]) -> Tuple[Any, List[Tensor]]:
        """The function of the tensors among the arguments' leaves, and these."""
        leaves, structure = tree_flatten(args)
        places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

        def tree(tensors: Sequence[Any]) -> Any:
            own = list(leaves)
            for k, tensor in zip(places, tensors):
                own[k] = tensor
            return tree_unflatten(structure, own)

        def body(tensors: List[Tensor]) -> Tensor:
            return _one(f"the result of {self._name}", self._f(*tree(tensors)))

        def pull(tensors: List[Tensor], y: Tensor, g: Tensor) -> List[Optional[Tensor]]:
            assert self._vjp is not None
            pulled = self._vjp(tree(tensors), y, g)
            if len(args) == 1 and not isinstance(pulled, tuple):
                pulled = (pulled,)
            if not isinstance(pulled, tuple) or len(pulled) != len(args):
                raise ValueError(
                    f"the vjp of {self._name} gives {_counted(pulled)} for {len(args)} arguments; "
                    "give a tuple with a cotangent for each, None for zero"
                )
            flat: List[Any] = []
            for k, (part, arg) in enumerate(zip(pulled, args)):
                own, own_structure = tree_flatten(arg)
                # None in the place of a tree is zero for all of it.
                what = f"the vjp of {self._name}: cotangent {k}"
                flat += [None] * len(own) if part is None else _up_to(own_structure, part, what)
            what = f"a cotangent that the vjp of {self._name} gives"
            return [None if flat[k] is None else _one(what, flat[k]) for k in places]

        def push(tensors: List[Tensor], y: Tensor, tangents: List[Tensor]) -> Tensor:
            assert self._jvp is not None
            pushed = self._jvp(tree(tensors), y, tree(tangents))
            return _one(f"the tangent that the jvp of {self._name} gives", pushed)

        vjp = None if self._vjp is None else pull
        jvp = None if self._jvp is None else push
        function = _uopc.NativeCustom(self._name, body, vjp, jvp)
        return function, [leaves[k] for k in places]


def _one(what: str, given: Any) -> Any:
    """What a function of the user's gives, where it is one tensor or what becomes one."""
    if given is None or isinstance(given, (tuple, list, dict, str)):
        parts = "" if given is None or isinstance(given, str) else "; join its parts, or write a function for each"
        raise TypeError(f"{what} is a {type(given).__name__}, not a tensor{parts}")
    return given


def _counted(pulled: Any) -> str:
    if isinstance(pulled, tuple):
        return f"{len(pulled)} cotangents"
    return f"a {type(pulled).__name__}"


def custom(
    f: Callable[..., Tensor],
    vjp: Optional[Callable[..., Any]] = None,
    jvp: Optional[Callable[..., Tensor]] = None,
    name: Optional[str] = None,
) -> Custom:
    """The function ``f``, of tensors to one tensor, with derivatives of one's own.

    ``vjp(args, y, g)`` gets the tuple of arguments, the result and its cotangent, and returns a
    tuple of cotangents, one for each argument and a tree like it, or None for zero; for a single
    argument the tuple may be left out. ``jvp(args, y, tangents)`` gets the tuple of the arguments'
    tangents instead, and returns the result's. One of the two is enough: each follows from the
    other, as both are linear in what comes from outside. Rules are functions of tensors like any
    other, so they can be differentiated themselves; they get what they depend on as arguments, and
    must not close over tensors that are being differentiated or mapped. Arguments may be trees; what
    is no tensor in them is passed on, in tangents as well.

    When it is called it raises RuntimeError if there is no rule, the result is no float, a rule is
    not linear where it has to be transposed, or reads what it may not; ValueError and TypeError if a
    rule gives another number, shape or dtype than it should; and whatever the functions raise.

    >>> safe_sqrt = uopc.custom(
    ...     lambda x: x.sqrt(),
    ...     vjp=lambda args, y, g: g * 0.5 / (y + 0.5),
    ...     name="safe_sqrt",
    ... )
    >>> uopc.grad(lambda x: safe_sqrt(x).sum())(Tensor([0.0])).tolist()
    [1.0]
    """
    for what, rule in (("f", f), ("vjp", vjp), ("jvp", jvp)):
        if not callable(rule) and not (what != "f" and rule is None):
            raise TypeError(f"custom: {what} is a function, not {rule!r}")
    return Custom(f, vjp, jvp, name or getattr(f, "__name__", "custom"))


def straight_through(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The function with the values of ``f`` through which gradients pass as if it did nothing.

    For rounding, quantising and other steps without a derivative of use. When it is called it raises
    ValueError or TypeError if the result differs in shape or dtype from the argument.

    >>> quantised = uopc.straight_through(lambda x: (x * 4).trunc() / 4)
    >>> quantised(Tensor([0.3, -1.9])).tolist()
    [0.25, -1.75]
    >>> uopc.grad(lambda x: quantised(x).square().sum())(Tensor([0.3, -1.9])).tolist()
    [0.5, -3.5]
    """

    def passed(x: Tensor) -> Tensor:
        result: Tensor = _uopc.rules_straight_through(
            lambda x: _one("straight_through: the result of the function", f(x)), x
        )
        return result

    return passed


def gradient_hook(x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
    """The same values; the gradient that comes back is replaced by what ``f`` makes of it.

    Tangents of forward mode pass unchanged. Raises RuntimeError if ``x`` is no float, ValueError and
    TypeError if ``f`` changes shape or dtype, and what ``f`` raises.

    >>> halved = lambda x: uopc.gradient_hook(x, lambda g: g / 2)
    >>> uopc.grad(lambda x: (halved(x) * 3).sum())(Tensor([1.0, 2.0])).tolist()
    [1.5, 1.5]
    """
    hook = lambda g: _one("gradient_hook: what the hook gives", f(g))
    result: Tensor = _uopc.rules_gradient_hook(x, hook)
    return result


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """The same values, of which gradients come back times ``factor``: -1 reverses them.

    Raises RuntimeError if ``x`` is no float.

    >>> uopc.grad(lambda x: uopc.scale_gradient(x, -1).sum())(Tensor([1.0, 2.0])).tolist()
    [-1.0, -1.0]
    """
    result: Tensor = _uopc.rules_scale_gradient(x, factor)
    return result


def clip_gradient(x: Tensor, low: float, high: float) -> Tensor:
    """The same values, each element of whose gradient is kept between ``low`` and ``high``.

    Raises RuntimeError if ``x`` is no float.

    >>> f = lambda x: (uopc.clip_gradient(x, -1, 1) * Tensor([5.0, 0.5])).sum()
    >>> uopc.grad(f)(Tensor([1.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    result: Tensor = _uopc.rules_clip_gradient(x, low, high)
    return result
