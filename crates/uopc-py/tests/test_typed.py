"""Types: the stubs agree with what is there, mypy is content with an example that uses all of it,
and the example runs."""

import ast
import inspect
import os
import pathlib
import subprocess
import sys

import pytest

import uopc
from uopc import Tensor, composite, gradient, kernelize, nn, uop

import typed

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = pathlib.Path(uopc.__file__).resolve().parent


def test_the_example_runs():
    assert typed.main() > 100


def public_names():
    """Every name of the package's modules, and every attribute of its classes."""
    for module in (uopc, composite, gradient, kernelize, nn, uop):
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


def run(*command):
    """Runs a module of Python that looks at the package's stubs."""
    environment = {**os.environ, "MYPYPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        capture_output=True,
        text=True,
        cwd=HERE,
        env=environment,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_is_content_with_the_example(tmp_path):
    pytest.importorskip("mypy")
    run("mypy", "--strict", "--cache-dir", tmp_path, "typed.py")


def test_stubs_agree_with_the_runtime():
    pytest.importorskip("mypy")
    run("mypy.stubtest", "uopc", "--allowlist", "stubtest-allowed.txt")
