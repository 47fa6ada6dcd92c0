"""What the tests against NumPy share: dtypes, values worth trying, comparisons, and references that
know nothing of the library."""

import os
from fractions import Fraction

import hypothesis
import ml_dtypes
import numpy as np

from uopc import Tensor

FLOATS = ["f16", "bf16", "f32", "f64"]
SIGNED = ["i8", "i16", "i32", "i64"]
UNSIGNED = ["u8", "u16", "u32", "u64"]
INTS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTS
DTYPES = NUMBERS + ["bool"]

NP = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "bool": np.dtype(np.bool_),
}
NP.update({f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)})
NP.update({f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)})

# Bits of the significand with the hidden one, and the exponents of the least normal number and of
# the largest one.
FORMAT = {
    "f16": (11, -14, 15),
    "bf16": (8, -126, 127),
    "f32": (24, -126, 127),
    "f64": (53, -1022, 1023),
}

wide = np.longdouble


def examples(n):
    """Hypothesis settings for n examples, ten times as many in a deep run.

    Every example with a shape of its own compiles kernels of its own, hence the small numbers.
    """
    return hypothesis.settings(max_examples=n * 10 if os.environ.get("UOPC_DEEP") else n)


def name_of(dtype):
    """The short name of a NumPy dtype."""
    return next(name for name, known in NP.items() if known == dtype)


def int_range(dtype):
    info = np.iinfo(NP[dtype])
    return int(info.min), int(info.max)


def run(*tensors):
    """The tensors' values, all computed together."""
    Tensor.realize_all(list(tensors))
    return [t.numpy() for t in tensors]


# ---- values ----


def values(dtype, seed=0, n=64):
    """n numbers of a dtype: those that are known for trouble, and others of all sizes."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, n).astype(np.bool_)
    if dtype in FLOATS:
        precision, least, most = FORMAT[dtype]
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 3.0, -7.0]
        special += [2.0**most * (2 - 2.0 ** (1 - precision)), -(2.0**most)]
        special += [2.0**least, 2.0 ** (least + 1 - precision), -3 * 2.0 ** (least + 1 - precision)]
        special += [np.pi, -np.pi / 2, 0.1, -0.7, 88.0, -88.0, 1000.0, -1000.0, 12345.678]
        special += [1 + 2.0 ** (1 - precision), 1 - 2.0**-precision]
        special = special[:n]
        more = n - len(special)
        size = 2.0 ** rng.uniform(least, most, more // 2) * rng.choice([-1, 1], more // 2)
        near = rng.standard_normal(more - more // 2) * 4
        return rounded(np.concatenate([special, size, near]), dtype)
    low, high = int_range(dtype)
    special = [0, 1, 2, 3, high, high - 1, high // 2 + 1, low, low + 1, 5, 7, 10, 100]
    special[3:3] = [-1, -2, -3, -7, -100] if low else [high - 5]
    special = special[:n]
    others = rng.integers(low, high, n - len(special), dtype=NP[dtype], endpoint=True)
    return np.array(special + [int(v) for v in others], dtype=NP[dtype])


def pairs(dtype, seed=0):
    """Two arrays in which every value that is known for trouble meets every other."""
    some = values(dtype, seed, n=32)
    a, b = np.meshgrid(some, some)
    return a.ravel(), b.ravel()


def moderate(dtype, shape, seed=0):
    """Numbers near 0 that sums and products hold."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype in FLOATS:
        return rounded(rng.uniform(-2, 2, shape), dtype)
    low = 0 if dtype in UNSIGNED else -6
    return rng.integers(low, 7, shape).astype(NP[dtype])


# ---- references ----


def exactly_rounded(value, dtype):
    """The float of a dtype that is nearest to a number, even on ties: with fractions, bit by bit.

    The number is an integer, a Fraction, or a float that may be infinite or NaN.
    """
    if isinstance(value, float):
        if value != value or value in (np.inf, -np.inf) or value == 0:
            return value
        value = Fraction(value)
    precision, least, most = FORMAT[dtype]
    value = Fraction(value)
    size = abs(value)
    if size == 0:
        return 0.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    place = Fraction(2) ** (max(exponent, least) + 1 - precision)
    # round() of a Fraction goes to the even one.
    steps = round(size / place)
    if steps * place >= Fraction(2) ** (most + 1):
        result = np.inf
    else:
        # Subnormals of f64 too: a quotient of integers is rounded correctly, here exactly.
        result = (steps * place).numerator / (steps * place).denominator
    return -result if value < 0 else result


