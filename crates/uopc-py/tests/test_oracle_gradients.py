"""Gradients of every differentiable function against central differences of plain NumPy in f64.

A difference with step h errs by h^2 times the third derivative and by eps/h times the value: with
h = 1e-5 about 1e-10, so that f64 gradients must agree to 1e-6 of their size. Gradients in f32 carry
f32's rounding errors, a few eps for each step, and must agree with the same differences to 1e-4.
"""

import numpy as np
import pytest

from support import FLOATS, NP, run, same, wide
from uopc import Tensor, no_grad
from uopc.gradient import gradient

s = np.s_
RNG = np.random.default_rng(11)
# Away from kinks and from each other, so that no maximum changes within a step.
X = np.linspace(-1.9, 2.1, 12)[RNG.permutation(12)].reshape(3, 4)
POSITIVE = np.abs(X) + 0.3
OTHER = RNG.uniform(-1.5, 1.5, (3, 4)) + 3
MATRIX = RNG.uniform(-1, 1, (4, 2))
STACK = RNG.uniform(-1, 1, (2, 4, 3))
VECTOR = RNG.uniform(-1, 1, 4)
CONDITION = RNG.integers(0, 2, (3, 4)).astype(bool)
LABELS = np.array([1, 3, 0])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def like(t, array):
    """An array as a constant of a tensor's dtype."""
    return Tensor(array.astype(NP[t.dtype.name]))


def replaced(x, key, value):
    y = x.copy()
    y[key] = value(x) if callable(value) else value
    return y


def set_part(t, key, value):
    """A result of which a part is set in place."""
    y = t * 1
    y[key] = value
    return y


def in_place(t):
    y = t * 2
    y += t
    y *= y
    y[0] -= t[1]
    y -= 1
    return y


def in_place_reference(x):
    y = (x * 2 + x) ** 2
    y = replaced(y, 0, y[0] - x[1])
    return y - 1


