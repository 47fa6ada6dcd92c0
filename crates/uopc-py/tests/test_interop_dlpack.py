"""DLPack both ways: with NumPy, PyTorch and JAX, and with exporters that die or lie."""

import concurrent.futures
import ctypes
import gc
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_interop_numpy import DTYPES, NAMES, address, layouts, same, values

import uopc
from uopc import Tensor

STANDARD = [d for d in DTYPES if d.name != "bfloat16"]


# ---- exporters made by hand ----


class Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Raw(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Unversioned(ctypes.Structure):
    _fields_ = [("tensor", Raw), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Raw),
    ]


DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
API = ctypes.pythonapi
API.PyCapsule_New.restype = ctypes.py_object
API.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, DESTRUCTOR]
API.PyCapsule_GetPointer.restype = ctypes.c_void_p
API.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
API.PyCapsule_IsValid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
API.PyGILState_Check.restype = ctypes.c_int

CODES = {"i": 0, "u": 1, "f": 2, "b": 6, "V": 4}


class Exporter:
    """Exports an array by hand, with whatever is to be wrong, and counts deletions."""

    def __init__(self, array, versioned=False, device=(1, 0), strides=True, **wrong):
        self.array, self.versioned, self.device = array, versioned, device
        self.deleted = 0
        self.locked = []
        n = array.ndim
        self.shape = (ctypes.c_int64 * max(n, 1))(*wrong.pop("shape", array.shape))
        step = array.itemsize
        self.strides = (ctypes.c_int64 * max(n, 1))(*(s // step for s in array.strides))
        raw = Raw(
            data=wrong.pop("data", array.ctypes.data),
            device=Device(*wrong.pop("inner_device", device)),
            ndim=wrong.pop("ndim", n),
            dtype=Type(CODES.get(array.dtype.kind, 5), 8 * step, 1),
            shape=None if wrong.pop("no_shape", False) else self.shape,
            strides=self.strides if strides else None,
            byte_offset=wrong.pop("byte_offset", 0),
        )
        for name in ("code", "bits", "lanes"):
            if name in wrong:
                setattr(raw.dtype, name, wrong.pop(name))

        def delete(pointer):
            self.deleted += 1
            self.locked.append(API.PyGILState_Check())

        def destroy(capsule):
            if API.PyCapsule_IsValid(capsule, self.name):
                delete(None)

        self.delete, self.destroy = DELETER(delete), DESTRUCTOR(destroy)
        if versioned:
            self.name = b"dltensor_versioned"
            major = wrong.pop("major", 1)
            self.managed = Versioned(major, 0, None, self.delete, wrong.pop("flags", 0), raw)
        else:
            self.name = b"dltensor"
            self.managed = Unversioned(raw, None, self.delete)
        if wrong.pop("no_deleter", False):
            self.managed.deleter = DELETER()
        self.name = wrong.pop("name", self.name)
        assert not wrong

    def capsule(self):
        return API.PyCapsule_New(ctypes.addressof(self.managed), self.name, self.destroy)

    def __dlpack__(self, **kwargs):
        return self.capsule()

    def __dlpack_device__(self):
        return self.device


BOTH = pytest.mark.parametrize("versioned", [False, True])


@BOTH
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_memory_is_shared(dtype, versioned):
    a = values(dtype, (3, 4))
    for strides in (True, False):
        exporter = Exporter(a, versioned, strides=strides)
        t = uopc.from_dlpack(exporter)
        assert t.dtype == NAMES[dtype.name]
        same(t.numpy(), a)
        assert address(t.numpy()) == address(a)
        assert exporter.deleted == 0
        del t
        gc.collect()
        assert exporter.deleted == 1 and exporter.locked == [1]


@BOTH
def test_the_exporter_outlives_all_that_reads_its_memory(versioned):
    a = np.arange(100, dtype=np.float32)
    exporter = Exporter(a, versioned)
    t = uopc.from_dlpack(exporter)
    lazy, view = t * 2, t.numpy()
    del t
    gc.collect()
    same(lazy.numpy(), a * 2)
    del lazy
    gc.collect()
    assert exporter.deleted == 0
    del view
    gc.collect()
    assert exporter.deleted == 1


@BOTH
def test_the_deleter_has_the_lock_also_after_a_computation_without_it(versioned):
    exporter = Exporter(np.arange(100, dtype=np.float32), versioned)
    t = uopc.from_dlpack(exporter)
    doubled = t * 2
    del t
    # The last use of the memory is over while other threads may run.
    doubled.realize()
    Tensor(1)
    gc.collect()
    assert exporter.deleted == 1 and exporter.locked == [1]
    assert doubled.tolist() == list(range(0, 200, 2))


def test_deleters_on_other_threads():
    exporters = [Exporter(np.arange(10, dtype=np.float32) + k, k % 2 == 0) for k in range(8)]

    def work(exporter):
        t = uopc.from_dlpack(exporter)
        return (t + 1).tolist()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, exporters))
    assert results == [[x + 1 for x in e.array.tolist()] for e in exporters]
    Tensor(1)
    gc.collect()
    assert [e.deleted for e in exporters] == [1] * 8
    assert all(e.locked == [1] for e in exporters)


