"""Modules: objects that hold parameters, and finding the parameters that any object holds."""

import os
import types
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple, TypeVar
from typing import Union

from ..tensor import Tensor
from ._native import assign_all, is_interior, load_into, load_tensors, parameter_id
from ._native import save_tensors, snapshot

__all__ = ["LoadResult", "Module", "parameters"]

M = TypeVar("M", bound="Module")

# What holds no tensors however many attributes it has.
_OPAQUE: Tuple[type, ...] = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    str,
    bytes,
    int,
    float,
    type(None),
)


class LoadResult(NamedTuple):
    """The names on which a module and a state that was loaded into it do not agree."""

    missing: List[str]
    """Names of the module that the state lacks."""
    unexpected: List[str]
    """Names of the state that the module lacks."""


class Module:
    """Something with parameters: a layer, or layers within each other.

    A subclass assigns layers and tensors to attributes, also in lists, tuples and dicts, and
    defines ``forward``, which calling the module calls. Tensors made with ``requires_grad=True``
    are its parameters; they are found by walking the attributes in the order in which they were
    assigned, so there is nothing to register. Modules can be copied with ``copy.deepcopy`` and
    pickled.

    >>> from uopc import nn
    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         self.hidden = nn.Linear(8, 16)
    ...         self.out = nn.Linear(16, 2)
    ...     def forward(self, x):
    ...         return self.out(self.hidden(x).relu())
    >>> net = Net()
    >>> net(Tensor.zeros(4, 8)).shape
    (4, 2)
    >>> net
    Net(
      (hidden): Linear(in_features=8, out_features=16, bias=True)
      (out): Linear(in_features=16, out_features=2, bias=True)
    )
    """

    training: bool = True
    """Whether the module is being trained: what ``train`` and ``eval`` set."""

    def _no_forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes; each subclass defines it."""
        name = type(self).__name__
        raise NotImplementedError(f"{name} has no forward; define it in the class")

    # Not a method, so that a subclass may choose its arguments.
    forward: Callable[..., Any] = _no_forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def named_parameters(self) -> List[Tuple[str, Tensor]]:
        """The parameters with their dotted names, in the order of assignment, each tensor once.

        >>> [name for name, _ in uopc.nn.Linear(2, 3).named_parameters()]
        ['weight', 'bias']
        """
        return [(name, t) for name, t in _tensors(self) if parameter_id(t) is not None]

    def parameters(self) -> List[Tensor]:
        """The parameters in the order of assignment, each tensor once.

        >>> [p.shape for p in uopc.nn.Linear(2, 3).parameters()]
        [(2, 3), (3,)]
        """
        return [t for _, t in self.named_parameters()]

    def modules(self) -> List["Module"]:
        """This module and all modules in it, each once, outer ones first.

        >>> [type(m).__name__ for m in uopc.nn.Sequential(uopc.nn.Linear(2, 3)).modules()]
        ['Sequential', 'Linear']
        """
        return [part for _, part in _walk("", self) if isinstance(part, Module)]

    def _state(self) -> List[Tuple[str, Tensor]]:
        # What is computed from parameters is no state; what was assigned is.
        return [(name, t) for name, t in _tensors(self) if not is_interior(t)]

    def state_dict(self) -> Dict[str, Tensor]:
        """Parameters and other assigned tensors by dotted name, as they are now.

        The tensors are snapshots: training on does not change them, and they take no memory of
        their own until it does.

        >>> list(uopc.nn.Linear(2, 3).state_dict())
        ['weight', 'bias']
        """
        return {name: snapshot(t) for name, t in self._state()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> LoadResult:
        """Gives the module's tensors the values of a state; arrays will do as well as tensors.

        With ``strict=False`` names that only one side has are passed over; the result lists them.
        Raises ValueError for names and shapes that do not fit and TypeError for dtypes; then
        nothing has changed.

        >>> a, b = uopc.nn.Linear(2, 3), uopc.nn.Linear(2, 3)
        >>> b.load_state_dict(a.state_dict())
        LoadResult(missing=[], unexpected=[])
        >>> a.weight.tolist() == b.weight.tolist()
        True
        """
        own = dict(self._state())
        missing = [name for name in own if name not in state]
        unexpected = [name for name in state if name not in own]
        if strict and (missing or unexpected):
            lacks = f"; the state lacks {', '.join(missing)}" if missing else ""
            extra = f"; the module lacks {', '.join(unexpected)}" if unexpected else ""
            raise ValueError(
                f"load_state_dict: names differ{lacks}{extra} (strict=False passes over them)"
            )
        updates: List[Tuple[Tensor, Tensor]] = []
        for name, target in own.items():
            if name not in state:
                continue
            value = state[name]
            value = value if isinstance(value, Tensor) else Tensor(value)
            if value.shape != target.shape:
                raise ValueError(
                    f"load_state_dict: {name} has shape {target.shape}, the state's {value.shape}"
                )
            if value.dtype != target.dtype:
                raise TypeError(
                    f"load_state_dict: {name} is {target.dtype}, the state's {value.dtype}; cast it"
                )
            updates.append((target, value))
        assign_all(updates)
        return LoadResult(missing, unexpected)

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the state to a safetensors file. Raises OSError when that fails.

        >>> import os, tempfile
        >>> a, b = uopc.nn.Linear(2, 3), uopc.nn.Linear(2, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     a.save(os.path.join(folder, "model.safetensors"))
        ...     result = b.load(os.path.join(folder, "model.safetensors"))
        >>> a.weight.tolist() == b.weight.tolist()
        True
        """
        save_tensors(path, self._state())

    def load(self, path: Union[str, "os.PathLike[str]"], strict: bool = True) -> LoadResult:
        """Reads the state from a safetensors file, see ``load_state_dict``.

        Raises OSError when the file can't be read or its names, shapes or dtypes do not fit; then
        nothing has changed.
        """
        if not strict:
            return self.load_state_dict(load_tensors(path), strict=False)
        load_into(path, self._state())
        return LoadResult([], [])

    def train(self: M, mode: bool = True) -> M:
        """Sets ``training`` of this module and of all in it; returns the module.

        >>> uopc.nn.Linear(2, 3).train().training
        True
        """
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: M) -> M:
        """The same as ``train(False)``.

        >>> uopc.nn.Linear(2, 3).eval().training
        False
        """
        return self.train(False)

    def zero_grad(self) -> None:
        """Forgets the gradients of all parameters; otherwise the next backward adds to them."""
        for p in self.parameters():
            p.grad = None

    def extra_repr(self) -> str:
        """What the module's repr shows of it besides the modules in it; subclasses define it.

        >>> uopc.nn.Linear(2, 3).extra_repr()
        'in_features=2, out_features=3, bias=True'
        """
        tensors = ((n, v) for n, v in vars(self).items() if isinstance(v, Tensor))
        return ", ".join(f"{name}={t.dtype} {t.shape}" for name, t in tensors)

    def __repr__(self) -> str:
        return _drawn(self, frozenset())