# The tensor's function, NumPy's, and where.
CASES = {
    "add": (lambda t: t + like(t, OTHER), lambda x: x + OTHER, X),
    "add itself": (lambda t: t + t, lambda x: 2 * x, X),
    "sub": (lambda t: like(t, OTHER) - t, lambda x: OTHER - x, X),
    "mul": (lambda t: t * like(t, OTHER), lambda x: x * OTHER, X),
    "mul itself": (lambda t: t * t * t, lambda x: x**3, X),
    "div above": (lambda t: t / like(t, OTHER), lambda x: x / OTHER, X),
    "div below": (lambda t: like(t, OTHER) / t, lambda x: OTHER / x, POSITIVE),
    "number / t": (lambda t: 2 / t, lambda x: 2 / x, POSITIVE),
    "maximum": (lambda t: t.maximum(like(t, X.T.reshape(3, 4))), lambda x: np.maximum(x, X.T.reshape(3, 4)), X * 0.9),
    "minimum": (lambda t: t.minimum(0.4), lambda x: np.minimum(x, 0.4), X),
    "neg": (lambda t: -t, lambda x: -x, X),
    "abs": (lambda t: t.abs(), np.abs, X),
    "relu": (lambda t: t.relu(), lambda x: np.maximum(x, 0), X),
    "square": (lambda t: t.square(), np.square, X),
    "exp": (lambda t: t.exp(), np.exp, X),
    "exp2": (lambda t: t.exp2(), np.exp2, X),
    "log": (lambda t: t.log(), np.log, POSITIVE),
    "log2": (lambda t: t.log2(), np.log2, POSITIVE),
    "sqrt": (lambda t: t.sqrt(), np.sqrt, POSITIVE),
    "sin": (lambda t: t.sin(), np.sin, X),
    "cos": (lambda t: t.cos(), np.cos, X),
    "tanh": (lambda t: t.tanh(), np.tanh, X),
    "sigmoid": (lambda t: t.sigmoid(), sigmoid, X),
    "silu": (lambda t: t.silu(), lambda x: x * sigmoid(x), X),
    "softplus": (lambda t: t.softplus(), lambda x: np.log1p(np.exp(x)), X),
    "gelu": (lambda t: t.gelu(), gelu, X),
    "reciprocal": (lambda t: t.reciprocal(), lambda x: 1 / x, POSITIVE),
    "pow 2": (lambda t: t**2, lambda x: x**2, X),
    "pow 3": (lambda t: t**3, lambda x: x**3, X),
    "pow 5": (lambda t: t**5, lambda x: x**5, X),
    "pow -1": (lambda t: t**-1, lambda x: 1 / x, POSITIVE),
    "pow -4": (lambda t: t**-4, lambda x: x**-4.0, POSITIVE),
    "pow 0.5": (lambda t: t**0.5, lambda x: x**0.5, POSITIVE),
    "pow 1.7": (lambda t: t**1.7, lambda x: x**1.7, POSITIVE),
    "pow -0.3": (lambda t: t**-0.3, lambda x: x**-0.3, POSITIVE),
    "pow 0": (lambda t: t**0 * t, lambda x: x, X),
    "where": (
        lambda t: Tensor(CONDITION).where(t * 2, t * t),
        lambda x: np.where(CONDITION, x * 2, x * x),
        X,
    ),
    "where a number": (lambda t: (t > 0.5).where(t, 3.0), lambda x: np.where(x > 0.5, x, 3), X),
    "cast": (lambda t: t.cast("f64").sin().cast(t.dtype), np.sin, X),
    "detach": (lambda t: t * t.detach(), lambda x: x * X, X),
    "broadcast": (
        lambda t: t.reshape(3, 1, 4) * t.reshape(1, 3, 4),
        lambda x: x.reshape(3, 1, 4) * x.reshape(1, 3, 4),
        X,
    ),
    # Along axes.
    "sum": (lambda t: t.sum(0), lambda x: x.sum(0), X),
    "sum of all": (lambda t: t.square().sum(), lambda x: np.sum(x * x), X),
    "sum keepdim": (lambda t: t * t.sum(1, keepdim=True), lambda x: x * x.sum(1, keepdims=True), X),
    "mean": (lambda t: t.mean(1).square(), lambda x: x.mean(1) ** 2, X),
    "var": (lambda t: t.var(1), lambda x: x.var(1), X),
    "var corrected": (lambda t: t.var(correction=1), lambda x: x.var(ddof=1), X),
    "max": (lambda t: t.max(1), lambda x: x.max(1), X),
    "max of all": (lambda t: t.max(), lambda x: x.max(), X),
    "min": (lambda t: t.min(0), lambda x: x.min(0), X),
    "prod": (lambda t: t.prod(1), lambda x: x.prod(1), X),
    "prod of all": (lambda t: t.prod((0, 1)), lambda x: x.prod(), POSITIVE),
    "softmax": (lambda t: t.softmax(), softmax, X),
    "softmax 0": (lambda t: t.softmax(0), lambda x: softmax(x, 0), X),
    "log_softmax": (lambda t: t.log_softmax(), lambda x: np.log(softmax(x)), X),
    "cross_entropy": (
        lambda t: t.cross_entropy(Tensor(LABELS)),
        lambda x: -np.mean(np.log(softmax(x))[np.arange(3), LABELS]),
        X,
    ),
    # Products.
    "matmul left": (lambda t: t @ like(t, MATRIX), lambda x: x @ MATRIX, X),
    "matmul right": (lambda t: like(t, STACK[0].T) @ t, lambda x: STACK[0].T @ x, MATRIX),
    "matmul itself": (lambda t: t @ t.transpose(), lambda x: x @ x.T, X),
    "matmul batch": (lambda t: like(t, STACK) @ t, lambda x: STACK @ x, X),
    "matmul batch left": (lambda t: t @ like(t, STACK), lambda x: x @ STACK, X),
    "matmul vector": (lambda t: t @ like(t, VECTOR), lambda x: x @ VECTOR, X),
    "matmul by a vector": (lambda t: like(t, VECTOR[:3]) @ t, lambda x: VECTOR[:3] @ x, X),
    "inner product": (lambda t: t[0] @ t[1], lambda x: x[0] @ x[1], X),
    # Movement.
    "reshape": (lambda t: t.reshape(2, 6).square(), lambda x: x.reshape(2, 6) ** 2, X),
    "flatten": (lambda t: t.flatten().square(), lambda x: x.ravel() ** 2, X),
    "permute": (lambda t: t.permute(1, 0).square(), lambda x: x.T**2, X),
    "transpose": (lambda t: t.transpose().sin(), lambda x: np.sin(x.T), X),
    "T": (lambda t: t.T.sin(), lambda x: np.sin(x.T), X),
    "mT": (lambda t: t.mT.sin(), lambda x: np.sin(x.T), X),
    "swapaxes": (lambda t: t.swapaxes(0, 1).sin(), lambda x: np.sin(x.T), X),
    "expand": (
        lambda t: t.reshape(3, 1, 4).expand(3, 2, 4).square(),
        lambda x: np.broadcast_to(x.reshape(3, 1, 4), (3, 2, 4)) ** 2,
        X,
    ),
    "pad": (
        lambda t: t.pad(((1, 0), (0, 2))).cos(),
        lambda x: np.cos(np.pad(x, ((1, 0), (0, 2)))),
        X,
    ),
    "shrink": (lambda t: t.shrink(((1, 3), (0, 2))).sin(), lambda x: np.sin(x[1:3, 0:2]), X),
    "flip": (lambda t: t.flip(1) * t, lambda x: x[:, ::-1] * x, X),
    "flip all": (lambda t: t.flip() * t, lambda x: x[::-1, ::-1] * x, X),
    "squeeze": (lambda t: t.unsqueeze(1).square().squeeze(1), np.square, X),
    "cat": (
        lambda t: Tensor.cat([t, t * t], 1).sin(),
        lambda x: np.sin(np.concatenate([x, x * x], 1)),
        X,
    ),
    "stack": (lambda t: Tensor.stack([t, t * t]).sin(), lambda x: np.sin(np.stack([x, x * x])), X),
    "stack_with": (lambda t: t.stack_with(t * t), lambda x: np.stack([x, x * x]), X),
    # Parts.
    "position": (lambda t: t[1].square(), lambda x: x[1] ** 2, X),
    "element": (lambda t: t[2, 3].square(), lambda x: x[2, 3] ** 2, X),
    "slice": (lambda t: t[1:, ::2].square(), lambda x: x[1:, ::2] ** 2, X),
    "backwards": (lambda t: t[::-2, 3:0:-1] ** 3, lambda x: x[::-2, 3:0:-1] ** 3, X),
    "new axes": (lambda t: t[:, None, ..., 1].square(), lambda x: x[:, None, ..., 1] ** 2, X),
    "parts of a part": (lambda t: t[1:][0, ::-1].sin(), lambda x: np.sin(x[1:][0, ::-1]), X),
    "overlapping parts": (lambda t: t[:-1] * t[1:], lambda x: x[:-1] * x[1:], X),
    "get": (lambda t: t.get(-1).square(), lambda x: x[-1] ** 2, X),
    "narrow": (lambda t: t.narrow(1, 1, 2).square(), lambda x: x[:, 1:3] ** 2, X),
    "iteration": (lambda t: sum(r * r for r in t), lambda x: np.sum(x * x, 0), X),
    "set to a number": (
        lambda t: set_part(t, s[0, 1:], 5.0).square(),
        lambda x: replaced(x, s[0, 1:], 5.0) ** 2,
        X,
    ),
    "set to itself": (
        lambda t: set_part(t, s[1:, ::-2], t[:-1, :2] * 3).square(),
        lambda x: replaced(x, s[1:, ::-2], lambda x: x[:-1, :2] * 3) ** 2,
        X,
    ),
    "set and broadcast": (
        lambda t: set_part(t, s[:, 1:3], t[:, :1].square()).sin(),
        lambda x: np.sin(replaced(x, s[:, 1:3], lambda x: x[:, :1] ** 2)),
        X,
    ),
    "with_slice": (
        lambda t: t.with_slice(s[1], t[0]).square(),
        lambda x: replaced(x, 1, lambda x: x[0]) ** 2,
        X,
    ),
    "in place": (in_place, in_place_reference, X),
}


