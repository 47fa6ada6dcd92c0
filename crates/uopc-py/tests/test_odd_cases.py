"""What happens at the edges: sizes beyond memory, shared memory that changes, the interpreter's end."""

import subprocess
import sys

import numpy as np
import pytest

import uopc
from uopc import Tensor


def test_shared_memory_that_changes_is_read_again_while_old_losses_are_kept():
    batch = np.zeros((2, 3), np.float32)
    x = uopc.from_numpy(batch)
    w = Tensor([1.0, 1.0, 1.0], requires_grad=True)
    losses = []
    for k in range(3):
        batch[:] = k
        loss = (x * w).sum()
        losses.append(loss)
        assert loss.item() == 6.0 * k
        loss.backward([w])
        assert w.grad.tolist() == [2.0 * k] * 3
        w.grad = None
    assert [loss.item() for loss in losses] == [0.0, 6.0, 12.0]


def test_equal_expressions_of_shared_memory_are_of_their_own_time():
    a = np.zeros(3, np.float32)
    shared = uopc.from_dlpack(a)
    early, late = shared * 2, shared * 2
    early.realize()
    a[:] = 5
    assert early.tolist() == [0.0] * 3
    assert late.tolist() == (shared * 2).tolist() == [10.0] * 3


@pytest.mark.parametrize("shape", [(2**40, 0), (0, 2**40), (3, 2**55, 0)])
def test_empty_tensors_with_long_axes_are_shown(shape):
    assert repr(Tensor.zeros(*shape)) == f"Tensor([], shape={shape}, dtype=f32)"


@pytest.mark.parametrize("n, dtype", [(2**62, "f32"), (2**61, "f64"), (2**62, "u8"), (2**60, "f32")])
def test_sizes_beyond_all_memory_are_memory_errors(n, dtype):
    with pytest.raises(MemoryError):
        Tensor.zeros(n, dtype=dtype).realize()
    assert "out of memory" in repr(Tensor.zeros(n, dtype=dtype))


def test_losses_without_gradients_say_why():
    w = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="trunc"):
        w.trunc().sum().backward()
    with pytest.raises(RuntimeError, match="cast"):
        w.int().float().sum().backward()
    with pytest.raises(RuntimeError, match="dropped out"):
        (w**0).sum().backward()
    with pytest.raises(RuntimeError, match="no tensor that needs a gradient"):
        Tensor([1.0]).sum().backward()


def test_computing_while_the_interpreter_ends():
    code = """
import builtins
from uopc import Tensor

class Last:
    def __init__(self):
        self.t = Tensor([1.0, 2.0])

    def __del__(self):
        print((self.t * 4).sum().item())

builtins.last = Last()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "12.0\n", "")
