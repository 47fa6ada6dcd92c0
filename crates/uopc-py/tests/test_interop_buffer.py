"""The buffer protocol, in packages built for Python 3.11 and later."""

import gc
import struct

import numpy as np
import pytest

from uopc import Tensor

FORMATS = dict(zip("bool i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64".split(), "?bhiqBHIQefd"))


def has_buffers():
    try:
        memoryview(Tensor([1]))
    except TypeError:
        return False
    return True


HAS_BUFFERS = has_buffers()
needs_buffers = pytest.mark.skipif(not HAS_BUFFERS, reason="the stable interface before 3.11")


@pytest.mark.skipif(HAS_BUFFERS, reason="there are buffers")
def test_without_buffers_bytes_and_arrays_work():
    with pytest.raises(TypeError):
        memoryview(Tensor([1]))
    assert bytes(Tensor([1, 2])) == struct.pack("2i", 1, 2)
    assert memoryview(Tensor([1, 2]).numpy()).tolist() == [1, 2]


@needs_buffers
@pytest.mark.parametrize("dtype", FORMATS)
def test_views(dtype):
    t = Tensor(np.arange(6).reshape(2, 3), dtype=dtype)
    v = memoryview(t)
    assert (v.format, v.shape, v.readonly, v.contiguous) == (FORMATS[dtype], (2, 3), True, True)
    assert v.itemsize == t.dtype.itemsize and v.nbytes == t.nbytes
    assert v.strides == (3 * v.itemsize, v.itemsize)
    assert bytes(v) == bytes(t)
    if dtype != "f16":  # which older versions of memoryview can't show themselves
        assert v.tolist() == t.tolist()
    assert np.asarray(v).ctypes.data == t.numpy().ctypes.data
    np.testing.assert_array_equal(np.frombuffer(t, t.numpy().dtype), t.numpy().ravel())


@needs_buffers
def test_views_keep_the_present_values():
    t = Tensor([1.0, 2.0])
    v = memoryview(t)
    t += 1
    assert v.tolist() == [1, 2] and memoryview(t).tolist() == [2, 3]
    del t
    gc.collect()
    assert v.tolist() == [1, 2]
    with pytest.raises(TypeError):
        v[0] = 5
    v.release()
    with pytest.raises(ValueError):
        v.tolist()


@needs_buffers
def test_views_of_scalars_and_of_nothing():
    assert memoryview(Tensor(2.5)).tolist() == 2.5
    assert memoryview(Tensor([])).tolist() == []
    assert memoryview(Tensor(np.zeros((2, 0, 3)))).shape == (2, 0, 3)


@needs_buffers
def test_what_buffers_can_not_do(tmp_path):
    with pytest.raises(BufferError, match="bf16.*f32"):
        memoryview(Tensor([1.0], dtype="bf16"))
    pytest.importorskip("ml_dtypes")
    assert np.asarray(Tensor([1.0], dtype="bf16")).tolist() == [1.0]
    # Who wants to write, or the other order, is refused.
    with open(tmp_path / "file", "wb") as f:
        f.write(Tensor([1, 2]))
    with open(tmp_path / "file", "rb") as f, pytest.raises((BufferError, TypeError)):
        f.readinto(Tensor([1, 2]))
    assert (tmp_path / "file").read_bytes() == struct.pack("2i", 1, 2)


@needs_buffers
def test_nothing_leaks():
    t = Tensor(np.zeros(1 << 20))
    import sys

    before = sys.getrefcount(t)
    for _ in range(100):
        v = memoryview(t)
        del v
    assert sys.getrefcount(t) == before