def weights(shape):
    """What makes a loss of a result: every element counts differently."""
    return np.random.default_rng(5).uniform(0.5, 1.5, shape)


def differences(loss, x, h=1e-5):
    """Central differences, element by element."""
    g = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        g[i] = (loss(up) - loss(down)) / (2 * h)
    return g


def close(got, expected, rtol, what):
    """Equal to a part of the largest element."""
    error = np.abs(got.astype(np.float64) - expected).max()
    size = max(np.abs(expected).max(), 1e-3)
    assert error <= rtol * size, f"{what}: off by {error / size:.1e}\n{got}\n{expected}"


@pytest.mark.parametrize("dtype, rtol", [("f64", 1e-6), ("f32", 1e-4)])
def test_gradients_of_every_function(dtype, rtol):
    grads = []
    for name, (function, _, x) in CASES.items():
        t = Tensor(x.astype(NP[dtype]), requires_grad=True)
        y = function(t)
        assert y.dtype == dtype and y.requires_grad, name
        (y * like(y, weights(y.shape))).sum().backward()
        grads.append(t.grad)
    for (name, (_, reference, x)), got in zip(CASES.items(), run(*grads)):
        loss = lambda x: np.sum(reference(x) * weights(np.shape(reference(x))))
        assert got.dtype == NP[dtype] and got.shape == x.shape, name
        close(got, differences(loss, x), rtol, name)


