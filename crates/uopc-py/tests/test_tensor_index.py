"""Parts of tensors, read and written, against NumPy."""

import numpy as np
import pytest

from uopc import Tensor

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
s = np.s_
KEYS = [
    s[0],
    s[-1],
    s[1, 2],
    s[1, 2, 3],
    s[:],
    s[1:],
    s[:, 1:3],
    s[..., 0],
    s[..., ::2],
    s[::-1],
    s[:, ::-2, 1:],
    s[2:0:-1],
    s[10:20],
    s[-100:100],
    s[2:1],
    s[None],
    s[:, None, 1],
    s[..., None],
    s[0, ..., -1],
    s[...],
    s[()],
    s[:, :, :, ...],
    s[1:2, -3:, ::3],
    s[:, 3:0:-2],
    s[10**30 :],
    s[: -(10**30) : -1],
    s[:: 10**30],
    s[np.int64(1), np.uint8(2)],
    s[: np.int32(2)],
    s[np.array(1)],
    s[True and 1],
]


def same(result, expected):
    assert isinstance(result, Tensor) and result.shape == expected.shape
    np.testing.assert_array_equal(result.numpy(), expected)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_read(key):
    same(Tensor(X)[key], X[key])


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_write(key):
    expected = X.copy()
    part = expected[key]
    value = np.float32(100) + np.arange(part.size, dtype=np.float32).reshape(part.shape)
    expected[key] = value
    t = Tensor(X)
    t[key] = Tensor(value)
    same(t, expected)
    same(Tensor(X).with_slice(key, value), expected)
    expected[key] = 7
    t[key] = 7
    same(t, expected)


def test_scalars():
    t = Tensor(5.0)
    same(t[...], np.float32(5))
    same(t[()], np.float32(5))
    same(t[None], np.float32([5]))
    with pytest.raises(IndexError, match="0 axes"):
        t[0]


@pytest.mark.parametrize("key", [s[3], s[-4], s[0, 4], s[0, 0, 0, 0], s[..., ...], s[10**30]], ids=str)
def test_what_is_not_there(key):
    with pytest.raises(IndexError):
        Tensor(X)[key]
    with pytest.raises(IndexError):
        Tensor(X)[key] = 1


def test_steps_of_zero():
    with pytest.raises(ValueError, match="step of 0"):
        Tensor(X)[::0]


MANY = [
    s[[0, 1]],
    s[np.array([0, -1])],
    s[np.array([[2, 1], [0, 0]], np.uint8)],
    s[:, [0, 1]],
    s[[0, 1], [2, 3]],
    s[[0, 1], :, [2, 3]],
    s[[[0], [1]], :, [[0, 1]]],
    s[0, :, [1, 2]],
    s[..., [1, 2], None],
    s[[2, 0], None, 1, ::-2],
    s[()],
    s[[]],
    s[True],
    s[:, False],
    s[X > 30],
    s[X[:, :, 0] > 7],
    s[[True, False, True]],
    s[:, X[0, :, 0] > 4, [1]],
    s[1, X[0] > 7],
    s[np.array(2), [1, 1]],
]


def as_tensors(key):
    """The index with tensors in place of arrays and lists."""
    many = lambda k: Tensor(np.array(k)) if isinstance(k, (list, np.ndarray)) and np.size(k) else k
    return tuple(map(many, key)) if isinstance(key, tuple) else many(key)


@pytest.mark.parametrize("key", MANY, ids=str)
def test_arrays_lists_tensors_and_masks(key):
    expected = X[key]
    t = Tensor(X)
    same(t[key], expected)
    same(t[as_tensors(key)], expected)
    value = -np.arange(expected.size, dtype=np.float32).reshape(expected.shape)
    for value in (value, np.float32(7)):
        written = X.copy()
        written[key] = value
        for k in (key, as_tensors(key)):
            t = Tensor(X)
            t[k] = Tensor(value)
            same(t, written)
            same(Tensor(X).with_slice(k, value), written)


def test_positions_that_do_not_exist():
    t = Tensor(X)
    for key in ([3], [-4], s[:, [0, 4]], np.array([2**40]), np.array([2**63], np.uint64), s[[0], [9]]):
        with pytest.raises(IndexError, match="does not exist"):
            t[key]
        with pytest.raises(IndexError, match="does not exist"):
            t[key] = 1
    # What tensors hold is not known when the graph is made.
    same(t[Tensor([3, -1])], np.stack([0 * X[0], X[-1]]))
    t[Tensor([3, -4])] = 1
    same(t, X)
    for key in ([0.5], Tensor([1.0]), np.ones(3)):
        with pytest.raises(IndexError, match="integers or bools"):
            t[key]
    for key in (X[0] > 0, s[[0, 1], [0, 1, 2]], s[[0], [0], [0], [0]], s[[0], ..., ...]):
        with pytest.raises(IndexError):
            t[key]
    with pytest.raises(ValueError, match="set_index: shapes|do not broadcast"):
        t[[0, 1]] = Tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="set_index: shapes|do not broadcast"):
        t[X > 30] = Tensor([1.0, 2.0])


