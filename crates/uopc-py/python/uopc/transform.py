"""Functions of tensors made from functions of tensors: derivatives of all kinds, and maps.

Each of these takes a function and gives another one, so they nest in any way: ``vmap(grad(f))``
is a gradient for each example, ``grad`` of a function that calls ``jvp`` is reverse over forward.
Names and signatures are those of JAX. A function is called once, with tensors that stand for the
values given; it may look at values that it computes, except inside ``vmap``, where there are many
at once. Nothing is computed before somebody asks for it.

Arguments and results are trees, see ``uopc.tree``: tensors in tuples, lists, dicts, dataclasses and
modules. NumPy arrays and Python's numbers become tensors where they are differentiated or mapped.

>>> def f(w, x):
...     return (w * x).sum().square()
>>> w, rows = Tensor([1.0, 2.0]), Tensor([[1.0, 0.0], [3.0, 1.0]])
>>> each = uopc.vmap(uopc.grad(f), in_axes=(None, 0))(w, rows)
>>> each.tolist()
[[2.0, 0.0], [30.0, 10.0]]

Random numbers that a function draws are drawn once, for all slices of a map alike.
"""

import functools
import operator
from typing import Any, Callable, List, NoReturn, Optional, Sequence, Tuple, Union

import numpy as np

from . import _uopc
from ._uopc import Comparison, GradcheckReport
from .nn.module import Module
from .tensor import Tensor
from .tree import TreeDef, _spread, _up_to, tree_flatten, tree_map

__all__ = [
    "Comparison",
    "GradcheckReport",
    "grad",
    "gradcheck",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "stop_gradient",
    "value_and_grad",
    "vjp",
    "vmap",
]

_Argnums = Union[int, Sequence[int]]


