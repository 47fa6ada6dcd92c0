"""Every public name of the package has a docstring, and its examples do what they say."""

import doctest
import inspect
import types

import numpy as np
import pytest

import uopc
import uopc.composite
import uopc.data
import uopc.diagnose
import uopc.gradient
import uopc.io
import uopc.kernelize
import uopc.nn
import uopc.rules
import uopc.tensor
import uopc.memory
import uopc.transform
import uopc.tree
import uopc.uop

MODULES = [
    uopc,
    uopc.composite,
    uopc.data,
    uopc.diagnose,
    uopc.gradient,
    uopc.io,
    uopc.kernelize,
    uopc.nn,
    uopc.nn.functional,
    uopc.rules,
    uopc.tensor,
    uopc.memory,
    uopc.transform,
    uopc.tree,
    uopc.uop,
]


def public(names):
    return [name for name in names if not name.startswith("_")]


def members(owner, name):
    """The object of that name and, for a class of ours, what it defines, by dotted name."""
    value = inspect.getattr_static(owner, name)
    yield name, value
    if inspect.isclass(value) and value.__module__.split(".")[0] == "uopc":
        for own in public(vars(value)):
            yield f"{name}.{own}", vars(value)[own]


def documented():
    """All that can have a docstring, each once, as (dotted name, docstring)."""
    seen = set()
    for module in MODULES:
        yield module.__name__, module.__doc__
        for name in module.__all__:
            for dotted, value in members(module, name):
                if isinstance(value, (staticmethod, classmethod)):
                    value = value.__func__
                if id(value) in seen or isinstance(value, types.ModuleType):
                    continue
                seen.add(id(value))
                is_code = callable(value) or inspect.isdatadescriptor(value)
                # A constant is explained by its class.
                if is_code:
                    yield f"{module.__name__}.{dotted}", value.__doc__


DOCUMENTED = list(documented())


def test_there_is_much_to_check():
    assert len(DOCUMENTED) > 150


@pytest.mark.parametrize("name, text", DOCUMENTED, ids=[name for name, _ in DOCUMENTED])
def test_docstring(name, text):
    assert text and text.strip(), f"{name} has no docstring"
    names = {"uopc": uopc, "Tensor": uopc.Tensor, "np": np}
    example = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    report = []
    runner = doctest.DocTestRunner(optionflags=options)
    runner.run(example, out=report.append)
    assert not runner.failures, "".join(report)