def test_of_several_values_for_one_place_the_last_stays():
    expected, t = X.copy(), Tensor(X)
    at, values = [2, 0, 2, 2, 0], np.arange(5, dtype=np.float32)[:, None, None]
    expected[at] = values
    t[at] = values
    same(t, expected)
    t[Tensor(at)] = values * 2
    expected[at] = values * 2
    same(t, expected)
    t[[0, 0]] += 1
    expected[[0, 0]] += 1
    same(t, expected)


@pytest.mark.parametrize("key", ["a", 1.0, s[1.5:], s[0, "a"], object(), 1j], ids=str)
def test_no_indices(key):
    with pytest.raises(TypeError):
        Tensor(X)[key]


def test_values_broadcast():
    expected, t = X.copy(), Tensor(X)
    expected[1:, ::2] = X[0, :1]
    t[1:, ::2] = Tensor(X)[0, :1]
    same(t, expected)
    expected[0, 0] = [1, 2, 3, 4, 5]
    t[0, 0] = [1, 2, 3, 4, 5]
    same(t, expected)
    t[0] += 1
    expected[0] += 1
    same(t, expected)
    t[:, 1] *= Tensor(X)[:, 2]
    expected[:, 1] *= X[:, 2]
    same(t, expected)
    with pytest.raises(ValueError, match="set_slice: shapes"):
        t[0] = Tensor([1.0, 2.0])
    with pytest.raises(TypeError):
        Tensor([1, 2])[0] = 1.5
    with pytest.raises(TypeError):
        Tensor([1, 2])[0] = "a"
    with pytest.raises(TypeError):
        del t[0]


def test_writing_is_seen_under_all_names_and_not_in_what_was_computed():
    t = Tensor([1.0, 2.0, 3.0])
    name, twice, part = t, t * 2, t[1:]
    t[1] = 10
    same(name, np.float32([1, 10, 3]))
    same(twice, np.float32([2, 4, 6]))
    same(part, np.float32([2, 3]))


def test_gradients_of_parts():
    t = Tensor(X, requires_grad=True)
    (t[1:, ::-2, 2] * 3).sum().backward()
    expected = np.zeros_like(X)
    expected[1:, ::-2, 2] = 3
    same(t.grad, expected)
    a, b = Tensor([1.0, 2.0], requires_grad=True), Tensor(5.0, requires_grad=True)
    (a.with_slice(1, b) * Tensor([10.0, 20.0])).sum().backward()
    same(a.grad, np.float32([10, 0]))
    same(b.grad, np.float32(20))


def test_get_and_narrow():
    t = Tensor(X)
    same(t.get(1), X[1])
    same(t.get(-1), X[-1])
    with pytest.raises(IndexError):
        t.get(3)
    same(t.narrow(1, 1, 2), X[:, 1:3])
    same(t.narrow(-1, -2, 2), X[..., -2:])
    same(t.narrow(0, -3, 1), X[:1])
    same(t.narrow(2, 5, 0), X[..., 5:])
    for start, length in ((0, 6), (4, 2), (-6, 2), (2, -1), (2**62, 2**62), (-1, 2)):
        with pytest.raises(ValueError, match="range"):
            t.narrow(2, start, length)
    with pytest.raises(ValueError, match="narrow: axis"):
        t.narrow(3, 0, 1)


def test_take():
    t = Tensor(X)
    for positions in ([2, 0, -1], np.array([[0, 1], [2, 2]]), np.uint8([1])):
        same(t.take(positions), X.take(positions, axis=0))
        same(t.take(Tensor(positions)), X.take(positions, axis=0))
    same(t.take([59, 0], axis=None), X.take([59, 0]))
    same(t.take([0, 3]), np.stack([X[0], np.zeros_like(X[0])]))
    with pytest.raises(TypeError, match="positions are integers"):
        t.take([0.0])
    same(t.take([3, 1], axis=1), X.take([3, 1], axis=1))
    same(t.take([[3], [1]], axis=-1), X.take([[3], [1]], axis=-1))
    with pytest.raises(ValueError, match="axis 3"):
        t.take([0], axis=3)


def test_segment_sum():
    X = np.random.default_rng(4).standard_normal((5, 2, 3)).astype(np.float32)
    for dtype in (np.int8, np.int32, np.int64, np.uint8):
        at = np.array([3, 0, 3, 3, 9], dtype)
        expected = np.zeros((4, 2, 3), np.float32)
        np.add.at(expected, at[:4], X[:4])
        same(Tensor(X).segment_sum(Tensor(at), 4), expected)
    pairs = np.array([[0, -1], [1, 1], [-5, 0], [3, -4], [2, 2]], np.int64)
    expected = np.zeros((4, 3), np.float32)
    kept = pairs >= -4
    np.add.at(expected, pairs[kept], X[kept])
    same(Tensor(X).segment_sum(pairs, 4), expected)
    with pytest.raises(TypeError, match="positions are integers"):
        Tensor(X).segment_sum([0.5] * 5, 4)
    with pytest.raises(ValueError, match="do not fit"):
        Tensor(X).segment_sum([0, 1], 4)
    with pytest.raises(ValueError, match="-1 is no number"):
        Tensor(X).segment_sum([0] * 5, -1)


def test_one_hot():
    labels = np.array([[2, 0], [1, 5]], np.int32)
    expected = (labels[..., None] == np.arange(3)).astype(np.float32)
    same(Tensor(labels).one_hot(3), expected)
    with pytest.raises(TypeError, match="labels are integers"):
        Tensor([1.0]).one_hot(3)
