"""Reductions against NumPy: every set of axes, empty axes, NaN, ties, all dtypes, long sums.

Integers, maxima and positions are exact. A sum of floats is compared with the exact sum: adding n
numbers in any order errs by at most n * eps * (the sum of their sizes), where eps is that of the
dtype in which sums are accumulated (f32 for f16 and bf16), and the result is rounded once.
"""

import itertools
import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import support
from support import DTYPES, FLOATS, INTS, NP, SIGNED
from support import eps, moderate, near, run, same, values, wide, widened
from uopc import Tensor


def subsets(rank):
    """Every set of axes, from none of them to all."""
    return [axes for k in range(rank + 1) for axes in itertools.combinations(range(rank), k)]


def accumulator(dtype):
    """The dtype in which floats are added up."""
    return "f32" if dtype in ("f16", "bf16") else dtype


def roomy(dtype):
    """The dtype of sums and products."""
    if dtype == "bool" or dtype in ("i8", "i16"):
        return "i32"
    return "u32" if dtype in ("u8", "u16") else dtype


def count(x, axes):
    return math.prod(x.shape[a] for a in axes)


def check_sum(got, x, dtype, axes, keepdims=False):
    if dtype not in FLOATS:
        common = NP[roomy(dtype)]
        expected = np.sum(x.astype(common), axis=axes, dtype=common, keepdims=keepdims)
        return same(got, np.asarray(expected), f"sum of {dtype} over {axes}")
    exact = np.asarray(np.sum(widened(x), axis=axes, keepdims=keepdims))
    slack = np.sum(np.abs(widened(x)), axis=axes, keepdims=keepdims)
    slack = slack * count(x, axes) * eps(accumulator(dtype))
    near(got, exact, dtype, 0.5 + 2**-10, f"sum over {axes}", slack=slack)


def check_prod(got, x, dtype, axes, keepdims=False):
    if dtype not in FLOATS:
        common = NP[roomy(dtype)]
        with np.errstate(over="ignore"):
            expected = np.prod(x.astype(common), axis=axes, dtype=common, keepdims=keepdims)
        return same(got, np.asarray(expected), f"prod of {dtype} over {axes}")
    exact = np.asarray(np.prod(widened(x), axis=axes, keepdims=keepdims))
    # Each product is rounded once.
    slack = np.abs(exact) * count(x, axes) * eps(accumulator(dtype))
    near(got, exact, dtype, 0.5 + 2**-10, f"prod over {axes}", slack=slack)


def mean_reference(x, axes, keepdims=False):
    exact = x if x.dtype == wide else widened(x)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.sum(exact, axis=axes, keepdims=keepdims) / wide(count(x, axes)))


def check_mean(got, x, dtype, axes, keepdims=False):
    result = dtype if dtype in FLOATS else "f32"
    exact = mean_reference(x, axes, keepdims)
    # The sum's error, divided; then the division and, for narrow floats, one more rounding.
    slack = mean_reference(np.abs(widened(x)), axes, keepdims)
    slack = np.nan_to_num(slack * count(x, axes) * eps(accumulator(result)))
    near(got, exact, result, 1, f"mean of {dtype} over {axes}", slack=slack)


def var_reference(x, axes, ddof=0, keepdims=False):
    deviation = widened(x) - mean_reference(x, axes, True)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = np.sum(deviation**2, axis=axes, keepdims=keepdims)
        return np.asarray(total / wide(max(count(x, axes) - ddof, 0)))


def check_var(got, x, dtype, axes, ddof=0, keepdims=False):
    result = dtype if dtype in FLOATS else "f32"
    exact = var_reference(x, axes, ddof, keepdims)
    # Deviations carry the error of the mean, which is relative to the largest element.
    n, e = count(x, axes), eps(accumulator(result))
    size = np.max(np.abs(widened(x)), axis=axes, keepdims=keepdims, initial=0)
    slack = np.nan_to_num(exact * (n + 3) * e + 4 * n * e * size * np.sqrt(np.nan_to_num(exact)))
    near(got, exact, result, 1, f"var of {dtype} over {axes}", slack=slack)