def rounded(array, dtype):
    """An array of floats in a dtype, rounded once; NumPy's cast to bfloat16 would round twice."""
    array = np.asarray(array)
    if dtype != "bf16":
        with np.errstate(over="ignore"):
            return array.astype(NP[dtype])
    flat = [exactly_rounded(float(v), "bf16") for v in array.astype(np.float64).ravel()]
    return np.array(flat, np.float32).astype(NP[dtype]).reshape(array.shape)


def promoted(a, b):
    """The dtype of two tensors together, as the documentation states it.

    NumPy's, except that an integer beside a float takes the float's dtype, f16 with bf16 makes
    f32, and u64 with a signed integer makes f32, as no integer holds both.
    """
    for x, y in ((a, b), (b, a)):
        if x in FLOATS and y not in FLOATS:
            return x
        if x == "u64" and y in SIGNED:
            return "f32"
        if x == "bf16" and y in FLOATS:
            return {"f16": "f32", "bf16": "bf16"}.get(y, y)
    return name_of(np.promote_types(NP[a], NP[b]))


def number_dtype(dtype, number):
    """The dtype of a tensor beside one of Python's numbers."""
    if isinstance(number, bool):
        return dtype
    if isinstance(number, int):
        return "i32" if dtype == "bool" else dtype
    return dtype if dtype in FLOATS else "f32"


def real(dtype):
    """The dtype in which a function of real numbers is computed."""
    return dtype if dtype in FLOATS else "f32"


def widened(array):
    """Floats of any dtype with more bits than f64 has, where the machine has them."""
    if array.dtype == NP["bf16"]:
        array = array.astype(np.float32)
    return array.astype(wide)


# ---- comparisons ----


def shown(bad, got, expected, inputs):
    places = np.argwhere(bad)[:5]
    lines = []
    for place in map(tuple, places):
        line = f"at {place}: got {got[place]!r}, expected {expected[place]!r}"
        for given in inputs:
            line += f", from {np.broadcast_to(given, got.shape)[place]!r}"
        lines.append(line)
    return f"{bad.sum()} of {bad.size} differ\n" + "\n".join(lines)


def same(got, expected, what="", inputs=(), zeros=True):
    """Equal to the last bit, where all NaNs are one; the sign of a zero counts unless ``zeros``."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype, f"{what}: dtype {got.dtype}, expected {expected.dtype}"
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    if name_of(got.dtype) in FLOATS:
        equal = (got == expected) | (np.isnan(got) & np.isnan(expected))
        if zeros:
            equal &= np.isnan(got) | (np.signbit(got) == np.signbit(expected))
    else:
        equal = got == expected
    assert equal.all(), f"{what}: {shown(~equal, got, expected, inputs)}"


def near(got, expected, dtype, ulps, what="", inputs=(), slack=0.0):
    """Within so many units of the last place of an exact result, given in more precision.

    ``slack`` is an absolute error that is allowed besides, a number or an array. Infinity counts
    as the number after the largest one. Results below the normal numbers are in units of the least
    one.
    """
    got, expected = np.asarray(got), np.asarray(expected)
    assert name_of(got.dtype) == dtype, f"{what}: dtype {got.dtype}, expected {dtype}"
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    precision, least, most = FORMAT[dtype]
    beyond = wide(2.0) ** (most + 1)
    got, expected = widened(got), widened(expected)
    nan = np.isnan(got) != np.isnan(expected)
    finite = [np.where(np.isinf(x), np.copysign(beyond, x), x) for x in (got, expected)]
    with np.errstate(invalid="ignore"):
        small = np.clip(np.abs(finite[1]), wide(2.0) ** least, beyond)
        small = np.where(np.isnan(small), wide(1), small)
        place = wide(2.0) ** (np.frexp(small)[1] - precision)
        error = np.abs(finite[0] - np.clip(finite[1], -beyond, beyond))
        bad = nan | (error > ulps * place + slack)
    assert not bad.any(), f"{what} in {dtype}: {shown(bad, got, expected, inputs)}"


def eps(dtype):
    """The distance of 1 from the next number."""
    return 2.0 ** (1 - FORMAT[dtype][0])
