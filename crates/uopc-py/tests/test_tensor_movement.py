"""Methods that move elements, against NumPy."""

import numpy as np
import pytest

from uopc import Tensor

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def same(result, expected):
    assert isinstance(result, Tensor) and result.shape == expected.shape
    np.testing.assert_array_equal(result.numpy(), expected)


@pytest.mark.parametrize("shape", [(6, 4), (-1,), (2, -1), (4, 1, 6), (2, 3, 4)])
def test_reshape(shape):
    t = Tensor(X)
    for result in (t.reshape(shape), t.reshape(*shape), t.reshape(list(shape)), t.view(*shape)):
        same(result, X.reshape(shape))


def test_reshape_refuses():
    t = Tensor(X)
    for shape in ((5,), (-1, -1), (7, -1)):
        with pytest.raises(ValueError, match="reshape"):
            t.reshape(shape)
    with pytest.raises(TypeError, match="integer"):
        t.reshape(2.0, 12)
    with pytest.raises(TypeError, match="integer"):
        t.reshape("24")
    with pytest.raises(NotImplementedError, match="row-major"):
        t.reshape(24, order="F")
    same(Tensor([[3.0]]).reshape(()), np.float32(3))
    same(t.reshape(np.int64(4), 6), X.reshape(4, 6))
    same(t.reshape(np.array([4, 6])), X.reshape(4, 6))
    same(np.reshape(t, (4, 6)), X.reshape(4, 6))


def test_flatten():
    t = Tensor(X)
    same(t.flatten(), X.ravel())
    same(t.ravel(), X.ravel())
    same(t.flatten(1), X.reshape(2, 12))
    same(t.flatten(0, 1), X.reshape(6, 4))
    same(t.flatten(start_dim=-2, end_dim=-1), X.reshape(2, 12))
    same(Tensor(1.0).flatten(), np.float32([1]))
    with pytest.raises(ValueError, match="flatten: axis"):
        t.flatten(3)


def test_orders_of_axes():
    t = Tensor(X)
    same(t.permute(2, 0, 1), X.transpose(2, 0, 1))
    same(t.permute((2, -3, 1)), X.transpose(2, 0, 1))
    same(t.transpose(), X.swapaxes(-1, -2))
    same(t.transpose(None), X.T)
    same(t.transpose(0, 2), X.swapaxes(0, 2))
    same(t.transpose((1, 2, 0)), X.transpose(1, 2, 0))
    same(t.transpose(1, 2, 0), X.transpose(1, 2, 0))
    same(t.T, X.T)
    same(t.mT, X.swapaxes(-1, -2))
    same(t.swapaxes(0, -1), X.swapaxes(0, -1))
    same(t.swapdims(0, 1), X.swapaxes(0, 1))
    same(np.transpose(t), X.T)
    same(np.transpose(t, (1, 0, 2)), X.transpose(1, 0, 2))
    same(np.swapaxes(t, 0, 1), X.swapaxes(0, 1))
    same(Tensor([1.0]).T, np.float32([1]))
    same(Tensor(1.0).transpose(), np.float32(1))
    for order in ((0, 1), (0, 0, 1), (0, 1, 3), (0, 1, 2, 3)):
        with pytest.raises(ValueError, match="permute"):
            t.permute(order)
    with pytest.raises(ValueError, match="axis 3"):
        t.transpose(0, 3)


def test_expand():
    row = np.float32([[1], [2]])
    same(Tensor(row).expand(2, 3), np.broadcast_to(row, (2, 3)))
    same(Tensor(row).expand((4, -1, 3)), np.broadcast_to(row, (4, 2, 3)))
    same(Tensor(row).broadcast_to((2, 3)), np.broadcast_to(row, (2, 3)))
    with pytest.raises(ValueError, match="expand"):
        Tensor(row).expand(3, 3)


def test_pad_and_shrink():
    padding = ((0, 0), (1, 2), (0, 1))
    same(Tensor(X).pad(padding), np.pad(X, padding))
    same(Tensor(X).pad([None, [1, 2], np.array([0, 1])]), np.pad(X, padding))
    same(Tensor(X).shrink(((0, 1), (1, 3), (0, 4))), X[0:1, 1:3])
    same(Tensor(X).shrink((None, (1, 3), None)), X[:, 1:3])
    with pytest.raises(ValueError):
        Tensor(X).pad(((0, 0), (1, 2)))
    with pytest.raises(ValueError, match="negative"):
        Tensor(X).pad(((0, 0), (-1, 2), (0, 1)))
    for padding in (1, (1, 2), ((1, 2, 3),) * 3, "ab", ((0.5, 1),) * 3):
        with pytest.raises(TypeError):
            Tensor(X).pad(padding)
    with pytest.raises(ValueError):
        Tensor(X).shrink(((0, 3), None, None))


def test_flip():
    t = Tensor(X)
    same(t.flip(1), X[:, ::-1])
    same(t.flip((0, 2)), X[::-1, :, ::-1])
    same(t.flip(0, -1), X[::-1, :, ::-1])
    same(t.flip(), np.flip(X))
    same(t.flip(None), np.flip(X))
    same(np.flip(t, 1), X[:, ::-1])
    with pytest.raises(ValueError, match="flip"):
        t.flip(3)
    with pytest.raises(ValueError, match="twice"):
        t.flip(0, 0)


def test_axes_of_extent_one():
    t = Tensor(X)
    same(t.unsqueeze(0), X[None])
    same(t.unsqueeze(-1), X[..., None])
    same(t.unsqueeze(dim=1), X[:, None])
    same(t.unsqueeze(1).squeeze(), X)
    same(t.unsqueeze(1).squeeze(1), X)
    same(t[None, :, None].squeeze((0, 2)), X)
    same(t.unsqueeze(0).squeeze(dim=0), X)
    same(np.squeeze(t.unsqueeze(0)), X)
    with pytest.raises(ValueError, match="extent 3, not 1"):
        t.squeeze(1)
    with pytest.raises(ValueError, match="unsqueeze"):
        t.unsqueeze(5)
    with pytest.raises(TypeError, match="two names"):
        t.unsqueeze(0, dim=0)
    with pytest.raises(TypeError):
        t.unsqueeze()


def test_joining():
    a, b = Tensor(X), Tensor(X[:, :1])
    same(Tensor.cat([a, b], 1), np.concatenate([X, X[:, :1]], 1))
    same(Tensor.cat((a, b), dim=-2), np.concatenate([X, X[:, :1]], 1))
    same(Tensor.concat([a, a]), np.concatenate([X, X]))
    same(Tensor.concatenate([a, X], axis=2), np.concatenate([X, X], 2))
    same(Tensor.stack([a, a + 1], axis=1), np.stack([X, X + 1], 1))
    same(Tensor.stack([a, a], dim=-1), np.stack([X, X], -1))
    same(Tensor.stack(t for t in (a, a)), np.stack([X, X]))
    same(a.stack_with(a * 2), np.stack([X, X * 2]))
    assert Tensor.cat([Tensor([1]), Tensor([0.5])]).dtype == "f32"
    for join in (Tensor.cat, Tensor.stack):
        with pytest.raises(ValueError, match="at least one"):
            join([])
        with pytest.raises(TypeError, match="list of tensors"):
            join(3)
    with pytest.raises(ValueError):
        Tensor.cat([a, b], 0)
    with pytest.raises(ValueError):
        Tensor.stack([a, b])
