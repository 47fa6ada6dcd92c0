"""NumPy in and out: every dtype and layout, copies and shared memory, lifetimes."""

import array
import gc
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uopc
from uopc import Tensor

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = None

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
DTYPES = [np.dtype(name) for name in DTYPES] + ([np.dtype(bfloat16)] if bfloat16 else [])
NAMES = dict(
    zip(
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16".split(),
        "bool i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64 bf16".split(),
    )
)


def values(dtype, shape, seed=0):
    """Numbers over the whole range of a dtype, with NaN, infinities and both zeros."""
    rng = np.random.default_rng(seed)
    n = int(np.prod(shape))
    if dtype == bool:
        flat = rng.integers(0, 2, n).astype(bool)
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        flat = rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True)
    else:
        flat = (rng.standard_normal(n) * 10.0 ** rng.integers(-4, 5, n)).astype(np.float32)
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
        flat[: n // 2] = np.where(rng.integers(0, 4, n // 2) == 0, rng.choice(special, n // 2), flat[: n // 2])
        flat = flat.astype(dtype)
    return flat.reshape(shape)


def same(a, b):
    """Equal dtype in native order, shape and bits; a NaN is a NaN."""
    assert a.dtype == b.dtype.newbyteorder("="), (a.dtype, b.dtype)
    assert a.shape == b.shape
    if a.dtype.kind == "f" or a.dtype.name == "bfloat16":
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        a, b = np.nan_to_num(a.astype(np.float64)), np.nan_to_num(b.astype(np.float64))
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))
    np.testing.assert_array_equal(a, b)


def address(a):
    return a.__array_interface__["data"][0]