def least(dtype):
    """What a maximum of nothing is."""
    return -np.inf if dtype in FLOATS else False if dtype == "bool" else support.int_range(dtype)[0]


def greatest(dtype):
    return np.inf if dtype in FLOATS else True if dtype == "bool" else support.int_range(dtype)[1]


def maximum(x, dtype, axes, keepdims=False):
    return np.asarray(np.max(x, axis=axes, keepdims=keepdims, initial=NP[dtype].type(least(dtype))))


def minimum(x, dtype, axes, keepdims=False):
    start = NP[dtype].type(greatest(dtype))
    return np.asarray(np.min(x, axis=axes, keepdims=keepdims, initial=start))


def check_all(x, dtype, axes, keepdims):
    """Every reduction of one array along some axes."""
    t = Tensor(x)
    given = axes if len(axes) != 1 else axes[0]
    got = run(
        *(
            getattr(t, name)(given, keepdims)
            for name in ("sum", "prod", "mean", "var", "max", "min", "any", "all")
        )
    )
    check_sum(got[0], x, dtype, axes, keepdims)
    check_prod(got[1], x, dtype, axes, keepdims)
    check_mean(got[2], x, dtype, axes, keepdims)
    check_var(got[3], x, dtype, axes, 0, keepdims)
    same(got[4], maximum(x, dtype, axes, keepdims), f"max of {dtype} over {axes}", zeros=False)
    same(got[5], minimum(x, dtype, axes, keepdims), f"min of {dtype} over {axes}", zeros=False)
    same(got[6], np.asarray(np.any(x, axis=axes, keepdims=keepdims)), f"any over {axes}")
    same(got[7], np.asarray(np.all(x, axis=axes, keepdims=keepdims)), f"all over {axes}")


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (1, 4), (2, 3, 4)], ids=str)
def test_every_set_of_axes(shape):
    for k, axes in enumerate(subsets(len(shape))):
        check_all(moderate("f32", shape), "f32", axes, keepdims=k % 2 == 1)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("dtype", ["f32", "i32", "u8", "bool"])
def test_empty_axes_give_the_neutral_element(shape, dtype):
    for axes in subsets(len(shape)):
        check_all(moderate(dtype, shape), dtype, axes, keepdims=False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype):
    x = moderate(dtype, (3, 5), seed=3)
    check_all(x, dtype, (0, 1), keepdims=False)
    check_all(x, dtype, (1,), keepdims=True)


SHAPES = [(4, 3), (2, 1, 3), (1, 1), (5,), (2, 3, 2)]


@support.examples(15)
@hypothesis.given(st.data())
def test_axes_may_be_negative_and_in_any_order_and_have_two_names(data):
    shape = data.draw(st.sampled_from(SHAPES))
    axes = data.draw(st.sampled_from(subsets(len(shape))))
    given = [a - len(shape) if data.draw(st.booleans()) else a for a in axes]
    given = data.draw(st.permutations(given))
    keepdims = data.draw(st.booleans())
    x = moderate("i32", shape)
    t = Tensor(x)
    expected = np.asarray(np.sum(x, axis=axes, dtype=np.int32, keepdims=keepdims))
    spelled = [
        t.sum(tuple(given), keepdims),
        t.sum(axis=list(given), keepdim=keepdims),
        t.sum(dim=tuple(given), keepdims=keepdims),
    ]
    for got in run(*spelled):
        same(got, expected)


def test_axes_that_do_not_exist_or_are_named_twice_are_refused():
    t = Tensor.zeros(2, 3)
    names = ("sum", "mean", "prod", "var", "max", "min", "any", "all")
    for name in names:
        for axes in (2, -3, (0, 0), (0, -2), (0, 5), 2**63):
            with pytest.raises(ValueError):
                getattr(t, name)(axes)
        for axes in (True, 1.0, "0"):
            with pytest.raises(TypeError):
                getattr(t, name)(axes)
        with pytest.raises(TypeError):
            getattr(t, name)(0, axis=0)
        with pytest.raises(TypeError):
            getattr(t, name)(axis=0, dim=0)
        with pytest.raises(TypeError):
            getattr(t, name)(out=t)


