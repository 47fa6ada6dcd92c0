"""Reductions, against NumPy."""

import numpy as np
import pytest

from uopc import Tensor

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
AXES = [None, 0, -1, (0, 2), (1,), (0, 1, 2), ()]
NAMES = ["sum", "mean", "prod", "max", "min", "amax", "amin", "any", "all", "var"]


def same(result, expected):
    expected = np.asarray(expected)
    assert isinstance(result, Tensor)
    assert result.shape == expected.shape and result.dtype == expected.dtype
    np.testing.assert_allclose(result.numpy(), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", NAMES)
def test_along_axes(name, axis):
    reference = getattr(np, name)
    t, reduce = Tensor(X), getattr(Tensor, name)
    same(reduce(t, axis), reference(X, axis))
    same(reduce(t, axis=axis, keepdims=True), reference(X, axis, keepdims=True))
    same(reduce(t, dim=axis, keepdim=True), reference(X, axis, keepdims=True))
    same(reduce(t, axis, True), reference(X, axis, keepdims=True))
    same(reduce(t, [axis] if isinstance(axis, int) else axis), reference(X, axis))


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "any", "all", "var"])
def test_numpy_functions(name):
    reference = getattr(np, name)
    same(reference(Tensor(X), 1), reference(X, 1))
    same(reference(Tensor(X), keepdims=True), reference(X, keepdims=True))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_refused(name):
    reduce = getattr(Tensor(X), name)
    for axis in (3, (0, 0), (0, -3)):
        with pytest.raises(ValueError, match=r"axis|twice"):
            reduce(axis)
    with pytest.raises(TypeError, match="two names"):
        reduce(0, dim=0)
    with pytest.raises(TypeError, match="two names"):
        reduce(0, keepdim=True, keepdims=True)
    with pytest.raises(TypeError, match="assign"):
        reduce(0, out=Tensor.zeros(3, 4))
    for axis in (0.0, "0", True):
        with pytest.raises(TypeError):
            reduce(axis)


def test_dtypes():
    small = np.full((300,), 100, np.int8)
    assert int(Tensor(small).sum()) == 30000
    assert Tensor([True, True]).sum().dtype == "i32"
    assert Tensor([1, 2]).mean().dtype == "f32"
    same(Tensor(small).sum(dtype="f64"), np.float64(30000))
    same(Tensor([2.7, 2.7]).sum(dtype=int), np.int32(4))
    same(Tensor([1, 2]).mean(dtype=np.float64), np.float64(1.5))
    same(Tensor([1, 2]).var(dtype="f64"), np.float64(0.25))
    same(np.sum(Tensor([1, 2]), dtype=np.float32), np.float32(3))


def test_variance_of_a_sample():
    same(Tensor(X).var(1, correction=1), X.var(1, ddof=1))
    same(Tensor(X).var(ddof=1, keepdims=True), X.var(ddof=1, keepdims=True))
    same(np.var(Tensor(X), 0, ddof=1), X.var(0, ddof=1))
    assert np.isnan(float(Tensor([1.0]).var(correction=1)))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name):
    reference, find = getattr(np, name), getattr(Tensor(X), name)
    for axis in (0, 1, -1, None):
        same(find(axis), reference(X, axis))
        same(find(axis=axis, keepdims=True), reference(X, axis, keepdims=True))
        same(find(dim=axis, keepdim=True), reference(X, axis, keepdims=True))
    same(reference(Tensor(X), 1), reference(X, 1))
    with pytest.raises(ValueError, match="axis 3"):
        find(3)
    with pytest.raises(ValueError, match="empty"):
        getattr(Tensor.zeros(0), name)()


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def test_softmax():
    for axis in (0, 1, -1):
        same(Tensor(X).softmax(axis), softmax(X, axis))
        same(Tensor(X).log_softmax(dim=axis), np.log(softmax(X, axis)))
    same(Tensor(X).softmax(), softmax(X, -1))
    same(Tensor(X).log_softmax(), np.log(softmax(X, -1)))
    with pytest.raises(ValueError, match="softmax"):
        Tensor(X).softmax(3)


def test_labels():
    logits, labels = X[0], np.array([1, 0, 3], np.int32)
    expected = -np.log(softmax(logits, -1))[np.arange(3), labels].mean()
    for given in (Tensor(labels), labels, labels.tolist(), Tensor(labels.astype(np.int64))):
        same(Tensor(logits).cross_entropy(given), expected)
        same(Tensor(logits).accuracy(given), np.float32((logits.argmax(-1) == labels).mean()))
    with pytest.raises(TypeError, match="labels are integers"):
        Tensor(logits).cross_entropy(Tensor([0.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match="do not fit"):
        Tensor(logits).cross_entropy(Tensor([0, 1]))


def test_matmul():
    same(Tensor(X).matmul(Tensor(X).mT), X @ X.swapaxes(1, 2))
    same(Tensor(X).matmul(X[0, 0]), X @ X[0, 0])
    with pytest.raises(ValueError, match="matmul"):
        Tensor(X).matmul(Tensor(X))


def test_empty():
    empty = Tensor.zeros(0, 3)
    same(empty.sum(0), np.zeros(3, np.float32))
    assert float(empty.prod()) == 1.0 and float(empty.max()) == -np.inf
    assert np.isnan(float(empty.mean()))
    assert not empty.any() and empty.all()
