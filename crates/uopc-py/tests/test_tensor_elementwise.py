"""Methods that work element by element, against NumPy."""

import numpy as np
import pytest


from uopc import Tensor

FLOATS = np.array([[-2.5, -1.0, 0.0], [0.3, 1.0, 7.25]], np.float32)
POSITIVE = np.array([0.1, 1.0, 2.0, 30.0], np.float32)
INTEGERS = np.array([[-7, -1, 0], [3, 8, 100]], np.int32)
BOOLS = np.array([[True, False, True], [False, False, True]])


def same(result, expected, dtype=None):
    """Equal in shape and dtype, and to the last few bits in value."""
    expected = np.asarray(expected)
    assert result.shape == expected.shape
    assert result.dtype == (dtype or expected.dtype)
    np.testing.assert_allclose(result.numpy(), expected, rtol=2e-6, atol=1e-7)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


EVERYWHERE = {
    "exp": np.exp,
    "exp2": np.exp2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "swish": lambda x: x * sigmoid(x),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "gelu": gelu,
    "relu": lambda x: np.maximum(x, 0),
    "square": np.square,
    "trunc": np.trunc,
    "fix": np.trunc,
    "abs": np.abs,
    "absolute": np.abs,
    "neg": np.negative,
    "negative": np.negative,
}
ABOVE_ZERO = {"log": np.log, "log2": np.log2, "sqrt": np.sqrt, "reciprocal": lambda x: 1 / x}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_functions(name):
    # The oracle computes in f64: f32 in NumPy is not exact to the last bits either.
    same(getattr(Tensor(FLOATS), name)(), EVERYWHERE[name](FLOATS.astype(np.float64)), "f32")


@pytest.mark.parametrize("name", ABOVE_ZERO)
def test_functions_of_positive_numbers(name):
    expected = ABOVE_ZERO[name](POSITIVE.astype(np.float64))
    same(getattr(Tensor(POSITIVE), name)(), expected, "f32")


@pytest.mark.parametrize("name", ["exp", "log2", "sqrt", "tanh", "reciprocal"])
def test_functions_of_integers_are_f32(name):
    assert getattr(Tensor([1, 2]), name)().dtype == "f32"
    assert getattr(Tensor([True]), name)().dtype == "f32"


def test_special_numbers():
    same(Tensor([0.0, np.inf]).log(), np.array([-np.inf, np.inf], np.float32))
    assert np.isnan(Tensor([-1.0]).sqrt().numpy()).all()
    assert np.isnan(Tensor([np.nan, 1.0]).maximum(Tensor([0.0, np.nan])).numpy()).all()


BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "subtract": np.subtract,
    "mul": np.multiply,
    "multiply": np.multiply,
    "div": np.divide,
    "divide": np.divide,
    "true_divide": np.divide,
    "truediv": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "not_equal": np.not_equal,
    "lt": np.less,
    "less": np.less,
    "le": np.less_equal,
    "less_equal": np.less_equal,
    "gt": np.greater,
    "greater": np.greater,
    "ge": np.greater_equal,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name):
    a, b = FLOATS, np.array([0.3, -1.0, 7.25], np.float32)
    expected = BINARY[name](a, b)
    same(getattr(Tensor(a), name)(Tensor(b)), expected)
    same(getattr(Tensor(a), name)(b), expected)
    same(getattr(Tensor(a), name)(1.0), BINARY[name](a, np.float32(1)))


