"""The example that uses all of the public interface with types: it runs, and leaves nothing out.

That mypy is content with it, and that the stubs agree with the package, is checked with the wheel.
"""

import ast
import inspect
import pathlib

import uopc
from uopc import composite, data, diagnose, gradient, io, kernelize, memory, nn, rules
from uopc import transform, tree, uop

import typed

def test_the_example_runs():
    assert typed.main() > 100


def public_names():
    """Every name of the package's modules, and every attribute of its classes."""
    modules = (composite, data, diagnose, gradient, io, kernelize, memory, nn, nn.functional, rules)
    for module in (uopc, *modules, transform, tree, uop):
        for name in module.__all__:
            yield name
            object = getattr(module, name)
            # The ops are data, listed by `uopc ops`.
            if inspect.isclass(object) and object is not uop.Ops:
                own = [n for c in object.__mro__ if c.__module__.startswith("uopc") for n in vars(c)]
                yield from (n for n in own if not n.startswith("_"))


def test_the_example_uses_every_public_name():
    tree = ast.parse(pathlib.Path(typed.__file__).read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    # What a subclass defines and what dunder syntax calls.
    used |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert sorted(set(public_names()) - used) == []