@BOTH
def test_other_layouts_are_copied(versioned):
    a = np.arange(24, dtype=np.int32).reshape(4, 6)
    for view in (a.T, a[::-1], a[:, ::2], np.broadcast_to(a[0], (3, 6)), a[::2, ::-3]):
        exporter = Exporter(view, versioned)
        t = uopc.from_dlpack(exporter)
        assert exporter.deleted == 1
        same(t.numpy(), view)
        assert not np.shares_memory(t.numpy(), a)
        with pytest.raises(ValueError, match="from_dlpack"):
            uopc.from_dlpack(Exporter(view, versioned), copy=False)
    exporter = Exporter(a, versioned)
    same(uopc.from_dlpack(exporter, copy=True).numpy(), a)
    assert exporter.deleted == 1
    assert uopc.from_dlpack(Exporter(a, versioned), copy=False).tolist() == a.tolist()


def test_offsets_and_axes_of_extent_one():
    a = np.arange(12, dtype=np.float64)
    exporter = Exporter(a[:8].reshape(2, 4), byte_offset=16)
    t = uopc.from_dlpack(exporter)
    same(t.numpy(), a[2:10].reshape(2, 4))
    assert address(t.numpy()) == address(a) + 16
    exporter = Exporter(a[:8].reshape(2, 4), byte_offset=4)
    t = uopc.from_dlpack(exporter)
    shifted = np.frombuffer(a.tobytes()[4:-4], np.float64)[:8]
    same(t.numpy(), shifted.reshape(2, 4))
    one = np.lib.stride_tricks.as_strided(a, (1, 12, 1), (-800, 8, 4096))
    assert address(uopc.from_dlpack(Exporter(one)).numpy()) == address(a)


@BOTH
def test_scalars_and_no_elements(versioned):
    same(uopc.from_dlpack(Exporter(np.array(5.0), versioned)).numpy(), np.array(5.0))
    for shape in [(0,), (3, 0), (0, 1 << 20)]:
        empty = np.zeros(shape, np.float32)
        exporter = Exporter(empty, versioned, data=None)
        same(uopc.from_dlpack(exporter).numpy(), empty)
        assert exporter.deleted == 1
    exporter = Exporter(np.arange(3), versioned, no_deleter=True)
    assert uopc.from_dlpack(exporter).tolist() == [0, 1, 2]


