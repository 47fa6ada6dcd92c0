"""Pickles and copies of tensors, and tensors in other processes."""

import concurrent.futures
import copy
import multiprocessing
import pickle

import numpy as np
import pytest

import uopc
from uopc import Tensor

DTYPES = "bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64".split()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", DTYPES)
def test_pickles(dtype, protocol):
    for shape in [(), (3, 2), (0, 4)]:
        t = Tensor(np.arange(int(np.prod(shape))).reshape(shape), dtype=dtype)
        back = pickle.loads(pickle.dumps(t, protocol))
        assert back.dtype == dtype and back.shape == shape
        assert bytes(back) == bytes(t) and not back.requires_grad


def test_a_pickled_parameter_is_a_parameter():
    w = Tensor([1.0, 2.0], requires_grad=True)
    (w * w).sum().backward([w])
    back = pickle.loads(pickle.dumps(w))
    assert back.requires_grad and back.grad is None and w.grad.tolist() == [2, 4]
    computed = pickle.loads(pickle.dumps(w * 2))
    assert computed.tolist() == [2, 4] and not computed.requires_grad
    with uopc.no_grad():
        assert pickle.loads(pickle.dumps(w)).requires_grad


def test_pickles_that_lie():
    rebuild, parts = Tensor([1.0, 2.0]).__reduce__()
    data, dtype, shape, requires_grad = parts
    for wrong in [
        (data[:-1], dtype, shape, requires_grad),
        (data, "f64", shape, requires_grad),
        (data, dtype, (1 << 62, 1 << 62), requires_grad),
        (data, dtype, (-2,), requires_grad),
        (b"\2", "bool", (1,), False),
        (data, "i32", shape, True),
        (data, "nothing", shape, False),
    ]:
        with pytest.raises((ValueError, TypeError)):
            rebuild(*wrong)
    assert rebuild(*parts).tolist() == [1, 2]


def test_copies():
    t = Tensor([1.0, 2.0])
    u, v = copy.copy(t), copy.deepcopy(t)
    t += 1
    assert u.tolist() == v.tolist() == [1, 2] and t.tolist() == [2, 3]
    w = Tensor([1.0, 2.0], requires_grad=True)
    lazy = copy.copy(w * 3)
    lazy.sum().backward([w])
    assert w.grad.tolist() == [3, 3]


def test_a_deep_copy_of_a_parameter_is_another_parameter():
    w = Tensor([1.0, 2.0], requires_grad=True)
    (w * w).sum().backward([w])
    for v in (copy.deepcopy(w), copy.copy(w)):
        assert v.requires_grad and v is not w
        with uopc.no_grad():
            v += 10
        assert w.tolist() == [1, 2] and v.tolist() == [11, 12]
        v.grad = None
        (w * 5).sum().backward([w])
        assert v.grad is None
    v = copy.deepcopy(w)
    assert v.grad.tolist() == w.grad.tolist() and v.grad is not w.grad
    assert copy.deepcopy(w.grad).tolist() == w.grad.tolist()
    assert not copy.deepcopy(w * 2).requires_grad


def test_deep_copies_share_no_memory():
    a = np.zeros(3, np.float32)
    t = uopc.from_numpy(a)
    v = copy.deepcopy(t)
    a[:] = 5
    assert v.tolist() == [0, 0, 0] and t.tolist() == [5, 5, 5]


def test_structures_keep_what_is_one_tensor():
    w = Tensor([1.0], requires_grad=True)
    for again in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        model = again({"a": w, "b": [w]})
        assert model["a"] is model["b"][0] is not w


def double(t):
    return t * 2, t.requires_grad


def test_tensors_go_to_other_processes_and_back():
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        w = Tensor([[1.0, 2.0]], requires_grad=True)
        result, needed = pool.submit(double, w).result(timeout=300)
        assert result.tolist() == [[2, 4]] and needed and not result.requires_grad
