"""Tensors from numbers and lists: dtypes, shapes, ragged ones, tensors inside, abuse."""

import collections
import fractions
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uopc
from uopc import Tensor


def check(t, dtype, values):
    assert (t.dtype.name, t.tolist()) == (dtype, values)


def test_dtypes_of_numbers():
    check(Tensor(1), "i32", 1)
    check(Tensor(1.5), "f32", 1.5)
    check(Tensor(True), "bool", True)
    check(Tensor([1, 2.5]), "f32", [1, 2.5])
    check(Tensor([True, 2]), "i32", [1, 2])
    check(Tensor([True, 2.5]), "f32", [1, 2.5])
    check(Tensor([True, False]), "bool", [True, False])
    check(Tensor((1, (2))), "i32", [1, 2])
    check(Tensor([]), "f32", [])
    assert math.isnan(Tensor([float("nan")]).item())


def test_numpy_says_the_dtype():
    check(Tensor(np.float64(1)), "f64", 1.0)
    check(Tensor(np.int8(1)), "i8", 1)
    check(Tensor(np.bool_(True)), "bool", True)
    check(Tensor([np.float64(1), 2]), "f64", [1, 2])
    check(Tensor([np.float16(1), 2.5]), "f16", [1, 2.5])
    check(Tensor([np.int64(1), 2.5]), "f32", [1, 2.5])
    check(Tensor([np.int8(1), np.int16(2), True]), "i16", [1, 2, 1])
    check(Tensor([np.arange(2), np.arange(2)]), "i64", [[0, 1], [0, 1]])
    check(Tensor([np.arange(2, dtype=np.float32), np.arange(2)[::-1]]), "f32", [[0, 1], [1, 0]])
    check(Tensor([[np.uint8(1), 2], [3, 4]]), "u8", [[1, 2], [3, 4]])


def test_a_dtype_is_taken_in_one_step():
    check(Tensor(0.1, dtype="f64"), "f64", 0.1)
    check(Tensor([0.1, 1], dtype=uopc.f64), "f64", [0.1, 1.0])
    check(Tensor(2**40, dtype="i64"), "i64", 2**40)
    check(Tensor([2**63], dtype="u64"), "u64", [2**63])
    check(Tensor([1.9, -1.9, float("nan"), 1e20], dtype="i32"), "i32", [1, -1, 0, 2**31 - 1])
    check(Tensor([0, 2], dtype=bool), "bool", [False, True])
    # Just above the middle of two f16 neighbours; by way of f32 it would round to the lower one.
    x = 1 + 2**-11 + 2**-40
    check(Tensor([x], dtype="f16"), "f16", [1 + 2**-10])
    check(Tensor(x, dtype="f16"), "f16", 1 + 2**-10)
    check(Tensor([2**100], dtype="f32"), "f32", [2.0**100])


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: Tensor(2**31), "2147483648 does not fit i32.*uopc.i64"),
        (lambda: Tensor([[0], [-(2**40)]]), r"-1099511627776 at \[1\]\[0\] does not fit i32"),
        (lambda: Tensor([1, 2**63]), r"at \[1\].*uopc.u64"),
        (lambda: Tensor([300], dtype="u8"), "300.*u8"),
        (lambda: Tensor(-1, dtype="u32"), "-1.*u32"),
        (lambda: Tensor([np.int8(1), 300]), "300.*i8"),
        (lambda: Tensor([10**40]), "float"),
    ],
)
def test_integers_that_do_not_fit(make, text):
    with pytest.raises(OverflowError, match=text):
        make()


@pytest.mark.parametrize(
    "data, text",
    [
        ([[1, 2], [3]], r"\[1\] has 1 entries, where 2 came before"),
        ([[1], [2, 3]], r"\[1\] has 2 entries, where 1 came before"),
        ([1, [2]], r"\[1\] has a list of 1, where a number came before"),
        ([[1], 2], r"\[1\] has no list, where one of 1 came before"),
        ([[], 1], r"\[1\] has no list"),
        ([[], [1]], r"\[1\] has 1 entries, where 0 came before"),
        ([[[1], [2]], [[3], [4, 5]]], r"\[1\]\[1\] has 2 entries"),
        ([np.zeros(2), np.zeros(3)], r"\[1\] has shape \(3,\), where \(2,\) came before"),
        ([np.zeros(2), 1], r"\[1\] has shape \(\), where \(2,\) came before"),
        ([np.zeros(2), [1, 2, 3]], r"\[1\] has 3 entries, where 2 came before"),
    ],
)
def test_ragged_lists(data, text):
    with pytest.raises(ValueError, match=f"Tensor: .*{text}.*pad.*test_interop_lists.py"):
        Tensor(data)