FLOATS = np.arange(4, dtype=np.float32)
LIES = [
    ({"ndim": -1}, BufferError, "-1 axes"),
    ({"ndim": 1 << 30}, BufferError, "axes"),
    ({"no_shape": True}, BufferError, "without a shape"),
    ({"shape": (-4,)}, BufferError, r"\[-4\]"),
    ({"shape": (1 << 62,)}, BufferError, "shape"),
    ({"data": None}, BufferError, "address 0"),
    ({"byte_offset": (1 << 64) - 1}, BufferError, "offset"),
    ({"lanes": 4}, BufferError, "4 lanes"),
    ({"lanes": 0}, BufferError, "0 lanes"),
    ({"bits": 4}, TypeError, "a float in 4 bits"),
    ({"code": 5, "bits": 64}, TypeError, "complex number in 64 bits"),
    ({"code": 77}, TypeError, "type 77"),
    ({"inner_device": (2, 0)}, BufferError, r"CUDA.*x.cpu\(\)"),
    ({"inner_device": (99, 0)}, BufferError, "device type 99"),
    ({"name": b"something"}, BufferError, "something"),
]


@BOTH
@pytest.mark.parametrize("wrong, error, text", LIES, ids=[str(w) for w, *_ in LIES])
def test_descriptions_that_make_no_sense(wrong, error, text, versioned):
    exporter = Exporter(FLOATS, versioned, **wrong)
    with pytest.raises(error, match=text):
        uopc.from_dlpack(exporter)
    gc.collect()
    assert exporter.deleted == 1


def test_strides_beyond_all_memory():
    a = np.lib.stride_tricks.as_strided(FLOATS, (2, 2), (4, 4))
    exporter = Exporter(a)
    exporter.strides[0] = 1 << 62
    with pytest.raises(BufferError, match="strides"):
        uopc.from_dlpack(exporter)
    exporter.strides[0] = 1 << 60
    exporter.shape[0] = 1 << 10
    with pytest.raises(BufferError, match="strides"):
        uopc.from_dlpack(exporter)


def test_versions_to_come():
    exporter = Exporter(FLOATS, versioned=True, major=2)
    with pytest.raises(BufferError, match="DLPack 2.0"):
        uopc.from_dlpack(exporter)
    gc.collect()
    assert exporter.deleted == 1


@BOTH
def test_a_capsule_is_used_once(versioned):
    exporter = Exporter(FLOATS, versioned)
    capsule = exporter.capsule()
    t = uopc.from_dlpack(capsule)
    with pytest.raises(BufferError, match="used before"):
        uopc.from_dlpack(capsule)
    del capsule
    gc.collect()
    assert t.tolist() == [0, 1, 2, 3] and exporter.deleted == 0
    del t
    gc.collect()
    assert exporter.deleted == 1


def test_exporters_that_fail():
    class Dies:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **kwargs):
            raise RuntimeError("the exporter died")

    class Garbage(Dies):
        def __dlpack__(self, **kwargs):
            return "no capsule"

    class Nowhere(Dies):
        def __dlpack_device__(self):
            return "somewhere"

    class Old:
        """From before DLPack 1: takes no arguments, has no device."""

        def __dlpack__(self, stream=None):
            return FLOATS.__dlpack__()

    class Tells(Dies):
        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(RuntimeError, match="the exporter died"):
        uopc.from_dlpack(Dies())
    with pytest.raises(RuntimeError, match="the exporter died"):
        Tensor(Dies())
    with pytest.raises(BufferError, match="no capsule"):
        uopc.from_dlpack(Garbage())
    with pytest.raises(BufferError, match="somewhere"):
        uopc.from_dlpack(Nowhere())
    with pytest.raises(BufferError, match="CUDA"):
        uopc.from_dlpack(Tells())
    with pytest.raises(TypeError, match="__dlpack__.*not int"):
        uopc.from_dlpack(3)
    assert uopc.from_dlpack(Old()).tolist() == [0, 1, 2, 3]


def test_who_can_not_speak_dlpack_now_may_still_be_an_array():
    class Array:
        def __dlpack__(self, **kwargs):
            raise BufferError("not now")

        def __array__(self, dtype=None, copy=None):
            return FLOATS

    class Nothing:
        def __dlpack__(self, **kwargs):
            raise BufferError("never")

    assert Tensor(Array()).tolist() == FLOATS.tolist()
    with pytest.raises(BufferError, match="not now"):
        uopc.from_dlpack(Array())
    with pytest.raises(BufferError, match="never"):
        Tensor(Nothing())


