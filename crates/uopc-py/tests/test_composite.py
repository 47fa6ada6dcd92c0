"""Composite operations on nodes: values against NumPy, shapes, errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uopc import Tensor
from uopc.composite import cat, flip, pad, sum_to, zeros_like
from uopc.uop import Ops, UOp

shapes = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)


def pair(shape, dtype=np.float32):
    """The same numbers for NumPy and as a node."""
    array = (np.arange(np.prod(shape, dtype=int)) + 1).reshape(shape).astype(dtype)
    tensor = Tensor(array)
    return array, tensor.uop


def check(node, expected):
    got = Tensor(node).numpy()
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@given(shapes, st.data())
def test_pad(shape, data):
    array, node = pair(shape)
    side = st.integers(0, 9)
    padding = tuple((data.draw(side), data.draw(side)) for _ in shape)
    check(pad(node, padding), np.pad(array, padding))


@given(shapes, st.data())
def test_flip(shape, data):
    array, node = pair(shape, np.int64)
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    check(flip(node, axes), np.flip(array, axes))
    check(flip(node, 0), np.flip(array, 0))


@given(shapes, st.data())
def test_sum_to(shape, data):
    array, node = pair(shape)
    keep = [data.draw(st.booleans()) for _ in shape]
    to = tuple(n if k else 1 for n, k in zip(shape, keep))
    axes = tuple(i for i, (n, m) in enumerate(zip(shape, to)) if n != m)
    check(sum_to(node, to), array.sum(axes, keepdims=True))


@given(shapes, st.data())
def test_cat(shape, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    parts = []
    for extent in data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=5)):
        parts.append(pair(shape[:axis] + (extent,) + shape[axis + 1:]))
    arrays, nodes = zip(*parts)
    check(cat(nodes, axis), np.concatenate(arrays, axis))


def test_zeros_like():
    for dtype in (np.float16, np.int8, np.bool_, np.float64):
        array, node = pair((2, 3), dtype)
        check(zeros_like(node), np.zeros_like(array))
    assert zeros_like(UOp.const(3.0)) == UOp.const(0.0)


def test_padding_takes_few_nodes():
    few = len(pad(UOp.buffer(10), ((1000, 100_000),)).toposort())
    assert few < 100
    assert pad(UOp.buffer(3), ((0, 0),)) == UOp.buffer(3)


def test_errors():
    x = UOp.buffer(6).reshape(2, 3)
    for wrong in (lambda: pad(x, ((1, 1),)), lambda: pad(x, ((1,), (1, 1))), lambda: sum_to(x, (2, 2)),
                  lambda: pad(x, ((-1, 0), (0, 0))), lambda: sum_to(x, (3,)), lambda: flip(x, 2),
                  lambda: flip(x, -1), lambda: cat([]), lambda: cat([x, x], 2),
                  lambda: cat([x, UOp.buffer(3)]), lambda: pad(x, ((2**63 - 1, 0), (0, 0)))):
        with pytest.raises(ValueError):
            wrong()
    for wrong in (lambda: pad(1, ()), lambda: pad(x, 1), lambda: sum_to(x, 1.5), lambda: flip(x, "0"),
                  lambda: zeros_like(Tensor([1.0])), lambda: cat(x), lambda: cat([x, 1]),
                  lambda: cat([x, x.cast("f16")])):
        with pytest.raises(TypeError):
            wrong()


def test_a_flip_is_an_index():
    assert flip(UOp.buffer(3), 0).op is Ops.INDEX and flip(UOp.buffer(1), 0) == UOp.buffer(1)
