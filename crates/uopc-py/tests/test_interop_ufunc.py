"""NumPy's functions on tensors: ufuncs give tensors with gradients, others arrays, or say why not."""

import numpy as np
import pytest

import uopc
from uopc import Tensor

UNARY = """absolute cos exp exp2 fabs log log2 negative positive reciprocal sin sqrt square tanh
trunc arctan arcsinh ceil cosh expm1 floor log10 log1p rint sign sinh tan""".split()
BINARY = """add subtract multiply divide true_divide maximum minimum equal not_equal less less_equal
greater greater_equal arctan2 copysign fmod hypot logaddexp power floor_divide remainder""".split()
X = np.array([0.5, 1.0, 2.25], np.float32)
Y = np.array([3.0, 1.0, -2.0], np.float32)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_argument(name):
    f = getattr(np, name)
    t = f(Tensor(X))
    assert isinstance(t, Tensor) and t.dtype == "f32"
    np.testing.assert_allclose(t.numpy(), f(X), rtol=1e-5)


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arguments(name):
    f = getattr(np, name)
    expected = f(X, Y)
    for t in (f(Tensor(X), Tensor(Y)), f(X, Tensor(Y)), f(Tensor(X), Y), f(Tensor(X), Y.tolist())):
        assert isinstance(t, Tensor)
        assert t.numpy().dtype == expected.dtype
        np.testing.assert_allclose(t.numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(f(2, Tensor(Y)).numpy(), f(2, Y), rtol=1e-6)
    np.testing.assert_allclose(f(Tensor(X), 2.0).numpy(), f(X, 2.0), rtol=1e-6)


def test_functions_of_integers_and_bools():
    a, b = np.array([-7, 7, 5], np.int32), np.array([2, -2, 5], np.int32)
    p, q = np.array([True, False, True]), np.array([True, True, False])
    for name in "floor_divide remainder mod bitwise_and bitwise_or bitwise_xor".split():
        f = getattr(np, name)
        np.testing.assert_array_equal(f(Tensor(a), b).numpy(), f(a, b))
    for name in "logical_and logical_or logical_xor".split():
        f = getattr(np, name)
        np.testing.assert_array_equal(f(Tensor(p), q).numpy(), f(p, q))
        np.testing.assert_array_equal(f(Tensor(a), 0).numpy(), f(a, 0))
    np.testing.assert_array_equal(np.invert(Tensor(a)).numpy(), ~a)
    np.testing.assert_array_equal(np.logical_not(Tensor(a * 0)).numpy(), p | q)
    quotient, rest = np.divmod(Tensor(a), b)
    np.testing.assert_array_equal(quotient.numpy(), a // b)
    np.testing.assert_array_equal(rest.numpy(), a % b)
    np.testing.assert_array_equal(np.power(Tensor(a), 2).numpy(), a**2)
    m = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(np.matmul(m, Tensor(m.T)).numpy(), m @ m.T)


def test_gradients_flow_through():
    w = Tensor(X, requires_grad=True)
    loss = (np.exp(w) * Y + Y * np.square(w)).sum()
    loss.backward([w])
    np.testing.assert_allclose(w.grad.numpy(), np.exp(X) * Y + 2 * X * Y, rtol=1e-5)


def test_operators_with_arrays_and_scalars_on_the_left():
    t = Tensor(X)
    for result, expected in [
        (Y + t, Y + X),
        (Y - t, Y - X),
        (Y * t, Y * X),
        (Y / t, Y / X),
        (np.float32(2) * t, 2 * X),
        (np.float64(2) - t, 2 - X),
        (np.int64(2) * t, 2 * X),
        (Y.reshape(3, 1) * t, Y.reshape(3, 1) * X),
    ]:
        assert isinstance(result, Tensor) and result.dtype == "f32"
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)
    assert isinstance(Y < t, Tensor) and (Y < t).tolist() == (Y < X).tolist()
    assert (Y.astype(np.float64) * t).dtype == "f64"


def test_arrays_take_results():
    a = Y.copy()
    a += Tensor(X)
    assert type(a) is np.ndarray
    np.testing.assert_array_equal(a, Y + X)
    out = np.zeros((2, 3), np.float64)
    assert np.multiply(Tensor(X), 2, out=out) is out
    np.testing.assert_array_equal(out, [X * 2, X * 2])
    whole = np.zeros(3, np.int32)
    with pytest.raises(TypeError):
        whole += Tensor(X)
    np.add(Tensor(X), 0, out=whole, casting="unsafe")
    assert whole.tolist() == [0, 1, 2]
    with pytest.raises(ValueError):
        np.add(Tensor(X), 0, out=np.zeros(2))
    with pytest.raises(ValueError):
        np.add(Tensor(X), 0, out=Tensor(X).numpy())


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda t: np.cbrt(t), r"np.cbrt has no counterpart.*np.cbrt\(t.numpy\(\)\)"),
        (lambda t: np.frompyfunc(abs, 1, 1)(t), "no counterpart"),
        (lambda t: np.add(t, t, out=Tensor(X)), "out= is an array"),
        (lambda t: np.add(X, X, out=t), "out= is an array"),
        (lambda t: np.add(t, 1, where=np.array([True, False, True])), "where="),
        (lambda t: np.add(t, 1, dtype=np.float64), "cast"),
        (lambda t: np.add.reduce(t), r"t.sum\(axis\)"),
        (lambda t: np.multiply.reduce(t), r"t.prod\(axis\)"),
        (lambda t: np.add.accumulate(t), r"t.numpy\(\)"),
        (lambda t: np.add.outer(t, t), r"t.numpy\(\)"),
        (lambda t: np.add.at(t, 0, 1), r"t.numpy\(\)"),
        (lambda t: np.add.at(X.copy(), [0], t[0]), r"t.numpy\(\)"),
        (lambda t: np.add(t, np.array(["a", "b", "c"])), "text"),
    ],
)
def test_refused_with_a_way_out(call, text):
    with pytest.raises(TypeError, match=text):
        call(Tensor(X))