def test_the_constructor_copies():
    a = FLOATS.copy()
    exporter = Exporter(a)
    t = Tensor(exporter)
    assert exporter.deleted == 1
    a[:] = 9
    assert t.tolist() == [0, 1, 2, 3]


# ---- NumPy ----

needs_from_dlpack = pytest.mark.skipif(not hasattr(np, "from_dlpack"), reason="NumPy before 1.23")


@needs_from_dlpack
@given(layouts())
def test_exchange_with_numpy(a):
    if not a.dtype.isnative or a.dtype.name == "bfloat16" or not a.flags.aligned:
        return
    if not a.flags.writeable and np.lib.NumpyVersion(np.__version__) < "2.1.0":
        return
    t = uopc.from_dlpack(a)
    same(t.numpy(), a)
    if a.flags.c_contiguous and a.size:
        assert address(t.numpy()) == address(a)
    back = np.from_dlpack(t)
    same(back, a)
    if a.size:
        assert address(back) == address(t.numpy())


@needs_from_dlpack
def test_numpy_gets_read_only_memory_that_lives():
    t = Tensor([1.0, 2.0]) * 3
    a = np.from_dlpack(t)
    assert not a.flags.writeable
    del t
    gc.collect()
    assert a.tolist() == [3, 6]
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        t = Tensor([1.0, 2.0])
        b = np.from_dlpack(t, copy=True)
        assert b.flags.writeable
        b[:] = 7
        assert t.tolist() == [1, 2]


def test_an_array_shared_by_dlpack_lives():
    a = np.arange(1000.0)
    gone = weakref.ref(a)
    t = uopc.from_dlpack(a)
    del a
    gc.collect()
    assert gone() is not None and t.tolist()[-1] == 999
    del t
    gc.collect()
    assert gone() is None


# ---- what a capsule holds ----


def unpack(t, **kwargs):
    capsule = t.__dlpack__(**kwargs)
    versioned = "versioned" in repr(capsule)
    name, kind = (b"dltensor_versioned", Versioned) if versioned else (b"dltensor", Unversioned)
    managed = kind.from_address(API.PyCapsule_GetPointer(capsule, name))
    return capsule, managed


def pointer(t):
    """Where a tensor's memory is."""
    capsule, managed = unpack(t)
    return managed.tensor.data


@pytest.mark.parametrize("dtype", NAMES.values())
def test_capsules(dtype):
    t = Tensor(np.arange(6).reshape(2, 3), dtype=dtype)
    capsule, managed = unpack(t)
    assert isinstance(managed, Unversioned)
    raw = managed.tensor
    assert raw.ndim == 2 and raw.shape[:2] == [2, 3] and raw.strides[:2] == [3, 1]
    assert (raw.dtype.bits, raw.dtype.lanes) == (8 * t.dtype.itemsize, 1)
    assert (raw.device.kind, raw.byte_offset) == (1, 0)
    assert ctypes.string_at(raw.data, t.nbytes) == bytes(t)
    for version in [(1, 0), (1, 3), (2, 0)]:
        capsule, managed = unpack(t, max_version=version)
        assert (managed.major, managed.minor, managed.flags) == (1, 0, 1)
    assert isinstance(unpack(t, max_version=(0, 8))[1], Unversioned)
    capsule, managed = unpack(t, max_version=(1, 0), copy=True)
    assert managed.flags == 2 and managed.tensor.data % 64 == 0
    ctypes.memset(managed.tensor.data, 1, t.nbytes)
    assert bytes(t) == bytes(Tensor(np.arange(6).reshape(2, 3), dtype=dtype))


def test_capsules_of_nothing_and_of_scalars():
    capsule, managed = unpack(Tensor(np.zeros((0, 3))))
    assert managed.tensor.data is None and managed.tensor.shape[:2] == [0, 3]
    capsule, managed = unpack(Tensor(2.5), copy=True)
    assert managed.tensor.ndim == 0
    assert ctypes.c_float.from_address(managed.tensor.data).value == 2.5


