"""Functions of single elements against NumPy: every dtype, special values, promotion, broadcasting.

What NumPy rounds correctly (sums, products, quotients, roots, comparisons, integers) must be equal
to the last bit. Transcendental functions are compared with NumPy's in more precision, in units of
the last place (ulps).
"""

import operator

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import support
from support import DTYPES, FLOATS, INTS, NP
from support import eps, moderate, near, number_dtype, promoted, real, run, same, values, wide
from support import widened
from uopc import Tensor

# ---- functions of one argument ----


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    # The limit at -inf is 0, of which exp(-x) alone knows nothing.
    return np.where(x == -np.inf, -0.0, x * sigmoid(x))


def gelu_angle(x):
    """Twice the argument of tanh."""
    return 2 * np.sqrt(2 / wide(np.pi)) * (x + wide(0.044715) * x**3)


def gelu(x):
    # x/2 (1 + tanh(u)) = x sigmoid(2u), without the cancellation.
    x = np.where(np.abs(x) > 1e3, np.copysign(wide(1e3), x), x) if np.ndim(x) else x
    return x * sigmoid(gelu_angle(x))


def gelu_everywhere(x):
    return np.where(np.abs(x) > 1e3, np.where(x > 0, x, -0.0), gelu(x))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


# The function in more precision, and how many ulps are allowed: 1 where one rounded step computes
# it (0.75 measured in Rust over all of f32), more where a formula has several rounded steps.
TRANSCENDENTAL = {
    "exp": (np.exp, 1),
    "exp2": (np.exp2, 1),
    "log": (np.log, 2),
    "log2": (np.log2, 1),
    "sin": (np.sin, 1),
    "cos": (np.cos, 1),
    "tanh": (np.tanh, 4),
    "sigmoid": (sigmoid, 4),
    "silu": (silu, 4),
    "gelu": (gelu_everywhere, 4),
    "softplus": (softplus, 4),
}


def slack_of(name, x, y, dtype):
    """What a function may err by beyond its ulps."""
    if name == "gelu":
        # exp(2u) multiplies the relative error of its argument by |2u|: half an ulp for each of
        # the three products that the argument is made of, so 2 ulps of it are allowed.
        with np.errstate(invalid="ignore"):
            error = np.abs(y) * np.minimum(np.abs(gelu_angle(x)), 1500) * 2 * eps(real_step(dtype))
        return np.nan_to_num(error, nan=0.0, posinf=0.0)
    return 0.0


def real_step(dtype):
    """The dtype in which formulas of several steps are computed."""
    return "f32" if dtype in ("f16", "bf16") else dtype


@pytest.mark.parametrize("dtype", FLOATS)
def test_transcendental_functions_are_within_ulps(dtype):
    x = values(dtype, n=160)
    got = run(*(getattr(Tensor(x), name)() for name in TRANSCENDENTAL))
    exact = widened(x)
    for (name, (function, ulps)), y in zip(TRANSCENDENTAL.items(), got):
        with np.errstate(all="ignore"):
            if name in ("sin", "cos") and dtype == "f64":
                # The C library of longdoubles reduces angles less well than f64's.
                expected, ulps = function(x), 2
            else:
                expected = function(exact)
        near(y, expected, dtype, ulps, name, [x], slack_of(name, exact, expected, dtype))


@pytest.mark.parametrize("dtype", INTS + ["bool"])
def test_transcendental_functions_of_integers_are_those_of_f32(dtype):
    x = values(dtype)
    as_f32 = run(*(getattr(Tensor(x.astype(np.float32)), name)() for name in TRANSCENDENTAL))
    for name, expected in zip(TRANSCENDENTAL, as_f32):
        same(getattr(Tensor(x), name)().numpy(), expected, name, [x])


def relu(x):
    with np.errstate(invalid="ignore"):
        return np.where(x > 0, x, np.zeros((), x.dtype))


def square(x):
    return exactly(np.multiply, x, x)


def narrow(function, *arguments):
    """A function of narrow floats, computed in f32 and rounded.

    For sums, products, quotients and roots this is the correct rounding: f32 has more than twice
    the bits and two to spare.
    """
    with np.errstate(all="ignore"):
        wide_result = function(*(a.astype(np.float32) for a in arguments))
        truth = wide_result.dtype == np.bool_
        return wide_result if truth else wide_result.astype(arguments[0].dtype)