def test_a_dtype_is_that_of_the_elements_before_they_are_joined_and_of_the_result():
    x = np.array([200, 100, 57], np.uint8)
    t = Tensor(x)
    got = run(t.sum(dtype="u8"), t.sum(dtype="f64"), t.prod(dtype="i64"), t.prod(dtype="i8"))
    same(got[0], np.sum(x, dtype=np.uint8))
    same(got[1], np.sum(x, dtype=np.float64))
    same(got[2], np.prod(x, dtype=np.int64))
    same(got[3], np.prod(x.astype(np.int8), dtype=np.int8))
    got = run(t.mean(dtype="f16"), t.mean(dtype="i16"), t.sum(dtype="bool"), t.prod(dtype="bool"))
    same(got[0], np.float16(119))
    same(got[1], np.int16(119))
    same(got[2], np.bool_(True))
    same(got[3], np.bool_(True))
    check_var(t.var(dtype="f64").numpy(), x.astype(np.float64), "f64", (0,))


# ---- numbers that are special ----


@pytest.mark.parametrize("dtype", INTS)
def test_sums_and_products_of_extreme_integers_wrap(dtype):
    x = values(dtype, n=24).reshape(4, 6)
    t = Tensor(x)
    for axes, got in zip(((0,), (0, 1)), (run(t.sum(0), t.prod(0)), run(t.sum(), t.prod()))):
        check_sum(got[0], x, dtype, axes)
        check_prod(got[1], x, dtype, axes)
    got = run(t.max(1), t.min(1), t.argmax(1), t.argmin(1), t.argmax(), t.argmin())
    expected = [x.max(1), x.min(1), x.argmax(1), x.argmin(1), x.argmax(), x.argmin()]
    for y, z in zip(got, expected):
        same(y, z)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_and_infinities(dtype):
    rows = [
        [1.0, np.nan, 3.0, -1.0],
        [np.inf, 1.0, 2.0, np.inf],
        [-np.inf, np.inf, 0.0, 1.0],
        [-np.inf, -np.inf, -1.0, 2.0],
        [np.nan, np.nan, np.inf, np.nan],
        [-np.inf, -np.inf, -np.inf, -np.inf],
        [0.0, np.inf, 1.0, 1.0],
        [-0.0, -0.0, -0.0, -0.0],
    ]
    x = np.array(rows).astype(NP[dtype])
    t = Tensor(x)
    got = run(
        t.sum(1), t.prod(1), t.max(1), t.min(1), t.mean(1), t.argmax(1), t.argmin(1), t.any(1), t.all(1)
    )
    exact = x.astype(np.float64)
    with np.errstate(all="ignore"):
        expected = [exact.sum(1), exact.prod(1), exact.max(1), exact.min(1), exact.mean(1)]
    for y, z in zip(got, expected):
        same(y, z.astype(NP[dtype]), zeros=False)
    same(got[5], exact.argmax(1))
    same(got[6], exact.argmin(1))
    same(got[7], np.any(exact, 1))
    same(got[8], np.all(exact, 1))


def test_a_sum_of_negative_zeros_is_negative_and_that_of_nothing_is_not():
    same(Tensor(np.full(3, -0.0, np.float32)).sum().numpy(), np.float32(-0.0))
    assert not np.signbit(Tensor(np.zeros(0, np.float32)).sum().numpy())