def test_values_of_every_case_are_those_of_its_reference():
    """Or the gradients above could agree for a wrong function."""
    got = run(*(function(Tensor(x)) for function, _, x in CASES.values()))
    for (name, (_, reference, x)), y in zip(CASES.items(), got):
        np.testing.assert_allclose(y, reference(x), rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_gradients_in_narrow_floats(dtype):
    """A few functions; the loose tolerance is some eps of the dtype (0.001 and 0.008)."""
    names = ["mul itself", "tanh", "softmax", "mean", "var", "matmul left", "matmul vector", "slice"]
    grads = []
    for name in names:
        function, _, x = CASES[name]
        t = Tensor(x.astype(NP[dtype]), requires_grad=True)
        y = function(t)
        (y * like(y, weights(y.shape))).sum().backward()
        grads.append(t.grad)
    for name, got in zip(names, run(*grads)):
        _, reference, x = CASES[name]
        loss = lambda x: np.sum(reference(x) * weights(np.shape(reference(x))))
        assert got.dtype == NP[dtype], name
        close(got, differences(loss, x), 0.01 if dtype == "f16" else 0.06, name)


# ---- second derivatives ----

TWICE = """mul itself, div below, exp, log, sqrt, sin, tanh, sigmoid, silu, gelu, softplus, pow 5,
pow -0.3, softmax, log_softmax, cross_entropy, var, prod, matmul itself, flip, slice,
overlapping parts, set to itself, in place, where""".replace("\n", " ").split(", ")


def second_differences(loss, x, direction, h=1e-4):
    """The derivative along a direction of the slope in each element, in more bits than f64 has."""
    x, direction = x.astype(wide), direction.astype(wide)
    g = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        for sign in (1, -1):
            moved = x + sign * h * direction
            g[i] += sign * (loss(moved + step) - loss(moved - step)) / (4 * wide(h) ** 2)
    return g.astype(np.float64)


def test_second_derivatives():
    """The gradient's gradient along a direction. A mixed difference errs by h^2 and by eps/h^2,
    with h = 1e-4 and f64 (longdouble has more) by about 1e-8, so 1e-5 is allowed."""
    rng = np.random.default_rng(6)
    directions = {name: rng.uniform(-1, 1, CASES[name][2].shape) for name in TWICE}
    found = []
    for name in TWICE:
        function, _, x = CASES[name]
        t = Tensor(x, requires_grad=True)
        y = function(t)
        loss = (y * like(y, weights(y.shape))).sum()
        (first,) = gradient(loss.uop, [t.uop])
        slope = (Tensor.from_uop(first) * Tensor(directions[name])).sum()
        (second,) = gradient(slope.uop, [t.uop])
        found.append(Tensor.from_uop(second))
    for name, got in zip(TWICE, run(*found)):
        _, reference, x = CASES[name]
        loss = lambda x: np.sum(reference(x) * weights(np.shape(reference(x))))
        close(got, second_differences(loss, x, directions[name]), 1e-5, name)


def test_second_derivatives_through_backward_are_the_same():
    def slopes(name):
        function, _, x = CASES[name]
        t = Tensor(x, requires_grad=True)
        function(t).sum().backward()
        first, t.grad = t.grad, None
        first.sum().backward([t])
        (node,) = gradient(function(t).sum().uop, [t.uop])
        (again,) = gradient(Tensor.from_uop(node).sum().uop, [t.uop])
        return t.grad, Tensor.from_uop(again)

    pairs = [slopes(name) for name in ("mul itself", "tanh", "matmul itself")]
    got = run(*(t for pair in pairs for t in pair))
    for first, second in zip(got[::2], got[1::2]):
        same(first, second, zeros=False)


# ---- where a function has no derivative ----


def slope(function, x):
    t = Tensor(x, requires_grad=True)
    function(t).sum().backward([t])
    return t.grad


def test_kinks_and_ties():
    zero = np.array([0.0, -0.0])
    tied = np.array([2.0, 1.0, 2.0, 2.0])
    kinks = [
        (slope(lambda t: t.abs(), zero), [0, 0]),
        (slope(lambda t: t.relu(), zero), [0, 0]),
        (slope(lambda t: t.maximum(2.0), tied), [0.5, 0, 0.5, 0.5]),
        (slope(lambda t: t.minimum(2.0), tied), [0.5, 1, 0.5, 0.5]),
        (slope(lambda t: t.max(), tied), [1 / 3, 0, 1 / 3, 1 / 3]),
        (slope(lambda t: t.min(), tied), [0, 1, 0, 0]),
        (slope(lambda t: t.prod(), np.array([2.0, 0.0, 3.0])), [0, 6, 0]),
        (slope(lambda t: t.prod(), np.array([0.0, 0.0, 3.0])), [0, 0, 0]),
        (slope(lambda t: t.sqrt(), np.array([0.0])), [np.inf]),
        (slope(lambda t: t**0, zero), [0, 0]),
        (slope(lambda t: t**2, zero), [0, 0]),
        (slope(lambda t: t.softplus(), np.array([0.0, 800.0, -800.0])), [0.5, 1, 0]),
        (slope(lambda t: t.tanh(), np.array([0.0, 400.0, -400.0])), [1, 0, 0]),
        (slope(lambda t: t.sigmoid(), np.array([0.0, 800.0, -800.0])), [0.25, 0, 0]),
        (slope(lambda t: t.silu(), np.array([0.0, 900.0, -900.0])), [0.5, 1, 0]),
        (slope(lambda t: t.gelu(), np.array([0.0, 90.0, -90.0])), [0.5, 1, 0]),
    ]
    for k, ((_, expected), got) in enumerate(zip(kinks, run(*(g for g, _ in kinks)))):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-300, err_msg=str(k))