WHOLE = {
    "floordiv": np.floor_divide,
    "floor_divide": np.floor_divide,
    "mod": np.mod,
    "remainder": np.mod,
    "floormod": np.mod,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


@pytest.mark.parametrize("name", WHOLE)
def test_integers(name):
    for b in (np.array([3, -4, 5], np.int32), np.int32(7)):
        same(getattr(Tensor(INTEGERS), name)(b if b.ndim else int(b)), WHOLE[name](INTEGERS, b))


def test_bits_and_truth():
    same(Tensor(INTEGERS).bitwise_not(), ~INTEGERS)
    same(Tensor(BOOLS).bitwise_not(), ~BOOLS)
    same(Tensor(FLOATS).logical_not(), np.logical_not(FLOATS))
    same(Tensor(BOOLS).bitwise_xor(True), BOOLS ^ True)
    # Any number but 0 is true, also one that is no integer.
    same(Tensor(BOOLS).logical_and(0.5), BOOLS)
    with pytest.raises(TypeError, match="bitwise_not|xor|not"):
        Tensor(FLOATS).bitwise_not()
    with pytest.raises(TypeError, match="no sign"):
        Tensor(BOOLS).sub(Tensor(BOOLS))


def test_division_by_zero_of_integers_is_zero():
    assert Tensor([7, -7]).floordiv(0).numpy().tolist() == [0, 0]
    assert Tensor([7, -7]).mod(0).numpy().tolist() == [0, 0]


@pytest.mark.parametrize("power", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.7, 10])
def test_pow(power):
    expected = np.power(POSITIVE.astype(np.float64), power)
    same(Tensor(POSITIVE).pow(power), expected, "f32")
    same(Tensor(POSITIVE) ** power, expected, "f32")


def test_pow_of_integers():
    same(Tensor(INTEGERS).pow(3), INTEGERS**3)
    with pytest.raises(TypeError, match="cast to f32"):
        Tensor(INTEGERS).pow(-1)
    same(Tensor(INTEGERS).pow(Tensor(3)), INTEGERS**3)
    same(Tensor(POSITIVE).pow(Tensor(1.7)), np.power(POSITIVE.astype(np.float64), np.float32(1.7)), "f32")
    with pytest.raises(TypeError):
        Tensor(FLOATS).pow("2")


def test_where():
    condition = FLOATS > 0
    same(Tensor(condition).where(Tensor(FLOATS), 0), np.where(condition, FLOATS, np.float32(0)))
    same(Tensor(condition).where(1, 2), np.where(condition, np.int32(1), np.int32(2)))
    same(
        Tensor([True, False, True]).where(FLOATS, Tensor(INTEGERS)),
        np.where([True, False, True], FLOATS, INTEGERS).astype(np.float32),
    )
    with pytest.raises(TypeError, match="not bool"):
        Tensor(FLOATS).where(1, 2)
    with pytest.raises(ValueError, match="where: shapes"):
        Tensor(condition).where(Tensor([1.0, 2.0]), 0)


CASTS = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "int": "int32",
    "long": "int64",
    "bool": "bool",
}


@pytest.mark.parametrize("name", CASTS)
def test_casts(name):
    expected = FLOATS.astype(CASTS[name])
    for cast in (getattr(Tensor(FLOATS), name)(), Tensor(FLOATS).cast(CASTS[name])):
        assert cast.numpy().dtype == expected.dtype
        np.testing.assert_array_equal(cast.numpy(), expected)


@pytest.mark.parametrize("dtype", ["f32", "float32", np.float32, np.dtype("float32"), float])
def test_the_names_of_a_dtype(dtype):
    t = Tensor([1, 2])
    for cast in (t.cast(dtype), t.astype(dtype), t.to(dtype), Tensor([1, 2], dtype=dtype)):
        assert cast.dtype == "f32"
        assert cast.numpy().tolist() == [1.0, 2.0]


def test_casts_stop_at_the_ends_of_the_range():
    assert Tensor([300.7, -1.5, np.nan]).cast("u8").numpy().tolist() == [255, 0, 0]
    assert Tensor([1.0]).bfloat16().dtype == "bf16"
    with pytest.raises(TypeError, match="no dtype"):
        Tensor([1.0]).cast("complex64")


def test_foreign_operands_are_refused():
    for other in ("1", None, [1.0], object(), 1j, np.datetime64("2020"), np.timedelta64(5, "s")):
        with pytest.raises(TypeError):
            Tensor(FLOATS).add(other)


def test_shapes_that_do_not_broadcast():
    with pytest.raises(ValueError, match=r"add: shapes \(2, 3\) and \(2,\) .*test_tensor_elementwise"):
        Tensor(FLOATS).add(Tensor([1.0, 2.0]))