@st.composite
def layouts(draw):
    """An array of any dtype and layout: steps, both directions, orders, offsets, broadcasting."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    seed = draw(st.integers(0, 1000))
    if dtype.name != "bfloat16" and draw(st.booleans()):
        dtype = dtype.newbyteorder(">")
    a = values(dtype, shape, seed) if dtype.isnative else values(dtype.newbyteorder("="), shape, seed).astype(dtype)
    kind = draw(st.sampled_from(["plain", "fortran", "unaligned", "views", "broadcast"]))
    if kind == "fortran":
        a = np.asfortranarray(a)
    elif kind == "unaligned":
        raw = np.empty(a.nbytes + 16, np.uint8)
        shifted = raw[1 : 1 + a.nbytes].view(dtype).reshape(shape)
        shifted[...] = a
        a = shifted
    elif kind == "views" and shape:
        a = a.transpose(draw(st.permutations(range(len(shape)))))
        steps = [draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in shape]
        a = a[tuple(slice(None, None, step) for step in steps)]
    elif kind == "broadcast":
        a = np.broadcast_to(a, (draw(st.integers(0, 3)), *a.shape))
    if draw(st.booleans()):
        a.flags.writeable = False
    return a


@given(layouts())
def test_a_copy_of_any_layout(a):
    t = Tensor(a)
    assert t.dtype == NAMES[a.dtype.name] and t.shape == a.shape
    same(t.numpy(), a)
    same(np.asarray(t), a)


@given(layouts())
def test_a_shared_array_of_any_layout(a):
    t = uopc.from_numpy(a)
    same(t.numpy(), a)
    shares = a.flags.c_contiguous and a.flags.aligned and a.dtype.isnative
    if shares and a.size:
        assert address(t.numpy()) == address(a)
        assert address(uopc.from_numpy(a, copy=True).numpy()) != address(a)
        assert address(uopc.from_numpy(a, copy=False).numpy()) == address(a)
    elif not shares:
        assert not np.shares_memory(t.numpy(), a)
        with pytest.raises(ValueError, match="from_numpy: .*row-major.*test_interop_numpy.py"):
            uopc.from_numpy(a, copy=False)


@given(layouts())
def test_lists_of_any_layout(a):
    t = Tensor(a)
    listed = t.tolist()
    kind = {"b": bool, "i": int, "u": int}.get(a.dtype.kind, float)

    def numbers(entry):
        return [x for e in entry for x in numbers(e)] if isinstance(entry, list) else [entry]

    assert all(type(x) is kind for x in numbers(listed))
    expected = a.astype(np.float64).tolist() if kind is float else a.tolist()
    np.testing.assert_equal(listed, expected)
    if a.size and kind is not float:
        same(Tensor(listed, dtype=NAMES[a.dtype.name]).numpy(), a.astype(a.dtype.newbyteorder("=")))
    if a.size == 1:
        np.testing.assert_equal(t.item(), numbers(listed)[0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zero_axes_and_no_elements(dtype):
    for shape in [(), (0,), (0, 3), (3, 0), (1, 1)]:
        a = values(dtype, shape)
        for t in (Tensor(a), uopc.from_numpy(a)):
            same(t.numpy(), a)


def test_writing_the_array_after_the_constructor_changes_nothing():
    a = np.arange(4, dtype=np.float32)
    t = Tensor(a)
    late = np.add(t, 1)
    a[:] = 100
    assert t.tolist() == [0, 1, 2, 3] and late.tolist() == [1, 2, 3, 4]


def test_writing_a_shared_array_shows_in_what_is_computed_later():
    a = np.zeros(3, np.float32)
    t = uopc.from_numpy(a)
    early = np.add(t, 1)
    assert early.tolist() == [1, 1, 1]
    late = np.add(t, 2)
    a[:] = 10
    assert t.tolist() == [10, 10, 10] and late.tolist() == [12, 12, 12]
    assert early.tolist() == [1, 1, 1]


def test_a_shared_array_lives_as_long_as_it_is_needed():
    a = np.arange(1000, dtype=np.float64)
    expected, gone = a.copy(), weakref.ref(a)
    t = uopc.from_numpy(a)
    view = t.numpy()
    lazy = np.multiply(t, 2)
    del a, t
    gc.collect()
    assert gone() is not None
    same(lazy.numpy(), expected * 2)
    del lazy
    gc.collect()
    assert gone() is not None
    same(view, expected)
    del view
    gc.collect()
    assert gone() is None


def test_a_view_of_an_array_keeps_it():
    a = np.arange(1000, dtype=np.float64)
    gone = weakref.ref(a)
    t = uopc.from_numpy(a[500:])
    del a
    gc.collect()
    assert t.numpy()[0] == 500
    del t
    gc.collect()
    assert gone() is None


def test_numpy_does_not_resize_a_shared_array():
    a = np.arange(4, dtype=np.int32)
    t = uopc.from_numpy(a)
    with pytest.raises(ValueError):
        a.resize(1 << 20)
    assert t.tolist() == [0, 1, 2, 3]


def test_a_shared_file(tmp_path):
    a = np.arange(10, dtype=np.float32)
    a.tofile(tmp_path / "numbers")
    mapped = np.memmap(tmp_path / "numbers", np.float32, mode="r")
    t = uopc.from_numpy(mapped, copy=False)
    del mapped
    gc.collect()
    same(t.numpy(), a)


def test_the_result_is_a_read_only_view():
    t = Tensor([1.0, 2.0])
    a, b = t.numpy(), t.numpy()
    assert address(a) == address(b) and a.base is not None
    assert not a.flags.writeable and a.flags.c_contiguous and a.flags.aligned
    with pytest.raises(ValueError):
        a[0] = 5
    with pytest.raises(ValueError):
        a.flags.writeable = True
    del t
    gc.collect()
    assert a.tolist() == [1, 2]


def test_a_copy_may_be_written():
    t = Tensor([1.0, 2.0])
    for a in (t.numpy(copy=True), np.array(t), t.__array__(copy=True)):
        assert a.flags.writeable and a.flags.owndata
        a[0] = 5
    assert t.tolist() == [1, 2]


def test_array_protocol():
    t = Tensor([1, 2, 300])
    assert address(np.asarray(t)) == address(t.numpy())
    assert address(t.__array__()) == address(t.numpy())
    assert np.asarray(t, dtype=np.int32).dtype == np.int32
    same(np.asarray(t, dtype=np.uint8), np.array([1, 2, 44], np.uint8))
    same(np.asarray(t, dtype="float64"), np.array([1.0, 2.0, 300.0]))
    same(t.__array__(np.dtype("float64"), copy=True), np.array([1.0, 2.0, 300.0]))
    same(t.__array__("int32", copy=False), np.array([1, 2, 300], np.int32))
    with pytest.raises(ValueError, match="__array__: .*int32.*float64"):
        t.__array__(np.float64, copy=False)
    with pytest.raises(TypeError):
        t.__array__("no dtype")
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError):
            np.asarray(t, dtype=np.float64, copy=False)
        assert address(np.asarray(t, copy=False)) == address(t.numpy())


def test_too_many_axes():
    t = Tensor(np.ones((1,) * 30, np.float32))
    for _ in range(5):
        t = Tensor([[[[[[[t]]]]]]])
    assert len(t.shape) == 65
    with pytest.raises(ValueError):
        t.numpy()
    assert t.item() == 1.0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scalars(dtype):
    x = values(dtype, (1,), 3)[0]
    same(Tensor(x).numpy(), np.asarray(x))
    same(Tensor([x, x]).numpy(), np.array([x, x], dtype))


class Masked(np.ma.MaskedArray):
    pass


REFUSED = [
    (np.array([1, None]), "object.*astype"),
    (np.array(["a", "b"]), "text"),
    (np.array([b"ab"]), "text"),
    (np.array(["2020-01-01"], "M8[D]"), "dates"),
    (np.array([1], "m8[s]"), "durations"),
    (np.array([1j]), "complex.*real"),
    (np.zeros(2, "V8"), "no counterpart"),
    (np.zeros(2, [("x", "f4")]), "records.*one field"),
    (np.ma.array([1.0, 2.0], mask=[True, False]), "masked.*filled"),
    (np.array([1.0]).view(Masked), "masked"),
]
if np.dtype(np.longdouble).itemsize > 8:
    REFUSED.append((np.zeros(2, np.longdouble), "float64"))


@pytest.mark.parametrize("a, text", REFUSED, ids=[str(a.dtype) + type(a).__name__ for a, _ in REFUSED])
def test_refused_dtypes(a, text):
    calls = [lambda: Tensor(a), lambda: Tensor([a, a]), lambda: Tensor(a, dtype="f32")]
    for call in [*calls, lambda: uopc.from_numpy(a), lambda: np.add(Tensor(1.0), a)]:
        with pytest.raises(TypeError, match=f"(?s){text}.*test_interop_numpy.py"):
            call()


def test_other_exporters():
    same(Tensor(memoryview(array.array("d", [1, 2]))).numpy(), np.array([1.0, 2.0]))
    same(Tensor(array.array("h", [1, 2])).numpy(), np.array([1, 2], np.int16))
    same(Tensor(bytearray(b"ab")).numpy(), np.array([97, 98], np.uint8))
    same(Tensor(np.array([[1.0, 2.0]]).view(np.matrix)).numpy(), np.array([[1.0, 2.0]]))

    class Interface:
        def __init__(self, a):
            self.a = a
            self.__array_interface__ = a.__array_interface__

    class Array:
        def __array__(self, dtype=None, copy=None):
            return np.arange(3, dtype=np.float16)

    same(Tensor(Interface(np.arange(4, dtype=np.int8)[::2])).numpy(), np.array([0, 2], np.int8))
    same(Tensor(Array()).numpy(), np.arange(3, dtype=np.float16))
    same(Tensor([Array(), Array()]).numpy(), np.array([[0, 1, 2], [0, 1, 2]], np.float16))


def test_exporters_that_fail():
    class Raises:
        def __array__(self, dtype=None, copy=None):
            raise KeyError("broken")

    class Garbage:
        def __array__(self, dtype=None, copy=None):
            return "no array"

    class Null:
        __array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (0, False), "version": 3}

    class Lies:
        __array_interface__ = {"shape": (-3,), "typestr": "<f4", "version": 3, "data": b"abc"}

    with pytest.raises(KeyError, match="broken"):
        Tensor(Raises())
    with pytest.raises((TypeError, ValueError)):
        Tensor(Garbage())
    with pytest.raises((TypeError, ValueError)):
        Tensor(Lies())
    with pytest.raises((TypeError, ValueError)):
        uopc.from_numpy(Null())


@pytest.mark.parametrize("x", ["abc", b"abc", None, object(), {1}, {1: 2}, (k for k in [1]), 1j, int])
def test_no_tensor_of_these(x):
    with pytest.raises(TypeError, match="test_interop_numpy.py"):
        Tensor(x)
    with pytest.raises(TypeError):
        Tensor([x])
    with pytest.raises(TypeError, match="NumPy array"):
        uopc.from_numpy(x)


def test_bytes_that_are_no_bools():
    a = np.array([0, 1, 2], np.uint8).view(np.bool_)
    for make in (Tensor, uopc.from_numpy):
        with pytest.raises(TypeError, match="2 is no bool"):
            make(a)


def test_bfloat16_needs_ml_dtypes(monkeypatch):
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import uopc\n"
        "t = uopc.Tensor([1.0, 3.0], dtype='bf16')\n"
        "try: t.numpy()\n"
        "except TypeError as e: print(e)\n"
        "print(t.tolist(), uopc.from_dlpack(t).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ml_dtypes" in done.stdout and "cast to f32" in done.stdout
    assert "[1.0, 3.0] [1.0, 3.0]" in done.stdout


def test_casts_follow_the_library():
    a = np.array([1.9, -1.9, np.nan, 1e20, -1e20])
    assert Tensor(a, dtype="i32").tolist() == [1, -1, 0, 2**31 - 1, -(2**31)]
    assert Tensor(np.array([300, -1]), dtype="u8").tolist() == [44, 255]
    assert Tensor(np.array([0.0, 0.5]), dtype=bool).tolist() == [False, True]


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def grows(work):
    """How much memory stays behind in the second half of many calls."""
    for _ in range(20):
        work()
    gc.collect()
    before = resident()
    for _ in range(100):
        work()
    gc.collect()
    return resident() - before


@pytest.mark.parametrize(
    "work",
    [
        lambda a: Tensor(a),
        lambda a: Tensor(a.T),
        lambda a: uopc.from_numpy(a),
        lambda a: uopc.from_dlpack(a),
        lambda a: uopc.from_dlpack(a.T),
        lambda a: Tensor(a).numpy(),
        lambda a: Tensor(a).numpy(copy=True),
        lambda a: uopc.from_dlpack(Tensor(a)),
        lambda a: Tensor(a).__dlpack__(),
        lambda a: Tensor(a).__dlpack__(max_version=(1, 0), copy=True),
        lambda a: np.add(Tensor(a), 1).numpy(),
        lambda a: bytes(Tensor(a)),
    ],
)
def test_nothing_leaks(work):
    pytest.importorskip("resource")
    a = np.ones((256, 257), np.float32)
    # 100 leaks of the array would be 26 MB.
    assert grows(lambda: work(a)) < 8 << 20