def parameters(of: Any) -> List[Tensor]:
    """All tensors that require gradients in an object, each once, in a stable order.

    The object is a module, a tensor, a list, tuple or dict, or anything with attributes; these are
    searched in turn, in the order in which they were assigned. Objects may refer to each other in
    circles. Raises TypeError for what can hold no tensors, such as a number or a set, which has no
    order.

    >>> from uopc import nn
    >>> [p.shape for p in nn.parameters([nn.Linear(2, 3), {"scale": Tensor(1.0, requires_grad=True)}])]
    [(2, 3), (3,), ()]
    """
    if isinstance(of, Iterator) or isinstance(of, (type({}.values()), type({}.keys()))):
        of = list(of)
    if not isinstance(of, Tensor) and _parts(of) is None:
        name = type(of).__name__
        raise TypeError(f"parameters: a {name} holds no parameters; pass modules or tensors")
    return [t for _, t in _tensors(of) if parameter_id(t) is not None]


def _tensors(root: Any) -> Iterator[Tuple[str, Tensor]]:
    """The tensors in an object with their dotted names; a parameter with two names has the first."""
    seen: Set[int] = set()
    for name, part in _walk("", root):
        if isinstance(part, Tensor):
            number = parameter_id(part)
            if number is not None:
                if number in seen:
                    continue
                seen.add(number)
            yield name, part


def _walk(
    name: str, root: Any, into: Callable[[Any], bool] = lambda _: True
) -> Iterator[Tuple[str, Any]]:
    """An object and all objects in it, each once, outer ones first, with their dotted names.

    What ``into`` denies is named, but not entered.
    """
    # Objects are known by their addresses, so they are kept alive here.
    seen: Dict[int, Any] = {}
    # Names are put together for what has one, not for each number in a list.
    stack: List[Tuple[str, Iterator[Tuple[Any, Any]]]] = [("", iter([(name, root)]))]
    while stack:
        prefix, parts = stack[-1]
        own, part = next(parts, (None, _END))
        if part is _END:
            stack.pop()
            continue
        inner = None if isinstance(part, Tensor) else _parts(part)
        if inner is None and not isinstance(part, Tensor) or id(part) in seen:
            continue
        seen[id(part)] = part
        dotted = f"{prefix}{own}"
        yield dotted, part
        if inner is not None and into(part):
            stack.append((f"{dotted}." if dotted else "", inner))


_END = object()


def _parts(of: Any) -> Optional[Iterator[Tuple[Any, Any]]]:
    """What an object holds, by name or position; None if it can hold no tensors."""
    if isinstance(of, (list, tuple)):
        return iter(enumerate(of))
    if isinstance(of, Mapping):
        return iter(list(of.items()))
    if isinstance(of, _OPAQUE):
        return None
    found = list(vars(of).items()) if hasattr(of, "__dict__") else None
    for owner in type(of).__mro__:
        slots = owner.__dict__.get("__slots__", ())
        for slot in [slots] if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__") and hasattr(of, slot):
                found = found or []
                found.append((slot, getattr(of, slot)))
    return None if found is None else iter(found)


def _children(module: Module) -> List[Tuple[str, Module]]:
    """The modules right below a module, with their names."""
    enter = lambda part: part is module or not isinstance(part, Module)
    parts = _walk("", module, enter)
    return [(n, part) for n, part in parts if isinstance(part, Module) and part is not module]


def _drawn(module: Module, outer: FrozenSet[int]) -> str:
    """A module as a tree; ``outer`` are those that it is in, which are not drawn again."""
    if id(module) in outer:
        return "..."
    if type(module).__repr__ is not Module.__repr__:
        return repr(module)
    name, extra = type(module).__name__, module.extra_repr()
    lines = [extra] if extra else []
    for child, part in _children(module):
        drawn = _drawn(part, outer | {id(module)})
        lines.append(f"({child}): " + drawn.replace("\n", "\n  "))
    if not lines or (extra and len(lines) == 1):
        return f"{name}({extra})"
    return "\n  ".join([f"{name}(", *lines]) + "\n)"
