"""What Python's operators and conversions do with tensors."""

import math
import operator

import numpy as np
import pytest

import uopc
from uopc import Tensor

A = np.array([[1.5, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
B = np.array([2.0, 0.5, -1.5], np.float32)
I = np.array([[7, -7, 12], [5, 0, -1]], np.int32)
J = np.array([2, 3, -4], np.int32)
SAME = [operator.add, operator.sub, operator.mul, operator.truediv]
COMPARED = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
WHOLE = [operator.floordiv, operator.mod, operator.and_, operator.or_, operator.xor]


def same(result, expected):
    assert isinstance(result, Tensor)
    assert result.shape == expected.shape and result.dtype == expected.dtype
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("op", SAME + COMPARED)
def test_floats(op):
    same(op(Tensor(A), Tensor(B)), op(A, B))
    same(op(Tensor(A), 1.5), op(A, np.float32(1.5)))
    same(op(1.5, Tensor(A)), op(np.float32(1.5), A))
    same(op(2, Tensor(A)), op(np.float32(2), A))
    same(op(Tensor(A), B), op(A, B))


@pytest.mark.parametrize("op", WHOLE + COMPARED + SAME[:3])
def test_integers(op):
    same(op(Tensor(I), Tensor(J)), op(I, J))
    same(op(Tensor(I), 3), op(I, np.int32(3)))
    same(op(3, Tensor(J)), op(np.int32(3), J))


def test_numbers_beside_integers():
    assert (Tensor(I) * 0.5).dtype == "f32"
    assert (Tensor(I) / 2).dtype == "f32"
    assert (Tensor(I) + True).dtype == "i32"
    assert (Tensor(np.array([1], np.int8)) + 1).dtype == "i8"
    assert (Tensor([1.0]) + np.float64(2)).dtype == "f32"
    assert (Tensor([1.0]) * np.int64(2)).dtype == "f32"
    with pytest.raises(TypeError, match="300 does not fit i8"):
        Tensor(np.array([1], np.int8)) + 300


def test_signs():
    same(-Tensor(A), -A)
    same(+Tensor(A), A)
    same(abs(Tensor(A)), abs(A))
    same(~Tensor(I), ~I)
    t = Tensor(A)
    assert +t is t


def test_divmod():
    quotient, rest = divmod(Tensor(I), 4)
    same(quotient, I // 4)
    same(rest, I % 4)
    quotient, rest = divmod(17, Tensor(J))
    same(quotient, np.int32(17) // J)
    same(rest, np.int32(17) % J)


def test_powers():
    same(Tensor(A) ** 2, A**2)
    same(Tensor(I) ** 3, I**3)
    same(2 ** Tensor(np.abs(A)), np.float32(2) ** np.abs(A))
    same(Tensor(np.abs(A)) ** Tensor(A), np.abs(A) ** A)
    same(Tensor(I) << 2, I << 2)
    same(1 << Tensor(np.abs(I)), np.int32(1) << np.abs(I))
    same(Tensor(I) >> 1, I >> 1)
    with pytest.raises(TypeError, match="modulo"):
        pow(Tensor(I), 2, 3)
    with pytest.raises(TypeError):
        Tensor(A) ** "2"


def test_products_of_matrices():
    same(Tensor(A) @ Tensor(B), A @ B)
    same(Tensor(A) @ B, A @ B)
    same(Tensor(A) @ Tensor(A).T, A @ A.T)
    with pytest.raises(ValueError, match="matmul: shapes"):
        Tensor(A) @ Tensor(A)
    for product in (lambda: Tensor(A) @ 2.0, lambda: 2.0 @ Tensor(A)):
        with pytest.raises(ValueError, match="a scalar is no matrix"):
            product()


class Foreign:
    """Knows tensors, which do not know it."""

    def __radd__(self, other):
        return "radd"

    def __rmatmul__(self, other):
        return "rmatmul"

    def __gt__(self, other):
        return "gt"


def test_foreign_types_are_asked():
    t = Tensor(A)
    assert t + Foreign() == "radd"
    assert t @ Foreign() == "rmatmul"
    assert (t < Foreign()) == "gt"
    t += Foreign()
    assert t == "radd"


@pytest.mark.parametrize("other", ["text", None, [1, 2], {}, 1j, object()])
def test_foreign_types_are_no_operands(other):
    t = Tensor(A)
    for op in SAME + COMPARED[:4] + [operator.matmul, operator.pow, operator.iadd]:
        with pytest.raises(TypeError):
            op(t, other)
    assert (t == other) is False
    assert (t != other) is True


def test_integers_beyond_all_dtypes():
    with pytest.raises(OverflowError, match="does not fit"):
        Tensor(I) + 10**50


IN_PLACE = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}
IN_PLACE_WHOLE = {
    operator.ifloordiv: operator.floordiv,
    operator.imod: operator.mod,
    operator.iand: operator.and_,
    operator.ior: operator.or_,
    operator.ixor: operator.xor,
}


@pytest.mark.parametrize("op", IN_PLACE)
def test_in_place(op):
    t = Tensor(A)
    other_name, before = t, t * 1
    t = op(t, Tensor(B))
    assert t is other_name
    same(other_name, IN_PLACE[op](A, B))
    same(before, A)
    t = op(t, 2)
    assert t is other_name


@pytest.mark.parametrize("op", IN_PLACE_WHOLE)
def test_in_place_of_integers(op):
    t = Tensor(I)
    assert op(t, 5) is t
    same(t, IN_PLACE_WHOLE[op](I, np.int32(5)))


def test_in_place_powers_and_products():
    t = Tensor(A)
    other_name = t
    t **= 2
    same(other_name, A**2)
    m = Tensor(np.eye(3, dtype=np.float32))
    other_name = m
    m @= Tensor(np.full((3, 3), 2, np.float32))
    same(other_name, np.full((3, 3), 2, np.float32))


def test_in_place_keeps_dtype_and_shape():
    t = Tensor(I)
    with pytest.raises(TypeError):
        t += 0.5
    with pytest.raises(TypeError):
        t /= 2
    row = Tensor(B)
    with pytest.raises(ValueError):
        row += Tensor(A)
    same(t, I)
    same(row, B)


def test_conversions():
    assert int(Tensor(2.9)) == 2 and isinstance(int(Tensor(2.9)), int)
    assert float(Tensor([[7]])) == 7.0
    assert int(Tensor(np.array(2**63 + 1, np.uint64))) == 2**63 + 1
    assert int(Tensor(np.array(-(2**62) - 1))) == -(2**62) - 1
    assert math.isnan(float(Tensor(np.nan)))
    with pytest.raises(ValueError):
        int(Tensor(np.nan))
    with pytest.raises(OverflowError):
        int(Tensor(np.inf))
    assert [10, 20, 30][Tensor(1)] == 20
    assert list(range(Tensor(2))) == [0, 1]
    for bad in (Tensor(1.0), Tensor(True)):
        with pytest.raises(TypeError, match="an integer is needed"):
            operator.index(bad)
    for convert in (int, float, operator.index):
        with pytest.raises(ValueError, match=r"shape \(2,\) has 2 elements"):
            convert(Tensor([1, 2]))
    with pytest.raises(TypeError):
        complex("1", Tensor(1.0))


def test_truth():
    assert Tensor(1) and Tensor([0.5]) and Tensor(np.nan)
    assert not Tensor(0) and not Tensor([[0.0]]) and not Tensor(False)
    for t in (Tensor([1, 2]), Tensor.zeros(0)):
        with pytest.raises(ValueError, match="ambiguous"):
            bool(t)


def test_sequences():
    t = Tensor(A)
    assert len(t) == 2
    rows = list(t)
    assert len(rows) == 2
    for row, expected in zip(rows, A):
        same(row, expected)
    iterator = iter(t)
    assert iter(iterator) is iterator and operator.length_hint(iterator) == 2
    next(iterator), next(iterator)
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(iterator)
    a, b = Tensor([1, 2])
    assert int(a) == 1 and int(b) == 2
    assert 4.0 in t and 5.0 not in t
    assert B not in t and np.array([[1.5], [100]], np.float32) in t
    for use in (len, iter, list):
        with pytest.raises(TypeError, match="scalar"):
            use(Tensor(1.0))


def test_identity():
    a, b = Tensor([1.0]), Tensor([1.0])
    assert hash(a) == hash(a) and len({a, b, a}) == 2
    assert {a: 1}[a] == 1


def test_text():
    assert repr(Tensor([1.0, 2.5])) == "Tensor([1.0, 2.5], shape=(2,), dtype=f32)"
    assert str(Tensor(3)) == "Tensor(3, shape=(), dtype=i32)"
    assert repr(Tensor([True, False])) == "Tensor([ True, False], shape=(2,), dtype=bool)"
    assert repr(Tensor.zeros(0, 3)) == "Tensor([], shape=(0, 3), dtype=f32)"
    p = Tensor([1.0], requires_grad=True)
    assert repr(p * 2) == "Tensor([2.], shape=(1,), dtype=f32, requires_grad=True)"
    long = repr(Tensor.arange(10000))
    assert "..." in long and len(long) < 200


def test_formats():
    loss = Tensor(0.12345)
    assert f"{loss:.3f}" == "0.123" and f"{Tensor([[2]]):04d}" == "0002"
    assert f"{Tensor(2)}" == "2" and format(Tensor(True)) == "True"
    assert f"{Tensor([1, 2])}" == str(Tensor([1, 2]))
    with pytest.raises(TypeError, match=r"shape \(2,\)"):
        f"{Tensor([1.0, 2.0]):.2f}"


def test_attributes():
    t = Tensor.zeros(2, 3, dtype="f64")
    assert (t.shape, t.ndim, t.dim(), t.size, t.numel()) == ((2, 3), 2, 2, 6, 6)
    assert (t.itemsize, t.nbytes, t.dtype) == (8, 48, "f64")
    assert type(t.shape) is tuple


def test_the_training_flag():
    assert Tensor.training is False
    Tensor.training = True
    try:
        assert Tensor([1.0]).training
    finally:
        Tensor.training = False


def test_errors_name_the_line():
    with pytest.raises(ValueError, match="test_tensor_operators.py:"):
        Tensor(A) + Tensor([1.0, 2.0])


def test_realize():
    t = Tensor(A) + 1
    assert t.realize() is t
    a, b = Tensor(A).exp(), Tensor(B).exp()
    assert Tensor.realize_all(a, b) is None and Tensor.realize_all([a, b]) is None
    assert Tensor.realize_all() is None and Tensor.realize_all(a) is None
    same(a, np.exp(A))
    with pytest.raises(TypeError):
        Tensor.realize_all(3)


def test_assign():
    t = Tensor(A)
    twice = t * 2
    assert t.assign(Tensor(A) + 1) is t
    same(t, A + 1)
    same(twice, A * 2)
    t.assign(5)
    same(t, np.full_like(A, 5))
    with pytest.raises(ValueError, match="assign: a tensor of shape"):
        t.assign(Tensor(B))
    with pytest.raises(TypeError, match="cast the value"):
        t.assign(Tensor(I))
    a, b = Tensor([1.0]), Tensor([2.0])
    Tensor.assign_all([(a, b), (b, a)], also=[t])
    assert (float(a), float(b)) == (2.0, 1.0)


def test_that_the_module_is_named():
    assert Tensor.__module__ == "uopc.tensor" and uopc.tensor.Tensor is Tensor
