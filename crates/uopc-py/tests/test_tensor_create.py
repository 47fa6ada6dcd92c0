"""Tensors from nothing."""

import threading

import numpy as np
import pytest

from uopc import Tensor

DTYPES = "f16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool".split()


def same(result, expected):
    assert isinstance(result, Tensor)
    assert result.shape == expected.shape and result.dtype == expected.dtype
    np.testing.assert_array_equal(result.numpy(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants(dtype):
    name = Tensor.zeros(1, dtype=dtype).numpy().dtype
    same(Tensor.zeros(2, 3, dtype=dtype), np.zeros((2, 3), name))
    same(Tensor.ones((2, 3), dtype=dtype), np.ones((2, 3), name))
    same(Tensor.full((2,), 1, dtype=dtype), np.ones(2, name))
    like = Tensor.zeros(2, 3, dtype=dtype)
    same(like.zeros_like(), np.zeros((2, 3), name))
    same(like.ones_like(), np.ones((2, 3), name))
    same(like.full_like(1), np.ones((2, 3), name))
    same(Tensor.ones_like(like, dtype="f32"), np.ones((2, 3), np.float32))
    same(Tensor.scalar(1, dtype=dtype), np.ones((), name))


def test_default_dtypes():
    assert Tensor.zeros(2).dtype == Tensor.ones(2).dtype == Tensor.randn(2).dtype == "f32"
    assert [Tensor.full(2, v).dtype.name for v in (1, 1.0, True)] == ["i32", "f32", "bool"]
    assert [Tensor.scalar(v).dtype.name for v in (1, 1.0, True)] == ["i32", "f32", "bool"]
    assert Tensor.full((), Tensor(2.5)).dtype == "f32"


def test_large_integers():
    same(Tensor.full(2, 2**40, dtype="i64"), np.full(2, 2**40))
    same(Tensor.full(2, 2**64 - 1, dtype="u64"), np.full(2, 2**64 - 1, np.uint64))
    with pytest.raises(TypeError, match="does not fit i32"):
        Tensor.full(2, 2**40)
    with pytest.raises(TypeError, match="does not fit u8"):
        Tensor.full(2, 256, dtype="u8")


@pytest.mark.parametrize("shape", [(-1,), (2, -3), (2**40, 2**40)])
def test_no_shapes(shape):
    for make in (Tensor.zeros, Tensor.ones, Tensor.randn, Tensor.rand, Tensor.uniform):
        with pytest.raises(ValueError):
            make(shape)
    with pytest.raises(ValueError):
        Tensor.full(shape, 1)


def test_shapes_are_integers():
    for shape in (2.0, "2", float("nan"), None, [2.5], True):
        with pytest.raises(TypeError, match="integer"):
            Tensor.zeros(shape)
    with pytest.raises(ValueError, match="beyond any size or position"):
        Tensor.zeros(2**70)
    assert Tensor.zeros(np.int64(2), Tensor(3)).shape == (2, 3)
    assert Tensor.zeros().shape == () and Tensor.zeros(()).shape == ()
    assert Tensor.zeros(range(1, 3)).shape == (1, 2)
    assert Tensor.zeros(Tensor.zeros(2, 3).shape).shape == (2, 3)


@pytest.mark.parametrize("bounds", [(5,), (2, 7), (0, 10, 3), (5, 0, -2), (0,), (3, 1), (-2,)])
def test_integer_sequences(bounds):
    same(Tensor.arange(*bounds), np.arange(*bounds, dtype=np.int32))
    for dtype in ("f32", "f64", "i8", "i64"):
        result = Tensor.arange(*bounds, dtype=dtype)
        same(result, np.arange(*bounds, dtype=result.numpy().dtype))


@pytest.mark.parametrize("bounds", [(2.5,), (0, 1, 0.1), (1.0, -1, -0.25), (np.float64(3),)])
def test_float_sequences(bounds):
    result = Tensor.arange(*bounds)
    same(result, np.arange(*bounds).astype(np.float32))
    np.testing.assert_allclose(Tensor.arange(*bounds, dtype="f64").numpy(), np.arange(*bounds))


def test_sequences_refuse():
    with pytest.raises(ValueError, match="no sequence"):
        Tensor.arange(0, 1, 0)
    with pytest.raises(ValueError, match="no sequence"):
        Tensor.arange(float("inf"))
    with pytest.raises(TypeError, match="does not fit i32"):
        Tensor.arange(2**40, 2**40 + 3)
    same(Tensor.arange(2**40, 2**40 + 3, dtype="i64"), np.arange(2**40, 2**40 + 3))
    with pytest.raises(TypeError):
        Tensor.arange("3")
    with pytest.raises(TypeError):
        Tensor.arange(Tensor(3))


def test_random_numbers():
    normal = Tensor.randn(20000).numpy()
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03
    unit = Tensor.rand(20000).numpy()
    assert 0 <= unit.min() and unit.max() < 1 and abs(unit.mean() - 0.5) < 0.02
    wide = Tensor.uniform((100, 200), low=-3.0, high=5.0).numpy()
    assert wide.shape == (100, 200)
    assert -3 <= wide.min() and wide.max() <= 5 and abs(wide.mean() - 1) < 0.1
    assert Tensor.randn(2, dtype="f64").dtype == "f64"
    assert Tensor.uniform(2, dtype="f16").dtype == "f16"
    with pytest.raises(TypeError, match="floats"):
        Tensor.randn(2, dtype="i32")


def test_seeds():
    def draw(seed):
        Tensor.manual_seed(seed)
        return Tensor.randn(5).numpy().tolist() + Tensor.rand(5).numpy().tolist()

    assert draw(3) == draw(3) != draw(4)
    assert draw(-1) == draw(2**64 - 1)
    for seed in (2**64, -(2**64)):
        with pytest.raises(ValueError, match="64 bits"):
            Tensor.manual_seed(seed)
    with pytest.raises(TypeError):
        Tensor.manual_seed(1.5)


def test_seeds_belong_to_threads():
    Tensor.manual_seed(3)
    first = Tensor.randn(3).numpy().tolist()
    Tensor.manual_seed(3)
    other = threading.Thread(target=lambda: Tensor.manual_seed(99))
    other.start()
    other.join()
    assert Tensor.randn(3).numpy().tolist() == first


def test_parameters():
    made = [
        Tensor.zeros(2, requires_grad=True),
        Tensor.ones(2, requires_grad=True),
        Tensor.full(2, 1.0, requires_grad=True),
        Tensor.randn(2, requires_grad=True),
        Tensor.rand(2, requires_grad=True),
        Tensor.uniform(2, requires_grad=True),
        Tensor.arange(2.0, requires_grad=True),
        Tensor.scalar(2.0, requires_grad=True),
        Tensor([1.0]).zeros_like(requires_grad=True),
        Tensor([1.0]).ones_like(requires_grad=True),
        Tensor([1.0]).full_like(2, requires_grad=True),
    ]
    assert all(t.requires_grad and t.is_leaf for t in made)
    with pytest.raises(TypeError, match="i32 has no gradients"):
        Tensor.arange(3, requires_grad=True)