def exactly(function, *arguments):
    """NumPy's function in the dtype of its arguments."""
    if arguments[0].dtype in (NP["f16"], NP["bf16"]):
        return narrow(function, *arguments)
    with np.errstate(all="ignore"):
        return function(*arguments)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_functions_of_one_argument(dtype):
    x = values(dtype)
    t = Tensor(x)
    as_real = x if dtype in FLOATS else x.astype(np.float32)
    cases = {
        "abs": (t.abs(), np.abs(x)),
        "relu": (t.relu(), relu(x)),
        "square": (t.square(), square(x)),
        "sqrt": (t.sqrt(), exactly(np.sqrt, as_real)),
        "reciprocal": (t.reciprocal(), exactly(np.divide, np.ones_like(as_real), as_real)),
        "logical_not": (t.logical_not(), np.logical_not(x)),
        "abs()": (abs(t), np.abs(x)),
    }
    if dtype != "bool":
        cases["neg"] = (t.neg(), -x)
        cases["-"] = (-t, -x)
    if dtype in FLOATS:
        cases["trunc"] = (t.trunc(), exactly(np.trunc, x))
    else:
        cases["bitwise_not"] = (t.bitwise_not(), np.invert(x))
        cases["~"] = (~t, np.invert(x))
    got = run(*(result for result, _ in cases.values()))
    for (name, (_, expected)), y in zip(cases.items(), got):
        same(y, expected, f"{name} in {dtype}", [x])


def test_plus_is_the_tensor_itself():
    t = Tensor([1.0])
    assert +t is t