@pytest.mark.parametrize("dtype", DTYPES)
def test_positions_are_the_first_of_equal_ones(dtype):
    rng = np.random.default_rng(5)
    x = rng.integers(0, 2 if dtype == "bool" else 3, (6, 7)).astype(NP[dtype])
    t = Tensor(x)
    spelled = [t.argmax(1), t.argmin(0), t.argmax(), t.argmin(-1, keepdim=True)]
    spelled += [t.argmax(keepdims=True), t.argmin(dim=1)]
    plain = x.astype(np.float64)
    expected = [plain.argmax(1), plain.argmin(0), plain.argmax(), plain.argmin(-1, keepdims=True)]
    expected += [plain.argmax(keepdims=True), plain.argmin(1)]
    for y, z in zip(run(*spelled), expected):
        same(y, z)


def test_positions_in_all_ranks_and_refusals():
    for shape in [(1,), (1, 4), (3, 1), (2, 3, 4)]:
        x = moderate("f32", shape, seed=9)
        t = Tensor(x)
        axes = range(-len(shape), len(shape))
        for axis, y in zip(axes, run(*(t.argmax(a) for a in axes))):
            same(y, x.argmax(axis))
    for shape, axis in [((0,), 0), ((2, 0), 1), ((0,), None)]:
        with pytest.raises(ValueError):
            Tensor.zeros(shape).argmax(axis)
        with pytest.raises(ValueError):
            Tensor.zeros(shape).argmin(axis)
    same(Tensor.zeros(2, 0).argmax(0).numpy(), np.zeros(0, np.int64))
    for axis in (2, -3):
        with pytest.raises(ValueError):
            Tensor.zeros(2, 3).argmax(axis)


@pytest.mark.parametrize("dtype", FLOATS)
def test_long_sums_keep_their_accuracy(dtype):
    """More elements than a block of a sum has, in both directions of memory."""
    x = support.rounded(np.random.default_rng(1).uniform(-1, 2, (9001, 2)), dtype)
    t = Tensor(x)
    got = run(t.sum(0), t.mean(0), t.sum(), t.var(0), t.max(0), t.argmax(0))
    check_sum(got[0], x, dtype, (0,))
    check_mean(got[1], x, dtype, (0,))
    check_sum(got[2], x, dtype, (0, 1))
    check_var(got[3], x, dtype, (0,))
    same(got[4], np.max(x, axis=0))
    same(got[5], np.argmax(x.astype(np.float64), axis=0))
    # The bound is that of the worst order. Lanes and blocks are far better.
    error = np.abs(widened(got[2]) - np.sum(widened(x)))
    assert error <= 32 * eps(accumulator(dtype)) * np.sum(np.abs(widened(x))) + eps(
        dtype
    ) * np.abs(np.sum(widened(x)))


def test_integers_of_all_sizes_in_long_sums():
    for dtype in SIGNED:
        x = values(dtype, n=5000)
        check_sum(Tensor(x).sum().numpy(), x, dtype, (0,))


@pytest.mark.parametrize("ddof", [0, 1, 2, 0.5])
def test_variance_with_a_correction(ddof):
    x = moderate("f64", (4, 5), seed=2)
    t = Tensor(x)
    got = run(t.var(1, correction=ddof), t.var(1, ddof=ddof), t.var(ddof=ddof, keepdims=True))
    check_var(got[0], x, "f64", (1,), ddof)
    check_var(got[1], x, "f64", (1,), ddof)
    check_var(got[2], x, "f64", (0, 1), ddof, keepdims=True)


def test_variance_with_nothing_left_to_divide_by():
    x = np.array([[3.0], [4.0]])
    got = run(Tensor(x).var(1, correction=1), Tensor(x).var(0, correction=2), Tensor(x).var(0, ddof=5))
    with np.errstate(all="ignore"):
        same(got[0], np.array([0.0, 0.0]) / 0)
        same(got[1], np.array([0.5]) / 0)
        same(got[2], np.array([0.5]) / 0)


# ---- what is made of reductions ----


