"""Choices between tensors and casts between all dtypes, against NumPy and exact numbers. All of it is
exact: a cast to a float rounds once, to the nearest and on ties to the even one.
"""

import numpy as np
import pytest

import support
from support import DTYPES, FLOATS, NP, number_dtype, run, same, values
from uopc import Tensor


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_takes_every_bit_of_its_choice(dtype):
    a, b = support.pairs(dtype)
    condition = np.random.default_rng(2).integers(0, 2, a.size).astype(np.bool_)
    t = Tensor(condition)
    got = run(
        t.where(Tensor(a), Tensor(b)),
        t.where(Tensor(a), 1),
        t.where(True, Tensor(b)),
        Tensor(condition[:, None]).where(Tensor(a[:5]), Tensor(b[5])),
    )
    one = NP[number_dtype(dtype, 1)]
    same(got[0], np.where(condition, a, b), f"where in {dtype}")
    same(got[1], np.where(condition, a.astype(one), one.type(1)), f"where in {dtype}")
    same(got[2], np.where(condition, NP[dtype].type(1), b), f"where in {dtype}")
    same(got[3], np.where(condition[:, None], a[:5], b[5]), f"where in {dtype}")


def test_where_refuses_conditions_that_are_no_bools():
    for condition in (Tensor([1, 0]), Tensor([1.0, 0.0])):
        with pytest.raises(TypeError):
            condition.where(1, 2)
    with pytest.raises(ValueError):
        Tensor([True, False]).where(Tensor([1, 2, 3]), 0)


def cast_value(value, source, target):
    """One number in another dtype, by the documented rules, in Python's unbounded numbers."""
    if target == "bool":
        return value != 0
    if source in FLOATS:
        value = float(value)
        if target in FLOATS:
            return support.exactly_rounded(value, target)
        low, high = support.int_range(target)
        if value != value:
            return 0
        return low if value <= low else high if value >= high else int(value)
    value = int(value)
    if target in FLOATS:
        return support.exactly_rounded(value, target)
    low, high = support.int_range(target)
    return (value - low) % (high - low + 1) + low


@pytest.mark.parametrize("source", DTYPES)
def test_casts_between_all_dtypes(source):
    x = values(source)
    got = run(*(Tensor(x).cast(target) for target in DTYPES))
    for target, y in zip(DTYPES, got):
        expected = [cast_value(v, source, target) for v in x]
        # f64 holds every value of the narrower ones, so that its cast rounds nothing.
        whole = np.array(expected, np.float64 if target in FLOATS else NP[target])
        with np.errstate(invalid="ignore"):
            same(y, whole.astype(NP[target]), f"{source} to {target}", [x])


CAST_NAMES = {
    "half": "f16",
    "bfloat16": "bf16",
    "float": "f32",
    "double": "f64",
    "int": "i32",
    "long": "i64",
    "bool": "bool",
}


def test_casts_have_methods_and_many_names_of_dtypes():
    t = Tensor([0.0, 1.5, -2.5])
    for name, dtype in CAST_NAMES.items():
        assert getattr(t, name)().dtype == dtype
        same(getattr(t, name)().numpy(), t.cast(dtype).numpy(), name)
    for spelling in ("f64", "float64", np.float64, np.dtype("f8"), "double"):
        assert t.cast(spelling).dtype == t.to(spelling).dtype == t.astype(spelling).dtype == "f64"
    for spelling in (int, "int32", np.int32, "int"):
        assert t.cast(spelling).dtype == "i32"
    for wrong in ("f128", "", object, complex, "complex64", 3, None):
        with pytest.raises(TypeError):
            t.cast(wrong)
