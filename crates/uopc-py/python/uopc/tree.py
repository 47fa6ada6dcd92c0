"""Trees: the structures that functions take and return, and their leaves.

What is inside of a tree: tuples, named tuples, lists, dicts, dataclasses, modules, and None, which
holds nothing. All else is a leaf: tensors, arrays, numbers. The transformations (``uopc.grad``,
``uopc.vmap`` and so on) take their arguments apart here and put their results together again.

>>> from uopc.tree import tree_leaves, tree_map
>>> tree_leaves({"b": [1, 2], "a": (3, None)})
[3, 1, 2]
>>> tree_map(lambda x: 10 * x, {"b": [1, 2], "a": (3, None)})
{'b': [10, 20], 'a': (30, None)}
"""

import collections
import copy
import dataclasses
import types
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import numpy as np

from .nn._native import parameter_id
from .nn.module import Module, _parts, _tensors
from .tensor import Tensor

__all__ = ["TreeDef", "tree_flatten", "tree_leaves", "tree_map", "tree_unflatten"]

_IsLeaf = Optional[Callable[[Any], bool]]


class TreeDef:
    """The structure of a tree without its leaves, as ``tree_flatten`` gives it.

    Structures are equal if their nodes are of the same types, with the same keys and names.

    >>> _, a = uopc.tree_flatten([1, (2, 3)])
    >>> _, b = uopc.tree_flatten([4, (5, 6)])
    >>> a == b, a.num_leaves
    (True, 3)
    >>> a
    TreeDef([*, (*, *)])
    """

    __slots__ = ("_build", "_children", "_leaves", "_of", "_suffixes")

    def __init__(
        self,
        of: Tuple[Any, ...],
        children: Sequence["TreeDef"],
        suffixes: Sequence[str],
        build: Callable[[List[Any]], Any],
        leaves: Optional[int] = None,
    ) -> None:
        # What tells a node from others: its type, and its keys if it has some.
        self._of = of
        self._children = children
        # What leads to each child, or for modules to each leaf, as Python writes it.
        self._suffixes = suffixes
        self._build = build
        self._leaves = sum(c.num_leaves for c in children) if leaves is None else leaves

    @property
    def num_leaves(self) -> int:
        """How many leaves it has."""
        return self._leaves

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The tree of this structure with these leaves, see ``tree_unflatten``.

        >>> uopc.tree_flatten([1, (2, 3)])[1].unflatten("abc")
        ['a', ('b', 'c')]
        """
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"tree_unflatten: {len(leaves)} leaves for a structure of {self.num_leaves}"
            )
        return self._built(iter(leaves))

    def _built(self, leaves: Iterator[Any]) -> Any:
        if self._of == _LEAF:
            return next(leaves)
        if not self._children:
            return self._build([next(leaves) for _ in range(self.num_leaves)])
        return self._build([child._built(leaves) for child in self._children])

    def _names(self, prefix: str) -> Iterator[str]:
        """What leads to each leaf, behind a prefix."""
        if self._of == _LEAF:
            yield prefix
        elif not self._children:
            yield from (prefix + suffix for suffix in self._suffixes)
        for child, suffix in zip(self._children, self._suffixes):
            yield from child._names(prefix + suffix)

    def _in_modules(self) -> Iterator[bool]:
        """For each leaf whether it is a tensor in a module."""
        if not self._children:
            yield from [self._of != _LEAF] * self.num_leaves
        for child in self._children:
            yield from child._in_modules()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeDef):
            return NotImplemented
        same = self._of == other._of and self.num_leaves == other.num_leaves
        return same and list(self._children) == list(other._children)

    def __hash__(self) -> int:
        return hash((self._of[0], self.num_leaves))

    def __repr__(self) -> str:
        return f"TreeDef({self._drawn()})"

    def _drawn(self) -> str:
        kind, keys = self._of[0], self._of[1:]
        parts = [child._drawn() for child in self._children]
        if kind is tuple:
            return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
        if kind is list:
            return f"[{', '.join(parts)}]"
        if kind is dict:
            items = zip(keys[0], parts)
            return "{" + ", ".join(f"{key!r}: {part}" for key, part in items) + "}"
        if self._of == _LEAF:
            return "*"
        if self._of == _NONE:
            return "None"
        names = keys[0] if keys else ()
        named = [f"{name}={part}" for name, part in zip(names, parts or ["*"] * len(names))]
        return f"{kind.__name__}({', '.join(named)})"


_LEAF = ("leaf",)
_NONE = ("none",)
_A_LEAF = TreeDef(_LEAF, (), ("",), lambda parts: parts[0], leaves=1)
_NOTHING = TreeDef(_NONE, (), (), lambda parts: None, leaves=0)


def tree_flatten(tree: Any, is_leaf: _IsLeaf = None) -> Tuple[List[Any], TreeDef]:
    """The leaves of a tree and its structure.

    Dicts give their values by ascending key. A module gives the tensors in it, each once, in the
    order of ``state_dict``; what else it holds belongs to its structure. So do the fields of a
    dataclass that have ``metadata={"static": True}``. What ``is_leaf`` is true for is not entered.

    Raises TypeError for dicts whose keys can't be sorted.

    >>> leaves, structure = uopc.tree_flatten({"b": 1, "a": [2, 3]})
    >>> leaves, uopc.tree_unflatten(structure, leaves)
    ([2, 3, 1], {'b': 1, 'a': [2, 3]})
    """
    leaves: List[Any] = []
    return leaves, _flattened(tree, leaves, is_leaf)


def tree_unflatten(treedef: TreeDef, leaves: Sequence[Any]) -> Any:
    """The tree of a structure with these leaves, any objects in the order of ``tree_flatten``.

    Modules are copies that share with the original what holds no tensors. Raises ValueError if
    there are more or fewer leaves than the structure has.

    >>> _, structure = uopc.tree_flatten((0, [0]))
    >>> uopc.tree_unflatten(structure, ["x", "y"])
    ('x', ['y'])
    """
    return treedef.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: _IsLeaf = None) -> List[Any]:
    """The leaves of a tree, see ``tree_flatten``.

    >>> [t.shape for t in uopc.tree_leaves([uopc.nn.Linear(2, 3), None, Tensor(1.0)])]
    [(2, 3), (3,), ()]
    """
    return tree_flatten(tree, is_leaf)[0]


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: _IsLeaf = None) -> Any:
    """The tree with ``f(leaf, *others)`` in place of each leaf.

    The others are what the trees in ``rest`` have there; these have the structure of the first, or
    more below its leaves. Raises ValueError if they do not.

    >>> uopc.tree_map(lambda a, b: a + b, {"x": 1, "y": [2]}, {"x": 10, "y": [20]})
    {'x': 11, 'y': [22]}
    >>> layer = uopc.nn.Linear(2, 3)
    >>> uopc.tree_map(lambda w: w * 0, layer).weight.shape
    (2, 3)
    """
    leaves, structure = tree_flatten(tree, is_leaf)
    columns = [leaves]
    for k, other in enumerate(rest):
        columns.append(_up_to(structure, other, f"tree_map: tree {k + 1}"))
    return structure.unflatten([f(*row) for row in zip(*columns)])


# ---- taking apart ----


def _flattened(tree: Any, leaves: List[Any], is_leaf: _IsLeaf) -> TreeDef:
    """Appends the leaves of a tree; its structure."""
    if is_leaf is not None and is_leaf(tree):
        leaves.append(tree)
        return _A_LEAF
    if tree is None:
        return _NOTHING
    if isinstance(tree, Module):
        return _of_module(tree, leaves)
    node = _node(tree)
    if node is None:
        leaves.append(tree)
        return _A_LEAF
    of, parts, suffixes, build = node
    children = [_flattened(part, leaves, is_leaf) for part in parts]
    return TreeDef(of, children, suffixes, build)


_Node = Tuple[Tuple[Any, ...], List[Any], List[str], Callable[[List[Any]], Any]]


def _node(tree: Any) -> Optional[_Node]:
    """What tells a node from others, its children, what leads to them, and how to build one."""
    kind = type(tree)
    if isinstance(tree, tuple):
        if hasattr(tree, "_fields"):
            names = list(kind._fields)
            suffixes = [f".{name}" for name in names]
            return (kind, tuple(names)), list(tree), suffixes, lambda parts: kind(*parts)
        make = tuple if kind is tuple else kind
        return (kind,), list(tree), _positions(tree), lambda parts: make(parts)
    if isinstance(tree, list):
        return (kind,), list(tree), _positions(tree), lambda parts: kind(parts)
    if isinstance(tree, dict):
        return _of_dict(tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return _of_dataclass(tree)
    return None


def _positions(tree: Sequence[Any]) -> List[str]:
    return [f"[{k}]" for k in range(len(tree))]


def _of_dict(tree: Dict[Any, Any]) -> _Node:
    try:
        keys = sorted(tree)
    except TypeError:
        shown = ", ".join(map(repr, tree))
        raise TypeError(f"the keys of a dict can't be sorted: {shown}; use keys of one kind") from None
    kind, order = type(tree), list(tree)

    def build(parts: List[Any]) -> Any:
        values = dict(zip(keys, parts))
        items = [(key, values[key]) for key in order]
        if kind is dict or kind is collections.OrderedDict:
            return kind(items)
        # A subclass of which nobody knows how it is made, such as a defaultdict.
        made = copy.copy(tree)
        made.update(items)
        return made

    suffixes = [f"[{key!r}]" for key in keys]
    return (kind, tuple(keys)), [tree[key] for key in keys], suffixes, build


def _of_dataclass(tree: Any) -> _Node:
    kind = type(tree)
    fields = [f for f in dataclasses.fields(tree) if not f.metadata.get("static", False)]
    names = [f.name for f in fields]
    static = [f.name for f in dataclasses.fields(tree) if f not in fields]
    kept = {name: getattr(tree, name) for name in static}

    def build(parts: List[Any]) -> Any:
        # Not by its constructor, which may compute fields or refuse what stands for a tensor.
        made = object.__new__(kind)
        for name, value in (*kept.items(), *zip(names, parts)):
            object.__setattr__(made, name, value)
        return made

    parts = [getattr(tree, name) for name in names]
    return (kind, tuple(names), repr(kept)), parts, [f".{name}" for name in names], build


def _of_module(module: Module, leaves: List[Any]) -> TreeDef:
    named = list(_tensors(module))
    leaves.extend(tensor for _, tensor in named)
    names = tuple(name for name, _ in named)
    keys = [_key(tensor) for _, tensor in named]

    def build(parts: List[Any]) -> Any:
        return _with_tensors(module, dict(zip(keys, parts)))

    suffixes = [f".{name}" for name in names]
    return TreeDef((type(module), names), (), suffixes, build, leaves=len(names))


def _up_to(structure: TreeDef, tree: Any, what: str) -> List[Any]:
    """What a tree has where the structure has leaves. Raises ValueError if it has other nodes."""
    found: List[Any] = []
    _collect(structure, tree, what, found)
    return found


def _collect(structure: TreeDef, tree: Any, where: str, found: List[Any]) -> None:
    if structure._of == _LEAF:
        found.append(tree)
        return
    if isinstance(tree, Module):
        own: List[Any] = []
        other: Optional[TreeDef] = _of_module(tree, own)
        parts: List[Any] = []
    elif tree is None:
        own, parts, other = [], [], _NOTHING
    else:
        own, node = [], _node(tree)
        other = None if node is None else TreeDef(node[0], (), node[2], node[3], leaves=0)
        parts = [] if node is None else node[1]
    if other is None or other._of != structure._of:
        wanted, has = _described(structure), _described(other) if other else f"a {_kind(tree)}"
        raise ValueError(f"{where} is {has}, not {wanted}")
    if len(parts) != len(structure._children):
        n, m = len(parts), len(structure._children)
        raise ValueError(f"{where} has {n} parts, not {m}")
    found.extend(own)
    for child, part, suffix in zip(structure._children, parts, structure._suffixes):
        _collect(child, part, where + suffix, found)


def _kind(tree: Any) -> str:
    return type(tree).__name__


def _described(structure: TreeDef) -> str:
    """A node for an error: its type, and its keys if it has some."""
    kind, keys = structure._of[0], structure._of[1:]
    if structure._of == _NONE:
        return "None"
    if kind is dict:
        return f"a dict with the keys {', '.join(map(repr, keys[0])) or 'none'}"
    if keys:
        return f"a {kind.__name__} of {', '.join(keys[0]) or 'nothing'}"
    return f"a {kind.__name__}"


# ---- prefixes ----


def _spread(prefix: Any, tree: Any, what: str) -> List[Any]:
    """For each leaf of a tree the leaf of a prefix that it lies below; None is a leaf of prefixes.

    Raises ValueError if the prefix has nodes that the tree does not have.
    """
    leaves: List[Any] = []
    _spread_into(prefix, tree, what, leaves)
    return leaves


def _spread_into(prefix: Any, tree: Any, where: str, leaves: List[Any]) -> None:
    if isinstance(prefix, (int, np.integer)) or prefix is None:
        leaves.extend([prefix] * len(tree_leaves(tree)))
        return
    if isinstance(prefix, Module):
        own: List[Any] = []
        structure = _of_module(prefix, own)
        if _of_module(tree, []) != structure if isinstance(tree, Module) else True:
            raise ValueError(f"{where} is {_described(structure)}, but what it is for is a {_kind(tree)}")
        leaves.extend(own)
        return
    node, other = _node(prefix), _node(tree) if not isinstance(tree, Module) else None
    if node is None:
        raise TypeError(f"{where} is {prefix!r}; an axis is an integer or None")
    # A list does for a tuple, as many as there are.
    same = other is not None and (node[0] == other[0] or _alike(node[0], other[0]))
    if other is None or not same or len(node[1]) != len(other[1]):
        shape = f"{len(node[1])} parts"
        has = f"a {_kind(tree)}" + (f" of {len(other[1])}" if other else "")
        raise ValueError(f"{where} is a {_kind(prefix)} of {shape}, but what it is for is {has}")
    for axes, part, suffix in zip(node[1], other[1], node[2]):
        _spread_into(axes, part, where + suffix, leaves)


def _alike(a: Tuple[Any, ...], b: Tuple[Any, ...]) -> bool:
    return a in ((tuple,), (list,)) and b in ((tuple,), (list,))


# ---- modules with other tensors ----


def _key(tensor: Tensor) -> Tuple[str, int]:
    """What tells tensors in modules apart: all names of a parameter are one."""
    number = parameter_id(tensor)
    return ("tensor", id(tensor)) if number is None else ("parameter", number)


def _with_tensors(module: Module, values: Dict[Tuple[str, int], Any]) -> Module:
    """A copy of a module with values in place of its tensors. What holds none is shared."""
    copied: Module = _copied(module, values, _holders(module), {})
    return copied


def _holders(root: Any) -> Set[int]:
    """The root and the objects below it that hold tensors, as far as they do, by their addresses."""
    readers: Dict[int, List[int]] = {}
    entered: Dict[int, Any] = {id(root): root}
    stack, reached = [root], [id(root)]
    while stack:
        part = stack.pop()
        for inner in _inner(part):
            if isinstance(inner, Tensor):
                reached.append(id(part))
                continue
            readers.setdefault(id(inner), []).append(id(part))
            if id(inner) not in entered:
                entered[id(inner)] = inner
                stack.append(inner)
    holders: Set[int] = set()
    while reached:
        at = reached.pop()
        if at not in holders:
            holders.add(at)
            reached.extend(readers.get(at, ()))
    return holders


def _inner(part: Any) -> List[Any]:
    """What an object holds; for a method, the object that it belongs to."""
    if isinstance(part, types.MethodType):
        return [part.__self__]
    return [inner for _, inner in _parts(part) or ()]


def _copied(part: Any, values: Dict[Any, Any], holders: Set[int], made: Dict[int, Any]) -> Any:
    if isinstance(part, Tensor):
        return values.get(_key(part), part)
    if id(part) in made:
        return made[id(part)]
    if id(part) not in holders:
        return part
    again = lambda inner: _copied(inner, values, holders, made)
    if isinstance(part, types.MethodType):
        return types.MethodType(part.__func__, again(part.__self__))
    if isinstance(part, tuple):
        items = [again(inner) for inner in part]
        # A list in it may lead back to it, and has then made it.
        if id(part) not in made:
            named = hasattr(part, "_fields")
            made[id(part)] = type(part)(*items) if named else type(part)(items)
        return made[id(part)]
    if isinstance(part, list):
        new_list = made[id(part)] = copy.copy(part)
        new_list[:] = [again(inner) for inner in part]
        return new_list
    if isinstance(part, dict):
        new_dict = made[id(part)] = copy.copy(part)
        new_dict.update({key: again(inner) for key, inner in part.items()})
        return new_dict
    if isinstance(part, Mapping):
        kind = type(part).__name__
        raise TypeError(f"a module holds tensors in a {kind}, which can't be copied; use a dict")
    new = object.__new__(type(part)) if isinstance(part, Module) else copy.copy(part)
    made[id(part)] = new
    for name, inner in _parts(part) or ():
        # Not by a class's own way to set attributes, which may do more.
        if name in getattr(part, "__dict__", ()):
            new.__dict__[name] = again(inner)
        else:
            object.__setattr__(new, name, again(inner))
    return new