def grad(f: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of ``f``, which returns a scalar of floats.

    The gradient is a tree like the argument: of a module, a module of gradients. ``argnums`` says
    by which positional arguments to differentiate, counted from 0, negative from the end; for a
    tuple the result is a tuple. All other arguments are passed on as they are. With ``has_aux``
    the function returns ``(scalar, aux)`` and the result is ``(gradient, aux)``.

    The function that is returned raises TypeError for an argument that can't be differentiated,
    such as one of integers, RuntimeError if ``f`` returns no scalar or an op on the way has no
    derivative, and whatever ``f`` raises. Integers in a module get zeros.

    >>> f = lambda x: (x * x * x).sum()
    >>> uopc.grad(f)(Tensor([1.0, 2.0])).tolist()
    [3.0, 12.0]
    >>> uopc.grad(lambda x: uopc.grad(f)(x).sum())(Tensor([1.0, 2.0])).tolist()
    [6.0, 12.0]
    >>> by_both = uopc.grad(lambda a, b: (a["w"] * b).sum(), argnums=(0, 1))
    >>> by_a, by_b = by_both({"w": Tensor([1.0, 2.0])}, 3.0)
    >>> by_a["w"].tolist(), by_b.item()
    ([3.0, 3.0], 3.0)
    """
    both = _value_and_grad("grad", f, argnums, has_aux)

    @_wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(args, kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return gradient


def value_and_grad(
    f: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The function that gives the value of ``f`` and its gradient, as one graph; see ``grad``.

    With ``has_aux`` the result is ``((value, aux), gradient)``.

    >>> value, g = uopc.value_and_grad(lambda x: (x * x).sum())(Tensor([1.0, 3.0]))
    >>> value.item(), g.tolist()
    (10.0, [2.0, 6.0])
    """
    both = _value_and_grad("value_and_grad", f, argnums, has_aux)

    @_wraps(f)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        return both(args, kwargs)

    return value_and_gradient


def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Tuple[Any, ...]:
    """``(out, vjp_fn)``: what ``f(*primals)`` gives, and how its changes are pulled back.

    ``vjp_fn`` takes a cotangent, a tree like the result, and gives a tuple of cotangents, one for
    each primal; it may be called any number of times. Integers get zeros. With ``has_aux`` the
    function returns ``(out, aux)`` and the result is ``(out, vjp_fn, aux)``.

    Raises TypeError for a primal that is no tensor, and whatever ``f`` raises. ``vjp_fn`` raises
    ValueError for a cotangent of another structure or shape, TypeError for another dtype.

    >>> y, pull_back = uopc.vjp(lambda x: x * x, Tensor([1.0, 2.0]))
    >>> (dx,) = pull_back(Tensor([1.0, 10.0]))
    >>> y.tolist(), dx.tolist()
    ([1.0, 4.0], [2.0, 40.0])
    """
    call = _Call("vjp", f, primals, range(len(primals)), {}, has_aux)
    values, pullback = _uopc.transform_vjp(call, call.floats, list(range(len(call.floats))))
    out, aux = call.result(values)
    structure, results = call.out, values[: call.out.num_leaves]

    def pull_back(cotangent: Any) -> Tuple[Any, ...]:
        given = _up_to(structure, cotangent, "vjp: the cotangent")
        pairs = zip(given, results, structure._names("the cotangent"))
        flat = [_like("vjp", t, y, name) for t, y, name in pairs]
        cotangents: Tuple[Any, ...] = call.derivatives(pullback(flat))
        return cotangents

    return (out, pull_back, aux) if has_aux else (out, pull_back)


def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> Tuple[Any, ...]:
    """``(out, tangent_out)``: what ``f(*primals)`` gives, and how it changes along the tangents.

    ``primals`` and ``tangents`` are tuples or lists, with one tree for each argument of ``f``;
    tangents have the structure, shapes and dtypes of the primals. Those of integers are not read,
    and those of integer results are zeros. With ``has_aux`` the function returns ``(out, aux)`` and
    the result is ``(out, tangent_out, aux)``.

    Raises TypeError and ValueError for tangents that do not fit, and whatever ``f`` raises.

    >>> y, dy = uopc.jvp(lambda x: x * x, (Tensor([1.0, 2.0]),), (Tensor([1.0, 10.0]),))
    >>> y.tolist(), dy.tolist()
    ([1.0, 4.0], [2.0, 40.0])
    """
    primals, flat, call = _with_tangents("jvp", f, primals, tangents, has_aux)
    values, pushed = _uopc.transform_jvp(call, call.floats, flat)
    out, aux = call.result(values)
    tangent = call.out.unflatten(pushed[: call.out.num_leaves])
    return (out, tangent, aux) if has_aux else (out, tangent)


def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """The function that applies ``f`` to each slice of its arguments, all at once.

    ``in_axes`` says along which axis arguments are cut into slices, negative ones counted from the
    end, None for what all slices share: one for all arguments, or a tuple with one for each, or
    trees of them where arguments are trees. ``out_axes`` says in the same way where results have
    the new axis; None is for results that are the same for all slices. Keyword arguments are mapped
    over their axis 0. It is one graph of the batched size and no loop.

    The function that is returned raises ValueError if there is nothing to map, an axis does not
    exist or extents differ, TypeError for a mapped argument that is no tensor, NotImplementedError
    if ``f`` asks for the value of what differs between slices, and whatever ``f`` raises.

    >>> dot = lambda a, b: (a * b).sum()
    >>> a, b = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([10.0, 1.0])
    >>> uopc.vmap(dot, in_axes=(0, None))(a, b).tolist()
    [12.0, 34.0]
    >>> uopc.vmap(lambda x: x * 2, in_axes=1, out_axes=1)(a).tolist()
    [[2.0, 4.0], [6.0, 8.0]]
    """
    if not (in_axes is None or isinstance(in_axes, (int, tuple, list))):
        kind = type(in_axes).__name__
        raise TypeError(f"vmap: in_axes is an integer, None, or a tuple of one for each argument, not a {kind}")

    @_wraps(f)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, (tuple, list)) and len(in_axes) != len(args):
            n, m = len(in_axes), len(args)
            raise ValueError(f"vmap: in_axes has {n} entries for {m} positional arguments")
        axes = _spread(in_axes, args, "vmap: in_axes")
        call = _Call("vmap", f, args, range(len(args)), kwargs, False, axes)
        flat_axes = lambda: _spread(out_axes, call.out.unflatten(call.tensors), "vmap: out_axes")
        return call.result(_uopc.transform_vmap(call, call.floats, call.axes, flat_axes))[0]

    return mapped