def test_the_branch_that_is_not_taken_gives_no_nan():
    x = np.array([-1.0, 0.0, 4.0])
    safe = slope(lambda t: (t > 0).where(t.sqrt(), 0.0), x)
    log = slope(lambda t: (t > 0).where((t > 0).where(t, 1.0).log(), 0.0), x)
    got = run(safe, log)
    np.testing.assert_array_equal(got[1], [0, 0, 0.25])
    # A slope of 0 times one that is infinite or NaN is NaN, here as everywhere: only the inner
    # `where` of the second line keeps them out.
    assert got[0][2] == 0.25


def test_what_no_gradient_flows_through():
    w = Tensor(X, requires_grad=True)
    flat = [w > 0, w == w, w.argmax(0), w.cast("i32"), w.detach(), w.trunc().detach(), w.any()]
    for t in flat:
        assert not t.requires_grad
        with pytest.raises((RuntimeError, TypeError)):
            t.sum().backward()
    with no_grad():
        assert not (w * 2).requires_grad


def test_rows_that_are_read_get_the_sum_of_what_their_readers_get():
    w = Tensor(X, requires_grad=True)
    at = [1, 0, 1, -1, 99]
    c = np.arange(5 * X.shape[1], dtype=X.dtype).reshape(5, -1)
    (w.take(at) * Tensor(c)).sum().backward()
    expected = np.zeros_like(X)
    np.add.at(expected, at[:4], c[:4])
    np.testing.assert_array_equal(w.grad.numpy(), expected)