def test_shapes_are_the_librarys():
    with pytest.raises(ValueError, match=r"add: shapes \(3,\) and \(2,\)"):
        np.add(Tensor(X), np.zeros(2, np.float32))


def test_others_get_their_chance():
    class Theirs:
        def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
            return "theirs"

    assert np.add(Tensor(X), Theirs()) == "theirs"
    with pytest.raises(TypeError):
        np.add(Tensor(X), object())
    with pytest.raises(TypeError):
        np.add(Tensor(X), "a")


def test_reductions_and_movements_are_the_tensors_own():
    m = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = Tensor(m)
    for f in (np.sum, np.mean, np.max, np.min, np.prod):
        for axis in (None, 0, (0, 1)):
            assert isinstance(f(t, axis=axis), Tensor)
            np.testing.assert_allclose(f(t, axis=axis).numpy(), f(m, axis=axis))
    np.testing.assert_array_equal(np.transpose(t).numpy(), m.T)
    np.testing.assert_array_equal(np.reshape(t, (3, 2)).numpy(), m.reshape(3, 2))
    assert np.shape(t) == (2, 3) and np.ndim(t) == 2 and np.size(t) == 6


def test_other_functions_see_arrays():
    t = Tensor(X)
    for result, expected in [
        (np.concatenate([t, t]), np.concatenate([X, X])),
        (np.stack([t, X]), np.stack([X, X])),
        (np.where(X > 1, t, 0), np.where(X > 1, X, 0)),
        (np.dot(t, t), np.dot(X, X)),
        (np.outer(t, t), np.outer(X, X)),
        (np.linalg.norm(t), np.linalg.norm(X)),
        (np.histogram(t)[0], np.histogram(X)[0]),
    ]:
        assert not isinstance(result, Tensor)
        np.testing.assert_array_equal(result, expected)
    assert np.allclose(t, X) and np.array_equal(t, X)
    np.testing.assert_allclose(t, X)
    np.testing.assert_array_equal(t, X)
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(t, Y)