def test_other_sequences():
    check(Tensor(range(3)), "i32", [0, 1, 2])
    check(Tensor([range(2), (5, 6)]), "i32", [[0, 1], [5, 6]])
    check(Tensor(collections.deque([1.5, 2])), "f32", [1.5, 2])
    check(Tensor(collections.namedtuple("P", "x y")(1, 2)), "i32", [1, 2])
    for x in [fractions.Fraction(1, 2), {1: 2}, iter([1]), "12", b"12", None]:
        with pytest.raises(TypeError, match="Tensor: "):
            Tensor([x])


@given(st.data())
def test_nested_lists(data):
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4))
    number = data.draw(
        st.sampled_from(
            [st.integers(-(2**31), 2**31 - 1), st.booleans(), st.floats(width=32, allow_nan=False)]
        )
    )

    def nested(shape):
        if not shape:
            return data.draw(number)
        entries = [nested(shape[1:]) for _ in range(shape[0])]
        return data.draw(st.sampled_from([list, tuple]))(entries)

    def lists(x):
        return [lists(e) for e in x] if isinstance(x, (list, tuple)) else x

    x = nested(shape)
    t = Tensor(x)
    assert t.tolist() == lists(x)
    # Below an empty list nobody can see how many entries there would be.
    known = shape[: shape.index(0) + 1] if 0 in shape else shape
    assert t.shape == tuple(known)


def test_tensors_in_lists_keep_their_gradients():
    a, b = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0], requires_grad=True)
    t = Tensor([[a, b], [b * 2, np.float32([5, 6])]])
    check(t, "f32", [[[1, 2], [3, 4]], [[6, 8], [5, 6]]])
    (t * t).sum().backward()
    assert a.grad.tolist() == [2, 4] and b.grad.tolist() == [6 + 24, 8 + 32]
    s = a.sum()
    check(Tensor([s, 1, np.float64(2)]), "f64", [3, 1, 2])
    with pytest.raises(ValueError, match=r"\[1\] has shape \(\), where \(2,\) came before"):
        Tensor([a, 1.0])
    check(Tensor([Tensor([1, 2]), Tensor([3.5, 4])], dtype="f16"), "f16", [[1, 2], [3.5, 4]])


def test_a_tensor_of_a_tensor_is_another():
    t = Tensor([1.0, 2.0])
    u = Tensor(t)
    t += 1
    assert u.tolist() == [1, 2] and t.tolist() == [2, 3]
    w = Tensor([1.0], requires_grad=True)
    v = Tensor(w)
    (v * 3).sum().backward([w])
    assert w.grad.tolist() == [3]
    check(Tensor(t, dtype="i8"), "i8", [2, 3])


def test_lists_without_end_and_beyond_memory():
    endless = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        Tensor(endless)
    deep = 1.0
    for _ in range(64):
        deep = [deep]
    assert Tensor(deep).shape == (1,) * 64
    with pytest.raises(ValueError, match="64 deep"):
        Tensor([deep])
    many = [0] * 1000
    for _ in range(8):
        many = [many] * 1000
    with pytest.raises(MemoryError):
        Tensor(many)
    with pytest.raises(MemoryError):
        Tensor(np.broadcast_to(np.float64(0), (1 << 29, 1 << 29)))


def test_a_list_that_changes_while_it_is_read():
    class Array:
        def __init__(self, change):
            self.change = change

        def __array__(self, dtype=None, copy=None):
            self.change()
            return np.zeros((), np.float32)

    x = [1.0]
    x += [Array(x.clear), 2.0]
    with pytest.raises(ValueError, match="changed"):
        Tensor(x)
    y = [1.0]
    y += [Array(lambda: y.append(3.0)), 2.0]
    with pytest.raises(ValueError, match="changed"):
        Tensor(y)


def test_numbers_out():
    for x in (2**53 + 1, -(2**63), 2**63 - 1):
        assert Tensor([x], dtype="i64").item() == x == Tensor([x], dtype="i64").tolist()[0]
    assert Tensor(2**64 - 1, dtype="u64").item() == 2**64 - 1
    assert type(Tensor(True).item()) is bool and type(Tensor(1).item()) is int
    assert type(Tensor(1.0).item()) is float and Tensor([[0.1]], dtype="f64").item() == 0.1
    with pytest.raises(ValueError, match=r"item: shape \(2,\) has 2 elements.*test_interop_lists"):
        Tensor([1, 2]).item()
    with pytest.raises(ValueError, match="0 elements"):
        Tensor([]).item()
    assert Tensor(np.zeros((2, 0, 3))).tolist() == [[], []]
    with pytest.raises(MemoryError, match="tolist"):
        Tensor.zeros(1 << 41, 1, 0).tolist()
    assert bytes(Tensor([1, 256], dtype="i16")) == np.array([1, 256], np.int16).tobytes()