def test_the_slope_of_a_step_is_zero():
    got = run(slope(lambda t: t.trunc() * t, np.array([1.5, -2.5])))
    np.testing.assert_array_equal(got[0], [1, -2])


# ---- how gradients are asked for ----


def test_gradients_add_up_until_they_are_forgotten():
    w = Tensor(X, requires_grad=True)
    (w * 2).sum().backward()
    (w * 3).sum().backward()
    same(w.grad.numpy(), np.full_like(X, 5))
    w.zero_grad()
    assert w.grad is None
    (w * w).sum().backward([w])
    same(w.grad.numpy(), 2 * X)


def test_every_parameter_gets_its_own():
    a, b, unused = (Tensor(v, requires_grad=True) for v in (X, OTHER, MATRIX))
    loss = (a * b).sum()
    assert loss.backward() is loss
    assert unused.grad is None
    got = run(a.grad, b.grad)
    same(got[0], OTHER)
    same(got[1], X)
    a.grad = None
    loss.backward([a, unused])
    got = run(a.grad, b.grad, unused.grad)
    same(got[0], OTHER)
    same(got[1], X)
    same(got[2], np.zeros_like(MATRIX))


def test_a_broadcast_parameter_gets_the_sum():
    row = Tensor(VECTOR, requires_grad=True)
    number = Tensor(np.array(2.0), requires_grad=True)
    (Tensor(X) * row * number).sum().backward()
    got = run(row.grad, number.grad)
    np.testing.assert_allclose(got[0], 2 * X.sum(0), rtol=1e-12)
    np.testing.assert_allclose(got[1], (X * VECTOR).sum(), rtol=1e-12)


def test_gradients_of_mixed_dtypes_have_their_parameters_dtype():
    for dtype in FLOATS:
        w = Tensor(np.array([1.0, 2.0], NP[dtype]), requires_grad=True)
        (w * Tensor(np.array([3.0, 4.0]))).sum().backward()
        same(w.grad.numpy(), np.array([3.0, 4.0], NP[dtype]))


def test_a_value_that_was_set_is_followed_and_the_old_one_is_not():
    w = Tensor(X, requires_grad=True)
    y = w * 2
    before = y.sum()
    y[...] = Tensor(OTHER)
    assert not y.sum().requires_grad or np.all(slope_of(y.sum(), w) == 0)
    before.backward()
    same(w.grad.numpy(), np.full_like(X, 2))


def slope_of(loss, w):
    (g,) = gradient(loss.uop, [w.uop])
    return Tensor.from_uop(g).numpy()