def test_what_can_not_be_exported():
    t = Tensor([1.0])
    assert t.__dlpack_device__() == (1, 0)
    t.__dlpack__(stream=None, dl_device=(1, 0), copy=False)
    for wrong in [{"stream": 1}, {"dl_device": (2, 0)}]:
        with pytest.raises(BufferError):
            t.__dlpack__(**wrong)
    with pytest.raises(TypeError):
        t.__dlpack__(max_version="new")


def test_the_present_values_are_exported():
    t = Tensor([1.0, 2.0])
    capsule = t.__dlpack__()
    t += 5
    assert uopc.from_dlpack(capsule).tolist() == [1, 2] and t.tolist() == [6, 7]


# ---- PyTorch ----


def test_pytorch():
    torch = pytest.importorskip("torch")
    for name in NAMES:
        if not hasattr(torch, name):
            continue
        x = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
        t = uopc.from_dlpack(x)
        assert t.dtype == NAMES[name] and t.tolist() == x.tolist()
        y = torch.from_dlpack(t)
        assert y.data_ptr() == x.data_ptr() and y.dtype == x.dtype and y.tolist() == x.tolist()
        u = Tensor(x)
        assert u.dtype == NAMES[name] and u.tolist() == x.tolist()
        assert torch.from_dlpack(u).data_ptr() != x.data_ptr()
        z = torch.utils.dlpack.from_dlpack(u.__dlpack__())
        assert z.tolist() == x.tolist() and z.data_ptr() == pointer(u)
    x = torch.arange(6.0).reshape(2, 3)
    assert uopc.from_dlpack(x.T).tolist() == x.T.tolist()
    assert uopc.from_dlpack(torch.tensor(1.5)).item() == 1.5
    assert uopc.from_dlpack(torch.zeros(0, 3)).shape == (0, 3)
    assert tuple(torch.from_dlpack(Tensor(np.zeros((0, 3)))).shape) == (0, 3)
    assert torch.from_dlpack(Tensor(2.5)).item() == 2.5
    y = torch.from_dlpack(Tensor([1.0, 2.0]) * 2)
    gc.collect()
    assert y.tolist() == [2, 4]
    t = uopc.from_dlpack(x[:1])
    x += 10
    assert t.tolist() == [[10, 11, 12]]
    del x, t
    with pytest.raises(Exception, match="detach"):
        uopc.from_dlpack(torch.ones(2, requires_grad=True))
    assert Tensor([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1, 2]
    assert torch.asarray(Tensor([1, 2]).numpy(copy=True)).tolist() == [1, 2]


# ---- JAX ----


def test_jax():
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    kinds = "bool int8 int16 int32 uint8 uint16 uint32 float16 bfloat16 float32".split()
    for name in kinds:
        x = jnp.arange(6).reshape(2, 3).astype(name)
        t = uopc.from_dlpack(x)
        assert t.dtype == NAMES[name] and t.tolist() == np.asarray(x).astype(float).tolist()
        assert pointer(t) == x.unsafe_buffer_pointer()
        u = Tensor(np.asarray(x))
        y = jax.dlpack.from_dlpack(u)
        assert y.dtype == x.dtype and bool((x == y).all())
        assert y.unsafe_buffer_pointer() == pointer(u)
        assert Tensor(x).tolist() == t.tolist()
    assert uopc.from_dlpack(jnp.float32(1.5)).item() == 1.5
    assert uopc.from_dlpack(jnp.zeros((0, 3))).shape == (0, 3)
    assert jax.dlpack.from_dlpack(Tensor(2.5)).item() == 2.5
    y = jax.dlpack.from_dlpack(Tensor([1.0, 2.0]) * 2)
    gc.collect()
    assert y.tolist() == [2, 4]
    assert jnp.asarray(Tensor([1.0, 2.0])).tolist() == [1, 2]