def softmax_reference(x, axis):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def log_softmax_reference(x, axis):
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_and_its_logarithm(dtype):
    x = support.rounded(np.random.default_rng(4).uniform(-30, 30, (3, 4, 5)), dtype)
    t = Tensor(x)
    axes = [0, 1, 2, -1, -3]
    got = run(*(t.softmax(a) for a in axes), *(t.log_softmax(dim=a) for a in axes))
    exact = widened(x)
    for axis, p, log_p in zip(axes, got[: len(axes)], got[len(axes) :]):
        # exp of a difference d errs by |d| half-ulps of d, here below 60, besides its own ulp.
        expected = softmax_reference(exact, axis)
        slack = expected * (x.shape[axis] + 64) * eps(accumulator(dtype))
        near(p, expected, dtype, 0.5 + 2**-10, f"softmax over {axis}", [x], slack)
        # The logarithm is the difference of two numbers below 64: an ulp of each.
        slack = 4 * 64 * eps(accumulator(dtype))
        near(log_p, log_softmax_reference(exact, axis), dtype, 0.5, "log_softmax", [x], slack)
    same(t.softmax().numpy(), got[2])
    same(t.log_softmax().numpy(), got[len(axes) + 2])


def test_softmax_of_large_numbers_and_of_integers():
    x = np.array([[1e30, 0.0], [-1e30, -1e30], [600.0, 800.0], [-np.inf, 0.0]], np.float32)
    expected = np.array([[1, 0], [0.5, 0.5], [0, 1], [0, 1]], np.float32)
    same(Tensor(x).softmax().numpy(), expected)
    with np.errstate(divide="ignore"):
        logs = np.array([[0, -1e30], [-np.log(2), -np.log(2)], [-200, 0], [-np.inf, 0]], np.float64)
    near(Tensor(x).log_softmax().numpy(), logs, "f32", 2)
    undefined = Tensor(np.array([[np.inf, 0.0], [-np.inf, -np.inf], [np.nan, 1.0]], np.float32))
    assert np.isnan(undefined.softmax().numpy()).all()
    whole = Tensor([[1, 2], [3, 3]]).softmax()
    near(whole.numpy(), softmax_reference(np.array([[1, 2], [3, 3]], wide), 1), "f32", 3)


@pytest.mark.parametrize("labels_dtype", ["u8", "i32", "i64"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_cross_entropy(dtype, labels_dtype):
    rng = np.random.default_rng(8)
    for lead in [(6,), (2, 3), ()]:
        x = support.rounded(rng.uniform(-5, 5, (*lead, 4)), dtype)
        y = rng.integers(0, 4, lead).astype(NP[labels_dtype])
        log_p = log_softmax_reference(widened(x), -1)
        picked = np.take_along_axis(log_p, y[..., None].astype(np.int64), -1)
        expected = np.asarray(-np.mean(picked))
        # Each row errs by a few ulps of its largest difference, 10, and the mean by less.
        slack = 64 * eps(accumulator(dtype))
        near(Tensor(x).cross_entropy(Tensor(y)).numpy(), expected, dtype, 0.5, "", slack=slack)


def test_cross_entropy_of_labels_that_are_no_classes_is_nan():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    for label in (-1, 2, 1000):
        assert math.isnan(x.cross_entropy(Tensor([0, label])).item())
    with pytest.raises(TypeError):
        x.cross_entropy(Tensor([0.0, 1.0]))
    with pytest.raises(ValueError):
        x.cross_entropy(Tensor([0, 1, 1]))


def test_accuracy_is_the_part_of_rows_that_agree():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 5)).astype(np.float32)
    y = rng.integers(0, 5, 40)
    expected = np.mean(x.argmax(1) == y)
    near(Tensor(x).accuracy(Tensor(y)).numpy(), np.asarray(expected), "f32", 1)
    same(Tensor(x).accuracy(x.argmax(1)).numpy(), np.float32(1))
    with pytest.raises(TypeError):
        Tensor(x).accuracy(Tensor(x[:, 0]))


def test_several_names_of_one_reduction():
    assert Tensor.amax == Tensor.max and Tensor.amin == Tensor.min