@pytest.mark.parametrize("name", ["bitwise_not", "__invert__"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_bits_of_floats_are_refused(name, dtype):
    with pytest.raises(TypeError, match=dtype):
        getattr(Tensor(values(dtype)), name)()


@pytest.mark.parametrize("dtype", INTS + ["bool"])
def test_what_has_no_fraction_stays_what_it_is(dtype):
    t = Tensor(values(dtype))
    for name in ["trunc", "floor", "ceil", "round"]:
        same(getattr(t, name)().numpy(), t.numpy(), name)
    with pytest.raises(TypeError, match=dtype):
        t.frac()


def test_bools_have_no_sign():
    for refused in (lambda t: -t, lambda t: t.neg(), lambda t: t - t, lambda t: t.sub(True)):
        with pytest.raises(TypeError):
            refused(Tensor([True, False]))


# ---- functions of two arguments ----


COMPARISONS = {
    "eq": (operator.eq, np.equal),
    "ne": (operator.ne, np.not_equal),
    "lt": (operator.lt, np.less),
    "le": (operator.le, np.less_equal),
    "gt": (operator.gt, np.greater),
    "ge": (operator.ge, np.greater_equal),
}
ARITHMETIC = {
    "add": (operator.add, np.add),
    "sub": (operator.sub, np.subtract),
    "mul": (operator.mul, np.multiply),
}
WHOLE = {
    "floordiv": (operator.floordiv, np.floor_divide),
    "mod": (operator.mod, np.remainder),
}
BITS = {
    "bitwise_and": (operator.and_, np.bitwise_and),
    "bitwise_or": (operator.or_, np.bitwise_or),
    "bitwise_xor": (operator.xor, np.bitwise_xor),
}
LOGICAL = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}


def binary_of(dtype):
    """The functions of two arguments that a dtype has: name, operator, reference."""
    table = {**COMPARISONS, **ARITHMETIC}
    if dtype == "bool":
        del table["sub"]
    if dtype in INTS:
        table.update(WHOLE)
    if dtype not in FLOATS:
        table.update(BITS)
    return [(name, op, reference) for name, (op, reference) in table.items()]


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_two_arguments_with_all_pairs_of_special_values(dtype):
    a, b = support.pairs(dtype)
    x, y = Tensor(a), Tensor(b)
    table = binary_of(dtype)
    got = run(*(getattr(x, name)(y) for name, _, _ in table))
    for (name, op, reference), z in zip(table, got):
        same(z, exactly(reference, a, b), f"{name} in {dtype}", [a, b])
    # The operators are the same graphs, hence the same kernels.
    for (name, op, _), z in zip(table, run(*(op(x, y) for _, op, _ in table))):
        same(z, got[[n for n, _, _ in table].index(name)], f"{op.__name__} in {dtype}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes_quotients_and_logic_of_pairs(dtype):
    a, b = support.pairs(dtype)
    x, y = Tensor(a), Tensor(b)
    got = run(
        x.maximum(y), x.minimum(y), x.div(y), x / y, *(getattr(x, name)(y) for name in LOGICAL)
    )
    # Which of 0.0 and -0.0 is larger is not said, in NumPy neither.
    same(got[0], exactly(np.maximum, a, b), f"maximum in {dtype}", [a, b], zeros=False)
    same(got[1], exactly(np.minimum, a, b), f"minimum in {dtype}", [a, b], zeros=False)
    as_real = [v if dtype in FLOATS else v.astype(np.float32) for v in (a, b)]
    for quotient in got[2:4]:
        same(quotient, exactly(np.divide, *as_real), f"div in {dtype}", [a, b])
    for name, z in zip(LOGICAL, got[4:]):
        same(z, LOGICAL[name](a, b), f"{name} in {dtype}", [a, b])


@pytest.mark.parametrize("dtype", FLOATS + ["bool"])
def test_functions_of_integers_refuse_other_dtypes(dtype):
    t = Tensor(values(dtype))
    for name, (op, _) in (BITS if dtype in FLOATS else WHOLE).items():
        with pytest.raises(TypeError, match=dtype):
            getattr(t, name)(t)
        with pytest.raises(TypeError, match=dtype):
            op(t, True)


@pytest.mark.parametrize("dtype", INTS)
def test_divmod_is_both(dtype):
    a, b = support.pairs(dtype)
    q, r = run(*divmod(Tensor(a), Tensor(b)))
    same(q, exactly(np.floor_divide, a, b), "divmod", [a, b])
    same(r, exactly(np.remainder, a, b), "divmod", [a, b])


@pytest.mark.parametrize("dtype", ["i32", "u8", "f32", "bool"])
def test_reflected_operators_have_the_number_on_the_left(dtype):
    a = values(dtype)
    x = Tensor(a)
    number = 2.5 if dtype == "f32" else True if dtype == "bool" else 7
    left = np.full_like(a, number)
    table = binary_of(dtype)
    quotients = [v if dtype == "f32" else v.astype(np.float32) for v in (left, a)]
    got = run(*(op(number, x) for _, op, _ in table), number / x)
    for (name, op, reference), z in zip(table, got):
        same(z, exactly(reference, left, a), f"{number} {name} in {dtype}", [a])
    same(got[-1], exactly(np.divide, *quotients), f"{number} / {dtype}", [a])
    if dtype in INTS:
        q, r = run(*divmod(number, x))
        same(q, exactly(np.floor_divide, left, a), "divmod", [a])
        same(r, exactly(np.remainder, left, a), "divmod", [a])


IN_PLACE = {
    "add": operator.iadd,
    "sub": operator.isub,
    "mul": operator.imul,
    "floordiv": operator.ifloordiv,
    "mod": operator.imod,
    "bitwise_and": operator.iand,
    "bitwise_or": operator.ior,
    "bitwise_xor": operator.ixor,
}


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32", "u64", "bool"])
def test_operators_in_place_reach_every_name_and_keep_what_was_computed(dtype):
    a, b = support.pairs(dtype)
    for name, op, reference in binary_of(dtype):
        if name in COMPARISONS:
            continue
        t = Tensor(a)
        other_name, before = t, t.maximum(t)
        result = IN_PLACE[name](t, Tensor(b))
        assert result is other_name
        got, old = run(other_name, before)
        same(got, exactly(reference, a, b), f"in place {name} in {dtype}", [a, b])
        same(old, a, "what was computed before", zeros=False)


def test_quotients_powers_and_products_in_place():
    a = moderate("f32", (4, 4))
    t = Tensor(a)
    t /= 3
    same(t.numpy(), a / np.float32(3))
    t = Tensor(a)
    t **= 2
    same(t.numpy(), a * a)
    t = Tensor(a)
    t @= Tensor(np.eye(4, dtype=np.float32))
    same(t.numpy(), a, zeros=False)


def test_in_place_keeps_dtype_and_shape():
    t = Tensor([1, 2])
    for other in (1.5, Tensor([0.5, 0.5]), Tensor(np.array([1], np.int64))):
        with pytest.raises(TypeError):
            t += other
    with pytest.raises(TypeError):
        t /= 2
    with pytest.raises(ValueError):
        t += Tensor([[1, 2], [3, 4]])
    assert t.tolist() == [1, 2]


def test_in_place_on_a_parameter_needs_no_grad():
    w = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(RuntimeError):
        w += 1
    with Tensor.no_grad():
        w += 1
    assert w.tolist() == [2.0, 3.0] and w.requires_grad and w.is_leaf


# ---- promotion ----


def test_dtypes_of_pairs_are_promoted():
    """All pairs of dtypes, by shape and dtype of sums, quotients, comparisons and choices."""
    for a in DTYPES:
        for b in DTYPES:
            x, y = Tensor(np.ones(2, NP[a])), Tensor(np.ones(2, NP[b]))
            common = promoted(a, b)
            assert (x + y).dtype == x.mul(y).dtype == common, (a, b)
            assert x.maximum(y).dtype == x.minimum(y).dtype == common, (a, b)
            assert (x / y).dtype == real(common), (a, b)
            assert (x < y).dtype == (x == y).dtype == "bool", (a, b)
            assert Tensor([True, False]).where(x, y).dtype == common, (a, b)
            assert Tensor.cat([x, y]).dtype == Tensor.stack([x, y]).dtype == common, (a, b)


@pytest.mark.parametrize("a", DTYPES)
def test_values_of_pairs_are_cast_before_they_are_added(a):
    x = moderate(a, 8)
    others = {b: moderate(b, 8, seed=1) for b in DTYPES}
    got = run(*(Tensor(x) + Tensor(y) for y in others.values()))
    for (b, y), z in zip(others.items(), got):
        common = NP[promoted(a, b)]
        same(z, exactly(np.add, x.astype(common), y.astype(common)), f"{a} + {b}", [x, y])


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_take_the_tensors_dtype(dtype):
    x = moderate(dtype, 6)
    numbers = [True, 3, 2.5]
    as_numpy = [np.bool_(True), np.int64(3), np.int8(3), np.float64(2.5), np.float32(2.5)]
    for number in numbers + as_numpy:
        plain = number.item() if isinstance(number, np.generic) else number
        common = NP[number_dtype(dtype, plain)]
        other = np.full(6, plain).astype(common)
        for t in (Tensor(x) * number, number * Tensor(x), Tensor(x).mul(number)):
            same(t.numpy(), exactly(np.multiply, x.astype(common), other), f"{dtype} * {number!r}")
        assert (Tensor(x) == number).dtype == "bool"
        chosen = Tensor(np.ones(6, np.bool_)).where(Tensor(x), number)
        assert chosen.dtype == (Tensor(x) * number).dtype


def test_an_array_beside_a_tensor_is_a_tensor():
    x, y = np.arange(3, dtype=np.int32), np.arange(3, dtype=np.float64)
    same((Tensor(x) + y).numpy(), x + y)
    same((y + Tensor(x)).numpy(), x + y)
    same((Tensor(x) + np.array(2.0)).numpy(), x + np.array(2.0))


@pytest.mark.parametrize("dtype", INTS)
def test_an_integer_that_does_not_fit_is_refused(dtype):
    low, high = support.int_range(dtype)
    t = Tensor(values(dtype))
    same((t - high).numpy(), values(dtype) - NP[dtype].type(high))
    for number in (low - 1, high + 1):
        with pytest.raises((TypeError, OverflowError)):
            t + number
        with pytest.raises((TypeError, OverflowError)):
            t < number


def test_what_is_no_operand_is_refused():
    t = Tensor([1.0])
    for other in ("a", None, object(), {1}, 1j):
        with pytest.raises(TypeError):
            t + other
        with pytest.raises(TypeError):
            other - t
        with pytest.raises(TypeError):
            t.add(other)
    assert (t == "a") is False and (t != None) is True  # noqa: E711


# ---- powers ----

POWERS = [0, 1, 2, 3, 4, 7, -1, -2, -3, 10, 0.5, -0.5, 1.5, -1.5, 2.5, 1 / 3, 0.1, 20, -15]
EXTREME_POWERS = [np.inf, -np.inf, np.nan, 1e300, -1e300, 3e9, 2.0**31 + 1, 1e-300]


@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_of_floats(dtype):
    x = values(dtype, n=100)
    powers = POWERS + EXTREME_POWERS
    got = run(*(Tensor(x) ** p for p in powers))
    for p, y in zip(powers, got):
        with np.errstate(all="ignore"):
            expected = np.power(widened(x), wide(p))
            # f64 is computed as 2^(p * log2 x), whose argument has an error of half an ulp after
            # the logarithm and another one after the product, and by repeated squaring, where an
            # error of half an ulp is multiplied by the power. Narrower floats are computed in f64.
            # Three products or fewer are computed in their own dtype: f16 and f32, half an ulp each.
            angle = np.abs(p * np.log2(np.abs(widened(x))))
            angle = np.nan_to_num(np.minimum(angle, 1100), nan=0.0)
            factor = 2 + angle + (abs(p) if abs(p) < 100 else 0)
            slack = np.abs(np.clip(expected, -1e308, 1e308)) * factor * eps("f64")
        ulps = 1 if dtype != "f64" and abs(p) > 3 else 3
        near(y, expected, dtype, ulps, f"x ** {p}", [x], np.nan_to_num(slack, nan=0.0))


@pytest.mark.parametrize("dtype", INTS)
def test_powers_of_integers_wrap(dtype):
    x = values(dtype, n=24)
    powers = [0, 1, 2, 3, 5, 10]
    got = run(*(Tensor(x) ** p for p in powers), Tensor(x).pow(2))
    for p, y in zip(powers + [2], got):
        expected = np.ones_like(x)
        for _ in range(p):
            expected = expected * x
        same(y, expected, f"x ** {p}", [x])
    with pytest.raises(TypeError):
        Tensor(x) ** -1


@pytest.mark.parametrize("dtype", INTS + ["bool"])
def test_a_float_as_power_makes_floats_of_integers(dtype):
    x = moderate(dtype, 6)
    powers = [2.0, -1.0, 0.5, 0.0, np.float32(3)]
    got = run(*(Tensor(x) ** p for p in powers), *(Tensor(x.astype(np.float32)) ** p for p in powers))
    for p, y, z in zip(powers, got, got[len(powers) :]):
        same(y, z, f"{dtype} ** {p}")
        with np.errstate(all="ignore"):
            near(y, np.power(x.astype(wide), wide(p)), "f32", 1, f"{dtype} ** {p}")
    assert (Tensor([True]) ** 2).dtype == "i32"


def test_powers_that_are_refused():
    t = Tensor([1.0])
    for wrong in (lambda: pow(t, 2, 3), lambda: t ** "2", lambda: t.pow([1.0])):
        with pytest.raises(TypeError):
            wrong()


# ---- broadcasting ----

EXTENTS = st.sampled_from([0, 1, 1, 2, 3])


@st.composite
def shapes_that_meet(draw):
    """Two shapes that NumPy broadcasts: some axes missing, some of extent 1, some empty."""
    full = draw(st.lists(EXTENTS, max_size=3))
    result = []
    for _ in range(2):
        shape = [1 if draw(st.booleans()) else n for n in full]
        result.append(tuple(shape[draw(st.integers(0, len(full))) :]))
    return tuple(result)


@support.examples(30)
@hypothesis.given(shapes_that_meet(), st.sampled_from([("f32", "f32"), ("i32", "u8"), ("f64", "bool")]))
def test_shapes_broadcast_as_in_numpy(shapes, dtypes):
    a, b = (moderate(d, s, seed) for seed, (s, d) in enumerate(zip(shapes, dtypes)))
    x, y = Tensor(a), Tensor(b)
    got = run(x + y, y * x, x < y, x.maximum(y), (x > 0).where(x, y))
    common = NP[promoted(*dtypes)]
    p, q = a.astype(common), b.astype(common)
    same(got[0], p + q)
    same(got[1], q * p)
    same(got[2], p < q)
    same(got[3], np.maximum(p, q), zeros=False)
    same(got[4], np.where(a > 0, p, q))


@support.examples(40)
@hypothesis.given(st.lists(EXTENTS, max_size=3), st.lists(EXTENTS, max_size=3))
def test_shapes_are_refused_exactly_where_numpy_refuses_them(a, b):
    x, y = Tensor.zeros(tuple(a)), Tensor.zeros(tuple(b))
    try:
        expected = np.broadcast_shapes(tuple(a), tuple(b))
    except ValueError:
        with pytest.raises(ValueError):
            x + y
    else:
        assert (x + y).shape == expected


def test_several_names_of_one_function_are_one_function():
    names = {
        "add": [],
        "sub": ["subtract"],
        "mul": ["multiply"],
        "div": ["divide", "true_divide", "truediv"],
        "floordiv": ["floor_divide"],
        "mod": ["remainder", "floormod"],
        "neg": ["negative"],
        "abs": ["absolute"],
        "silu": ["swish"],
        "trunc": ["fix"],
        "asin": ["arcsin"],
        "acos": ["arccos"],
        "atan": ["arctan"],
        "atan2": ["arctan2"],
        "asinh": ["arcsinh"],
        "acosh": ["arccosh"],
        "atanh": ["arctanh"],
        "clamp": ["clip"],
        "pow": ["power"],
        "ne": ["not_equal"],
        "lt": ["less"],
        "le": ["less_equal"],
        "gt": ["greater"],
        "ge": ["greater_equal"],
        "bitwise_not": ["bitwise_invert"],
        "cast": ["astype", "to"],
    }
    for name, aliases in names.items():
        for alias in aliases:
            assert getattr(Tensor, alias) == getattr(Tensor, name), alias
