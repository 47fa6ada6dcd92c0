"""Every public name of Tensor, once, with what NumPy says it gives.

The other tests of this kind look closely; this one sees to it that nothing is left out. A name
that is neither here nor, with a reason, in OUTSIDE makes the first test fail.
"""

import copy
import inspect
import re

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import support
from support import near, run, same
from uopc import Tensor

s = np.s_
X = np.array([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]])
Y = np.array([[1.5, 0.5, -2.0], [3.0, -4.0, 2.5]])
P = np.abs(X)
I = np.array([[5, -3, 0], [7, 2, -8]], np.int32)
J = np.array([[2, 2, -4], [-3, 5, 1]], np.int32)
B = np.array([[True, False, True], [False, False, True]])
C = ~B | (X > 1)
x, y, p, i, j, b, c = (Tensor(a) for a in (X, Y, P, I, J, B, C))


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gelu(a):
    return a / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))


def f32(values):
    return np.array(values, np.float32)


F32 = X.astype(np.float32)

# name: the tensor's result, NumPy's. All inputs are f64, so that rounding hides nothing; what is
# computed in a formula of its own may differ by some ulps.
EXAMPLES = {
    # Element by element.
    "add": (x.add(y), X + Y),
    "sub": (x.sub(y), X - Y),
    "mul": (x.mul(y), X * Y),
    "div": (x.div(y), X / Y),
    "floordiv": (i.floordiv(j), I // J),
    "mod": (i.mod(j), I % J),
    "maximum": (x.maximum(y), np.maximum(X, Y)),
    "minimum": (x.minimum(y), np.minimum(X, Y)),
    "eq": (x.eq(3.0), X == 3),
    "ne": (x.ne(3.0), X != 3),
    "lt": (x.lt(y), X < Y),
    "le": (x.le(y), X <= Y),
    "gt": (x.gt(y), X > Y),
    "ge": (x.ge(y), X >= Y),
    "bitwise_and": (i.bitwise_and(j), I & J),
    "bitwise_or": (i.bitwise_or(j), I | J),
    "bitwise_xor": (i.bitwise_xor(j), I ^ J),
    "bitwise_not": (i.bitwise_not(), ~I),
    "logical_and": (b.logical_and(c), np.logical_and(B, C)),
    "logical_or": (b.logical_or(c), np.logical_or(B, C)),
    "logical_xor": (b.logical_xor(c), np.logical_xor(B, C)),
    "logical_not": (b.logical_not(), np.logical_not(B)),
    "pow": (x.pow(3), X**3),
    "where": (b.where(x, y), np.where(B, X, Y)),
    "neg": (x.neg(), -X),
    "abs": (x.abs(), np.abs(X)),
    "relu": (x.relu(), np.maximum(X, 0)),
    "square": (x.square(), X * X),
    "trunc": (x.trunc(), np.trunc(X)),
    "exp": (x.exp(), np.exp(X)),
    "exp2": (x.exp2(), np.exp2(X)),
    "log": (p.log(), np.log(P)),
    "log2": (p.log2(), np.log2(P)),
    "sqrt": (p.sqrt(), np.sqrt(P)),
    "sin": (x.sin(), np.sin(X)),
    "cos": (x.cos(), np.cos(X)),
    "tanh": (x.tanh(), np.tanh(X)),
    "sigmoid": (x.sigmoid(), sigmoid(X)),
    "silu": (x.silu(), X * sigmoid(X)),
    "softplus": (x.softplus(), np.log1p(np.exp(X))),
    "gelu": (x.gelu(), gelu(X)),
    "reciprocal": (x.reciprocal(), 1 / X),
    "cast": (x.cast("i32"), X.astype(np.int32)),
    "float": (x.float(), F32),
    "half": (x.half(), X.astype(np.float16)),
    "bfloat16": (x.bfloat16(), support.rounded(X, "bf16")),
    "double": (Tensor(F32).double(), F32.astype(np.float64)),
    "int": (x.int(), X.astype(np.int32)),
    "long": (x.long(), X.astype(np.int64)),
    "bool": (i.bool(), I != 0),
    # Shapes and order.
    "reshape": (x.reshape(3, -1), X.reshape(3, -1)),
    "flatten": (x.flatten(), X.ravel()),
    "permute": (x.permute(1, 0), X.T),
    "transpose": (x.transpose(), X.T),
    "T": (x.T, X.T),
    "mT": (x.mT, X.T),
    "swapaxes": (x.swapaxes(0, 1), X.swapaxes(0, 1)),
    "expand": (x.expand(2, 2, 3), np.broadcast_to(X, (2, 2, 3))),
    "pad": (x.pad(((1, 0), (0, 2))), np.pad(X, ((1, 0), (0, 2)))),
    "shrink": (x.shrink((None, (1, 3))), X[:, 1:3]),
    "flip": (x.flip(1), np.flip(X, 1)),
    "unsqueeze": (x.unsqueeze(1), X[:, None]),
    "squeeze": (x.unsqueeze(1).squeeze(), X),
    "cat": (Tensor.cat([x, y], 1), np.concatenate([X, Y], 1)),
    "stack": (Tensor.stack([x, y], 1), np.stack([X, Y], 1)),
    "stack_with": (x.stack_with(y), np.stack([X, Y])),
    # Along axes.
    "sum": (x.sum(0), X.sum(0)),
    "mean": (x.mean(1), X.mean(1)),
    "prod": (x.prod(1), X.prod(1)),
    "var": (x.var(1), X.var(1)),
    "max": (x.max(0), X.max(0)),
    "min": (x.min(), X.min()),
    "any": (b.any(0), B.any(0)),
    "all": (c.all(1), C.all(1)),
    "argmax": (x.argmax(1), X.argmax(1)),
    "argmin": (x.argmin(), X.argmin()),
    "softmax": (x.softmax(), softmax(X)),
    # In order.
    "cumsum": (x.cumsum(1), X.cumsum(1)),
    "cumprod": (x.cumprod(0), X.cumprod(0)),
    "cummax": (x.cummax(1)[0], np.maximum.accumulate(X, 1)),
    "cummin": (x.cummin(1)[0], np.minimum.accumulate(X, 1)),
    "logcumsumexp": (x.logcumsumexp(1), np.log(np.exp(X).cumsum(1))),
    "sort": (x.sort()[0], np.sort(X)),
    "argsort": (x.argsort(0), np.argsort(X, 0)),
    "topk": (x.topk(2)[0], -np.sort(-X)[:, :2]),
    "kthvalue": (x.kthvalue(2)[0], np.sort(X)[:, 1]),
    "searchsorted": (Tensor([-1.0, 0.5, 2.0]).searchsorted(x), np.searchsorted([-1.0, 0.5, 2.0], X)),
    "median": (x.median(0), np.median(X, 0)),
    "quantile": (x.quantile(0.3, 1), np.quantile(X, 0.3, 1)),
    "log_softmax": (x.log_softmax(), np.log(softmax(X))),
    "cross_entropy": (x.cross_entropy([2, 0]), -np.log(softmax(X))[[0, 1], [2, 0]].mean()),
    "accuracy": (x.accuracy([2, 1]), f32(0.5)),
    "matmul": (x.matmul(y.T), X @ Y.T),
    # Parts.
    "get": (x.get(-1), X[-1]),
    "narrow": (x.narrow(1, 1, 2), X[:, 1:3]),
    "take": (x.take([1, 0, 1]), X[[1, 0, 1]]),
    "scatter_add": (x.scatter_add([2, 2], 4), np.stack([0 * X[0], 0 * X[0], X[0] + X[1], 0 * X[0]])),
    "one_hot": (Tensor([2, 0]).one_hot(3), np.eye(3, dtype=np.float32)[[2, 0]]),
    "with_slice": (x.with_slice(0, 7.0), np.array([[7.0] * 3, X[1]])),
    # From nothing.
    "zeros": (Tensor.zeros(2, 3), np.zeros((2, 3), np.float32)),
    "ones": (Tensor.ones((2, 3), dtype="u8"), np.ones((2, 3), np.uint8)),
    "full": (Tensor.full((2,), 7), np.full(2, 7, np.int32)),
    "scalar": (Tensor.scalar(2.5), f32(2.5)),
    "arange": (Tensor.arange(2, 9, 3), np.arange(2, 9, 3, np.int32)),
    "zeros_like": (i.zeros_like(), np.zeros_like(I)),
    "ones_like": (x.ones_like(), np.ones_like(X)),
    "full_like": (i.full_like(9), np.full_like(I, 9)),
    "from_numpy": (Tensor.from_numpy(X), X),
    "from_dlpack": (Tensor.from_dlpack(X), X),
    "from_uop": (Tensor.from_uop((x + y).uop), X + Y),
    # Values.
    "realize": ((x + 1).realize(), X + 1),
    "detach": (x.detach(), X),
}

# What these give is no tensor, or depends on more than a tensor: the test that uses each.
ELSEWHERE = {
    "test_what_a_tensor_is": "shape dtype ndim size itemsize nbytes numel dim uop",
    "test_values_come_out_as_they_went_in": "numpy tolist item",
    "test_assignments_are_of_the_old_values": "assign assign_all",
    "test_several_tensors_are_computed_at_once": "realize_all",
    "test_gradients_and_their_switches": "requires_grad requires_grad_ is_leaf grad zero_grad backward no_grad",
    "test_random_numbers_come_from_the_seed": "rand randn uniform manual_seed",
}

OUTSIDE = {
    "explain_gradient": "gives no numbers (tests/test_diagnose.py)",
    "training": "a switch that layers read; it has no value that NumPy knows (tests/test_nn.py)",
}


def aliases():
    """Public names that are another name of something: they hold the same object."""
    first = {}
    for name in EXAMPLES:
        first.setdefault(getattr(Tensor, name), name)
    return {
        name: first[getattr(Tensor, name)]
        for name in dir(Tensor)
        if not name.startswith("_") and name not in EXAMPLES
        and callable(getattr(Tensor, name)) and getattr(Tensor, name) in first
    }


def test_every_public_name_has_an_example():
    public = {name for name in dir(Tensor) if not name.startswith("_")}
    used = {name for names in ELSEWHERE.values() for name in names.split()}
    known = {*EXAMPLES, *used, *OUTSIDE, *aliases()}
    assert public - known == set(), "names without an example"
    assert known - public == set(), "examples of names that are no more"
    for test, names in ELSEWHERE.items():
        text = inspect.getsource(globals()[test])
        for name in names.split():
            assert re.search(rf"\.{name}\b", text), f"{test} does not use {name}"


def test_every_example_gives_what_numpy_gives():
    got = run(*(t for t, _ in EXAMPLES.values()))
    for (name, (_, expected)), value in zip(EXAMPLES.items(), got):
        expected = np.asarray(expected)
        assert value.dtype == expected.dtype and value.shape == expected.shape, name
        # An ulp of f64 is 2e-16; formulas of several steps may be off by a few.
        np.testing.assert_allclose(
            value.astype(np.float64), expected.astype(np.float64), rtol=1e-15 * 4, err_msg=name
        )


def test_what_a_tensor_is():
    t = Tensor(np.zeros((2, 3), np.float16))
    a = np.zeros((2, 3), np.float16)
    assert t.shape == a.shape and t.dtype == a.dtype and t.ndim == t.dim() == a.ndim
    assert t.size == t.numel() == a.size and t.itemsize == a.itemsize and t.nbytes == a.nbytes
    for shape in [(), (0,), (2, 0), (5,)]:
        u, a = Tensor.zeros(shape), np.zeros(shape, np.float32)
        assert (u.shape, u.ndim, u.size, u.nbytes) == (a.shape, a.ndim, a.size, a.nbytes)
    assert (x + y).uop.shape == (2, 3) and (x + y).uop.dtype == "f64"


@pytest.mark.parametrize("dtype", support.DTYPES)
def test_values_come_out_as_they_went_in(dtype):
    a = support.values(dtype, n=36).reshape(3, 4, 3)
    t = Tensor(a)
    same(t.numpy(), a)
    same((t.reshape(36)).numpy(), a.ravel())
    as_list = a.astype(np.float64).tolist() if dtype == "bf16" else a.tolist()
    assert repr(t.tolist()) == repr(as_list)
    first = t[1, 2, 0]
    assert type(first.item()) is type(as_list[1][2][0])
    assert repr(first.item()) == repr(as_list[1][2][0]) == repr(first.tolist())
    # Lists, the constructor's other source, keep every value that the dtype holds.
    same(Tensor(t.tolist(), dtype=dtype).numpy(), a)


def test_numbers_become_f32_i32_and_bool():
    for data, dtype in [(1.5, "f32"), (3, "i32"), (True, "bool"), ([1, 2], "i32"), ([[1, 2.5]], "f32")]:
        assert Tensor(data).dtype == dtype, data
        same(Tensor(data).numpy(), np.array(data, support.NP[dtype]))
    for data in ([[1, 2], [3]], 2**31, [2**40], "a", None, object(), {1: 2}, [None], 1j):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            Tensor(data)
    same(Tensor(2**40, dtype="i64").numpy(), np.array(2**40))


def test_python_numbers_of_tensors():
    assert int(Tensor(-2.7)) == int(np.float32(-2.7)) and float(Tensor([[2]])) == 2.0
    assert bool(Tensor(0.0)) is False and bool(Tensor(np.nan)) is bool(np.nan)
    assert [10, 20, 30][Tensor(1)] == 20 and f"{Tensor(1.5):.3f}" == "1.500"
    for use in (bool, int, float, lambda t: t.item()):
        with pytest.raises(ValueError):
            use(Tensor([1, 2]))
    with pytest.raises(ValueError):
        bool(Tensor.zeros(0))
    for use in (int, lambda t: t.item()):
        with pytest.raises(ValueError):
            use(Tensor.zeros(0))
    with pytest.raises(TypeError):
        [1][Tensor(0.0)]


@pytest.mark.parametrize("dtype", support.FLOATS + ["i8", "i32", "u8", "i64", "u64"])
def test_sequences_are_those_of_numpy(dtype):
    cases = [(5,), (0,), (2, 7), (7, 2, -1), (1, 10, 3), (10, 1, -3), (3, 3), (5, 2)]
    if dtype not in support.UNSIGNED:
        cases += [(-3, 3), (-1, -9, -2)]
    got = run(*(Tensor.arange(*case, dtype=dtype) for case in cases))
    for case, values in zip(cases, got):
        expected = np.arange(*case)
        same(values, expected.astype(support.NP[dtype]), str(case), zeros=False)
    if dtype in support.FLOATS:
        steps = np.arange(9) * 0.25 - 1
        same(Tensor.arange(-1, 1.25, 0.25, dtype=dtype).numpy(), steps.astype(support.NP[dtype]))


def test_sequences_that_do_not_exist():
    for wrong in [(0, 5, 0), (0, np.inf), (0, np.nan), (0, 1, 1e-300)]:
        with pytest.raises(ValueError):
            Tensor.arange(*wrong)
    for wrong in [(2**31, 2**31 + 5), (Tensor(3),), ("3",), (None,)]:
        with pytest.raises((TypeError, ValueError)):
            Tensor.arange(*wrong)


def test_assignments_are_of_the_old_values():
    a, c = Tensor(X), Tensor(Y)
    total = a + c
    Tensor.assign_all([(a, c * 2), (c, a * 3)], also=[total])
    got = run(a, c, total)
    for value, expected in zip(got, (Y * 2, X * 3, X + Y)):
        same(value, expected)
    assert a.assign(X) is a
    same(a.numpy(), X)
    for wrong in (X[0], X.astype(np.float32)):
        with pytest.raises((TypeError, ValueError)):
            a.assign(wrong)
    same(a.numpy(), X)


def test_several_tensors_are_computed_at_once():
    for together in (lambda a, c: Tensor.realize_all(a, c), lambda a, c: Tensor.realize_all([a, c])):
        a, c = x + y, x * y
        assert together(a, c) is None
        same(a.numpy(), X + Y)
        same(c.numpy(), X * Y)
    Tensor.realize_all()
    Tensor.realize_all([])


def test_copies_are_copies():
    t = Tensor(X)
    copies = [copy.copy(t), copy.deepcopy(t), Tensor(t)]
    t[0] = 0.0
    for other in copies:
        same(other.numpy(), X)


def test_gradients_and_their_switches():
    w = Tensor(X, requires_grad=True)
    assert w.requires_grad and w.is_leaf and w.grad is None
    loss = (w * w).sum()
    assert loss.requires_grad and not loss.is_leaf
    loss.backward()
    same(w.grad.numpy(), 2 * X)
    w.zero_grad()
    assert w.grad is None
    assert Tensor(X).requires_grad_().requires_grad
    with Tensor.no_grad():
        assert not (w * 2).requires_grad


def test_random_numbers_come_from_the_seed():
    Tensor.manual_seed(3)
    first = run(Tensor.rand(4), Tensor.randn(4), Tensor.uniform(4, low=2, high=3))
    Tensor.manual_seed(3)
    again = run(Tensor.rand(4), Tensor.randn(4), Tensor.uniform(4, low=2, high=3))
    for a, c in zip(first, again):
        same(a, c)
    assert (first[2] >= 2).all() and (first[2] <= 3).all()


# ---- arrays of any layout ----


@st.composite
def views(draw):
    """A view of an array with strides of any sign and size, some of them 0."""
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    dtype = draw(st.sampled_from(support.DTYPES))
    base = np.resize(support.values(dtype), shape)
    order = draw(st.permutations(range(len(shape))))
    key = tuple(draw(st.sampled_from([s[:], s[::-1], s[::2], s[::-3], s[1:], s[:0]])) for _ in shape)
    view = base.transpose(order)[(*key, ...)]
    if draw(st.booleans()):
        view = np.broadcast_to(view, (draw(st.integers(0, 3)), *view.shape))
    if dtype != "bf16" and draw(st.booleans()):
        view = view.astype(view.dtype.newbyteorder(), order="K")
    return view


@hypothesis.given(views())
def test_arrays_of_any_strides_and_byte_order_come_in(view):
    expected = np.ascontiguousarray(view, view.dtype.newbyteorder("=")).reshape(view.shape)
    for t in (Tensor(view), Tensor.from_numpy(view), Tensor.from_numpy(view, copy=True)):
        same(t.numpy(), expected)
    same((Tensor(view).unsqueeze(0)).numpy(), expected[None])


# ---- the comparisons of these tests ----


def test_the_comparisons_find_what_they_are_for():
    one = np.float32(1)
    up = np.nextafter(one, np.float32(2))
    for got, expected in [(0.0, -0.0), (one, up), (np.nan, 1.0), (np.inf, -np.inf)]:
        with pytest.raises(AssertionError):
            same(np.float32(got), np.float32(expected))
    for got, expected in [(np.int32(1), np.int64(1)), (np.ones(1), np.ones((1, 1)))]:
        with pytest.raises(AssertionError):
            same(got, expected)
    same(np.float32([np.nan, -0.0]), np.float32([np.nan, -0.0]))
    near(up, np.asarray(1.0), "f32", 1)
    for got, expected in [(up, 1.0), (np.nan, 1.0), (1.0, np.nan), (np.inf, 3.4e38), (1e-45, 0.0)]:
        with pytest.raises(AssertionError):
            near(np.float32(got), np.asarray(expected), "f32", 0.9)
    near(np.float32(np.inf), np.asarray(1e39), "f32", 0)
    assert support.exactly_rounded(2**24 + 1, "f32") == 2**24
    assert support.exactly_rounded(2**24 + 3, "f32") == 2**24 + 4
    assert support.exactly_rounded(65519, "f16") == 65504
    assert support.exactly_rounded(-65520, "f16") == -np.inf
    assert support.exactly_rounded(2.0**-150, "f32") == 0
    assert support.exactly_rounded(1.01 * 2.0**-150, "f32") == 2.0**-149