def jacobian(f: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the Jacobian of ``f``, computed in the way that takes least.

    That is one pass where each element of the result depends on the same element of the argument
    alone, else a tangent for each element of the argument or a cotangent for each of the result.
    The result is a tree like that of ``f``, each leaf of which is a tree like the argument (for a
    tuple of argnums a tuple of them) of tensors with the result's shape followed by the argument's.
    With ``has_aux`` the function returns ``(out, aux)`` and the result is ``(jacobian, aux)``.

    The function that is returned raises TypeError for arguments and RuntimeError for results that
    are no floats, and whatever ``f`` raises.

    >>> uopc.jacobian(lambda x: x * x)(Tensor([2.0, 3.0])).tolist()
    [[4.0, 0.0], [0.0, 6.0]]
    """
    return _jacobian("jacobian", "best", f, argnums, has_aux)


def jacfwd(f: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """``jacobian`` by forward mode: a tangent for each element of the argument.

    >>> uopc.jacfwd(lambda x: x.sum() * x)(Tensor([2.0, 3.0])).tolist()
    [[7.0, 2.0], [3.0, 8.0]]
    """
    return _jacobian("jacfwd", "forward", f, argnums, has_aux)


def jacrev(f: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """``jacobian`` by reverse mode: a cotangent for each element of the result.

    >>> uopc.jacrev(lambda x: x.sum() * x)(Tensor([2.0, 3.0])).tolist()
    [[7.0, 2.0], [3.0, 8.0]]
    """
    return _jacobian("jacrev", "reverse", f, argnums, has_aux)


def hessian(f: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives all second derivatives of ``f``: forward over reverse.

    The result is a tree like that of ``f``, each leaf of which is a tree like the argument, each leaf
    of which is again one, with the shapes one behind the other. With ``has_aux`` the function returns
    ``(out, aux)`` and the result is ``(hessian, aux)``.

    The function that is returned raises what that of ``jacobian`` raises.

    >>> uopc.hessian(lambda x: (x * x * x).sum())(Tensor([2.0, 3.0])).tolist()
    [[12.0, 0.0], [0.0, 18.0]]
    """

    @_wraps(f)
    def second(*args: Any, **kwargs: Any) -> Any:
        wrt, single = _positions("hessian", argnums, args)
        call = _Call("hessian", f, args, wrt, kwargs, has_aux, scalar=True)
        try:
            rows, rest = _uopc.transform_hessian(call, call.floats, list(range(len(call.floats))))
        except _NoScalar:
            # The same as a Jacobian of Jacobians, whatever is returned.
            return jacobian(jacrev(f, argnums, has_aux), argnums, has_aux)(*args, **kwargs)
        block = call.derivatives([call.derivatives(row, single) for row in rows], single)
        blocks = call.out.unflatten([block])
        return (blocks, call.aux_over(rest)) if has_aux else blocks

    return second


def hvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The second derivatives of a scalar ``f(*primals)`` times a vector: forward over reverse.

    It costs about twice as much as a gradient. For a single primal the result is a tree like it, the
    same as ``jvp(grad(f), primals, tangents)[1]``; for several a tuple of trees, in which the
    derivatives by all arguments along all tangents have come together.

    Raises TypeError and ValueError for tangents that do not fit, RuntimeError if ``f`` returns no
    scalar, and whatever ``f`` raises.

    >>> x, v = Tensor([2.0, 3.0]), Tensor([1.0, 10.0])
    >>> uopc.hvp(lambda x: (x * x * x).sum(), (x,), (v,)).tolist()
    [12.0, 180.0]
    """
    primals, flat, call = _with_tangents("hvp", f, primals, tangents, False)
    products = _uopc.transform_hvp(call, call.floats, flat)
    return call.derivatives(products, single=len(primals) == 1)


def gradcheck(
    f: Callable[..., Any],
    args: Any,
    *,
    step: Optional[float] = None,
    directions: Optional[int] = None,
    tolerance: Optional[float] = None,
    second_order: bool = True,
    seed: int = 0,
) -> GradcheckReport:
    """Checks the gradients of ``f(*args)``: the report is true if all agree, and prints as a table.

    Reverse mode is compared with difference quotients and with forward mode, in random directions,
    at orders 1 and 2 (with ``second_order``), for each tensor of floats in the arguments. It is done
    in f64 whatever dtypes the function uses, and what the function detaches is held fixed.

    ``args`` is a tuple or list of arguments, or a single tensor. ``step`` is half the step of
    the quotients, relative to the size of each element; ``directions`` how many random directions
    each tensor gets; ``tolerance`` what quotients may differ relative to the sum of the terms'
    magnitudes; ``seed`` decides the directions.

    Raises TypeError for arguments that are no tensors, RuntimeError if none is of floats, ValueError
    for a step or tolerance that is not above 0 and for no directions, and whatever ``f`` raises.

    >>> report = uopc.gradcheck(lambda x: x.sin().exp(), Tensor([0.5, -1.0, 2.0]))
    >>> report.passed, len(report.comparisons)
    (True, 4)
    >>> print(report)
    argument  shape ... result
    argument 0 (3,) reverse mode with quotients ... agree
    ...
    all gradients agree
    """
    arguments = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    call = _Call("gradcheck", f, arguments, range(len(arguments)), {})
    return _uopc.transform_gradcheck(
        call, call.floats, call.names, step, directions, tolerance, second_order, seed
    )


def stop_gradient(tree: Any) -> Any:
    """The tree with the same values, through which no gradient flows. Other leaves stay.

    >>> uopc.grad(lambda x: (x * uopc.stop_gradient(x)).sum())(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, tree)


# ---- a call of the user's function ----


def _wraps(f: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``functools.wraps``, which would copy all that a module holds."""
    return functools.wraps(f, updated=() if isinstance(f, Module) else functools.WRAPPER_UPDATES)


class _NoScalar(Exception):
    """Raised through the library where a function does not return a scalar."""


class _Call:
    """A function with its arguments, as one from a list of tensors to a list of tensors.

    The list holds the tensors of some arguments that are differentiated, or mapped along ``axes``.
    """

    def __init__(
        self,
        op: str,
        f: Callable[..., Any],
        args: Sequence[Any],
        wrt: Sequence[int],
        kwargs: Any,
        has_aux: bool = False,
        axes: Optional[List[Any]] = None,
        scalar: bool = False,
    ) -> None:
        self.op, self.f, self.has_aux, self.scalar = op, f, has_aux, scalar
        self.args, self.wrt, self.kwargs = list(args), list(wrt), kwargs
        # What is taken apart, and which of its leaves are in the list.
        whole: Tuple[Any, ...] = tuple(self.args[k] for k in self.wrt)
        if axes is not None:
            whole += (kwargs,)
        self.leaves, self.structure = tree_flatten(whole)
        names = [
            name
            for k, part in enumerate(self.structure._children)
            for name in part._names(f"argument {self.wrt[k]}" if k < len(self.wrt) else "keyword argument ")
        ]
        self.places: List[int] = []
        self.names: List[str] = []
        self.floats: List[Tensor] = []
        self.axes: List[int] = []
        if axes is not None:
            self._mapped(names, axes + [0] * (len(self.leaves) - len(axes)))
        else:
            self._differentiated(names)
        # Of the last call: the structures of its result, and what it returned besides tensors.
        self.out: TreeDef = self.structure
        self.aux: Optional[TreeDef] = None
        self.aux_leaves: List[Any] = []
        self.tensors: List[Tensor] = []

    def _differentiated(self, names: List[str]) -> None:
        zeros = self.op in ("vjp", "jvp", "hvp", "gradcheck")
        for k, (name, inside) in enumerate(zip(names, self.structure._in_modules())):
            tensor = _tensor(self.op, self.leaves[k], name)
            self.leaves[k] = tensor
            if tensor.dtype.is_float:
                self._take(k, name, tensor)
            elif not (inside or zeros):
                raise TypeError(
                    f"{self.op}: {name} is {tensor.dtype} of shape {tensor.shape}, and only floats "
                    "have derivatives; cast it to f32, or leave it out by argnums"
                )

    def _mapped(self, names: List[str], axes: List[Any]) -> None:
        first: Optional[Tuple[str, int]] = None
        for k, (name, axis) in enumerate(zip(names, axes)):
            if axis is None:
                continue
            tensor = _tensor("vmap", self.leaves[k], name)
            if not -tensor.ndim <= axis < tensor.ndim:
                raise ValueError(
                    f"vmap: {name} has shape {tensor.shape} and no axis {axis}; choose another in "
                    "in_axes, or None for what all slices share"
                )
            n = tensor.shape[axis]
            if first is not None and first[1] != n:
                raise ValueError(
                    f"vmap: {first[0]} is mapped over {first[1]} slices and {name}, of shape "
                    f"{tensor.shape}, over {n}; all need the same number"
                )
            first = first or (name, n)
            self._take(k, name, tensor)
            self.axes.append(axis)
        if first is None:
            raise ValueError("vmap: no argument is mapped; give at least one an axis in in_axes")

    def _take(self, k: int, name: str, tensor: Tensor) -> None:
        self.places.append(k)
        self.names.append(name)
        self.floats.append(tensor)

    def __call__(self, tensors: List[Tensor]) -> List[Tensor]:
        """Calls the function with these tensors in their places; its result as a list."""
        leaves = list(self.leaves)
        for k, tensor in zip(self.places, tensors):
            leaves[k] = tensor
        parts = self.structure.unflatten(leaves)
        args = list(self.args)
        for k, part in zip(self.wrt, parts):
            args[k] = part
        kwargs = parts[-1] if len(parts) > len(self.wrt) else self.kwargs
        result = self.f(*args, **kwargs)
        if self.has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                kind = type(result).__name__
                raise TypeError(f"{self.op}: with has_aux the function returns (out, aux), not a {kind}")
            result, aux = result
            self.aux_leaves, self.aux = tree_flatten(aux)
        found, self.out = tree_flatten(result)
        names = self.out._names("the result")
        self.tensors = [_tensor(self.op, leaf, name) for leaf, name in zip(found, names)]
        self._check_scalar(found)
        return self.tensors + [leaf for leaf in self.aux_leaves if isinstance(leaf, Tensor)]

    def _check_scalar(self, found: List[Any]) -> None:
        if self.op in ("grad", "value_and_grad", "hvp") and (len(found) != 1 or found[0] is None):
            shown = f"a tree of {len(found)} tensors" if found else "nothing"
            hint = "; with has_aux it may return (scalar, aux)" if len(found) > 1 else ""
            raise TypeError(f"{self.op}: the function returns {shown}, not one scalar of floats{hint}")
        if self.scalar and (len(found) != 1 or self.tensors[0].ndim != 0):
            raise _NoScalar

    def result(self, values: List[Tensor]) -> Tuple[Any, Any]:
        """The trees that the function returned, over other tensors."""
        n = self.out.num_leaves
        return self.out.unflatten(values[:n]), self.aux_over(values[n:])

    def aux_over(self, tensors: Sequence[Tensor]) -> Any:
        """What the function returned besides, over other tensors; None if that is nothing."""
        if self.aux is None:
            return None
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(x, Tensor) else x for x in self.aux_leaves]
        return self.aux.unflatten(leaves)

    def derivatives(self, found: Sequence[Any], single: bool = False) -> Any:
        """Trees like the arguments with one of these for each float.

        All else has zeros in gradients, and None where derivatives have more axes.
        """
        leaves: List[Any] = [None] * len(self.leaves)
        if self.op not in ("jacobian", "jacfwd", "jacrev", "hessian"):
            leaves = [x if x.dtype.is_float else Tensor.zeros(x.shape, dtype=x.dtype) for x in self.leaves]
        for k, derivative in zip(self.places, found):
            leaves[k] = derivative
        trees = self.structure.unflatten(leaves)
        return trees[0] if single else trees


def _value_and_grad(
    op: str, f: Callable[..., Any], argnums: _Argnums, has_aux: bool
) -> Callable[[Tuple[Any, ...], Any], Tuple[Any, Any]]:
    def both(args: Tuple[Any, ...], kwargs: Any) -> Tuple[Any, Any]:
        wrt, single = _positions(op, argnums, args)
        call = _Call(op, f, args, wrt, kwargs, has_aux)
        places = list(range(len(call.floats)))
        value, gradients, rest = _uopc.transform_value_and_grad(call, call.floats, places)
        out, aux = call.result([value, *rest])
        return ((out, aux) if has_aux else out), call.derivatives(gradients, single)

    return both


def _jacobian(
    op: str, mode: str, f: Callable[..., Any], argnums: _Argnums, has_aux: bool
) -> Callable[..., Any]:
    @_wraps(f)
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        wrt, single = _positions(op, argnums, args)
        call = _Call(op, f, args, wrt, kwargs, has_aux)
        places = list(range(len(call.floats)))
        count = lambda: call.out.num_leaves
        rows, rest = _uopc.transform_jacobian(call, call.floats, places, mode, count)
        blocks = call.out.unflatten([call.derivatives(row, single) for row in rows])
        return (blocks, call.aux_over(rest)) if has_aux else blocks

    return jacobian_of


def _with_tangents(
    op: str, f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool
) -> Tuple[Sequence[Any], List[Tensor], _Call]:
    """The call with the primals, and a tangent for each float among them."""
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            kind = type(given).__name__
            raise TypeError(f"{op}: {name} is a tuple with one for each argument, not a {kind}; write (x,)")
    if len(primals) != len(tangents):
        raise ValueError(f"{op}: {len(primals)} primals and {len(tangents)} tangents; give one for each")
    call = _Call(op, f, primals, range(len(primals)), {}, has_aux)
    flat: List[Any] = []
    for k, (part, tangent) in enumerate(zip(call.structure._children, tangents)):
        flat += _up_to(part, tangent, f"{op}: tangent {k}")
    pairs = zip(call.places, call.floats, call.names)
    return primals, [_like(op, flat[k], x, f"the tangent of {name}") for k, x, name in pairs], call


def _positions(op: str, argnums: _Argnums, args: Tuple[Any, ...]) -> Tuple[List[int], bool]:
    """The arguments that are meant, from 0, and whether it is one without a tuple."""
    single = not isinstance(argnums, (tuple, list))
    found: List[int] = []
    for given in [argnums] if single else argnums:
        try:
            k = operator.index(given)
        except TypeError:
            raise TypeError(f"{op}: argnums is an integer or a tuple of integers, not {given!r}") from None
        if not -len(args) <= k < len(args):
            raise TypeError(
                f"{op}: argnums names argument {k}, but the function was called with {len(args)} "
                "positional arguments"
            )
        k %= len(args)
        if k in found:
            raise ValueError(f"{op}: argnums names argument {k} twice")
        found.append(k)
    return found, single


def _tensor(op: str, leaf: Any, name: str, dtype: Any = None) -> Tensor:
    """A leaf as a tensor."""
    if isinstance(leaf, Tensor):
        return leaf
    if isinstance(leaf, (bool, int, float, np.ndarray, np.generic)):
        try:
            return Tensor(leaf, dtype=dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"{op}: {name} can't be made a tensor: {error}") from None
    _refuse(op, leaf, name)


def _refuse(op: str, leaf: Any, name: str) -> NoReturn:
    kind = type(leaf).__name__
    hint = ""
    if "argument" in name:
        hint = "; leave it out by in_axes" if op == "vmap" else "; leave it out by argnums"
    if op in ("vjp", "jvp", "hvp", "gradcheck"):
        hint = "; bind it first, as in lambda x: f(x, other)" if hint else ""
    raise TypeError(
        f"{op}: {name} is a {kind}; tensors, arrays and numbers are needed, also in tuples, lists, "
        f"dicts, dataclasses and modules{hint}"
    )


def _like(op: str, leaf: Any, like: Tensor, name: str) -> Tensor:
    """A tangent or cotangent of a tensor. A number takes the tensor's dtype."""
    is_number = isinstance(leaf, (bool, int, float)) and like.dtype.is_float
    tensor = _tensor(op, float(leaf) if is_number else leaf, name, like.dtype if is_number else None)
    if tensor.shape != like.shape:
        raise ValueError(f"{op}: {name} has shape {tensor.shape}, not {like.shape}")
    if like.dtype.is_float and tensor.dtype != like.dtype:
        raise TypeError(f"{op}: {name} is {tensor.dtype}, not {like.dtype}; cast it")
    return tensor
