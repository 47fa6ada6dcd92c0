"""Mistakes that users make: each is refused with the type, the text and the line that help."""

import numpy as np
import pytest
from test_interop_dlpack import Exporter

import uopc
from uopc import Tensor, nn


def parameter():
    return Tensor([1.0, 2.0], requires_grad=True)


def refusal(kind, call):
    """The text of what a call raises, which ends with the line of the call."""
    with pytest.raises(Exception) as caught:
        call()
    assert type(caught.value) is kind, repr(caught.value)
    text = str(caught.value)
    line = call.__code__.co_firstlineno
    assert text.endswith(f"test_findings.py:{line})"), text
    return text



X = Tensor([[1.0, 2.0], [3.0, 4.0]])
HUGE = "1180591620717411303424"

REFUSED = [
    (TypeError, lambda: X.sum("1"), "an integer is needed, not '1'"),
    (TypeError, lambda: X.sum(True), "not a bool"),
    (TypeError, lambda: X.reshape(2.0, 2), "an integer is needed, not 2.0"),
    (TypeError, lambda: X.reshape(("2", 2)), "an integer is needed, not '2'"),
    (TypeError, lambda: X.permute([0, None]), "an integer is needed, not None"),
    (ValueError, lambda: X.sum(2**70), f"{HUGE} is beyond any size or position"),
    (ValueError, lambda: X.sum(-(2**70)), f"-{HUGE} is beyond any size or position"),
    (TypeError, lambda: X.sum(0, dim=1), "axis and dim are two names of one argument"),
    (TypeError, lambda: X.sum(out=X), "sum: a result is a new tensor"),
    (TypeError, lambda: X.maximum("a"), "a tensor, a number or an array is needed, not str"),
    (OverflowError, lambda: X.maximum(2**200), "does not fit the integers that tensors hold"),
    (OverflowError, lambda: X + 2**200, "does not fit the integers that tensors hold"),
    (TypeError, lambda: Tensor.stack(1), "a list of tensors is needed, not 1"),
    (ValueError, lambda: X.pad([(-1, 0), (0, 0)]), "-1 is negative"),
    (TypeError, lambda: X.pad([1, 2, 3]), r"one pair of numbers for each axis is needed"),
    (TypeError, lambda: X.unsqueeze(), "the place of the new axis is missing"),
    (NotImplementedError, lambda: X.reshape(4, order="F"), "row-major order"),
    (TypeError, lambda: X["a"], "can't be str"),
    (TypeError, lambda: X[1.0], "can't be float"),
    (TypeError, lambda: X[1.5:], "a slice is made of integers and None, and can't be of 1.5"),
    (TypeError, lambda: X[slice(1.5)], "can't be of 1.5"),
    (IndexError, lambda: X[2**70], f"slice: {HUGE} is beyond"),
    (IndexError, lambda: X[:, np.array(5), 2**70], HUGE),
    (TypeError, lambda: X.__delitem__(0), "can be replaced, not deleted"),
    (ValueError, lambda: Tensor([1]).one_hot(-1), "one_hot: there are no -1 classes; give their"),
    (TypeError, lambda: Tensor([1]).one_hot(1.5), "an integer is needed, not 1.5"),
    (TypeError, lambda: setattr(X, "grad", np.ones((2, 2))), "grad: a tensor or None is needed"),
    (TypeError, lambda: Tensor.manual_seed(1.5), "a seed is an integer, not 1.5"),
    (ValueError, lambda: Tensor.manual_seed(2**64), "more than 64 bits"),
    (ValueError, lambda: Tensor.manual_seed(2**200), "more than 64 bits"),
    (TypeError, lambda: Tensor.uniform(2, low="a"), "a number is needed, not 'a'"),
    (TypeError, lambda: Tensor.assign_all([1]), "pairs (tensor, value) of tensors are needed"),
    (OverflowError, lambda: Tensor(10**30), "no integer dtype holds it, dtype=uopc.f64 rounds it"),
    (OverflowError, lambda: Tensor(-(2**63) - 1), "no integer dtype holds it"),
    (OverflowError, lambda: Tensor([2**63]), "at [0] does not fit i32; give dtype=uopc.u64"),
    (OverflowError, lambda: Tensor(10**60), "fits none of the dtypes"),
    (TypeError, lambda: X * np.ma.array([1.0, 2.0], mask=[0, 1]), "a.filled(value)"),
    (ValueError, lambda: nn.Linear(-1, 2), "-1 is negative"),
    (TypeError, lambda: nn.Linear("a", 2), "an integer is needed, not 'a'"),
    (TypeError, lambda: nn.SGD([1]), "an optimiser updates tensors; item 0 is a int"),
    (TypeError, lambda: nn.SGD(1), "a list of tensors is needed, not 1"),
    (TypeError, lambda: nn.SGD(X), "write [tensor]"),
    (TypeError, lambda: nn.AdamW([parameter()], lr="a"), "a number is needed, not 'a'"),
    (TypeError, lambda: nn.AdamW([parameter()], betas=0.9), "two numbers are needed"),
    (TypeError, lambda: nn.AdamW([parameter()], betas=(0.9, "b")), "a number is needed, not 'b'"),
    (TypeError, lambda: nn.SGD([parameter()]).load_state_dict(None), "as state_dict() gives it"),
    (TypeError, lambda: nn.SGD([parameter()]).load_state_dict({1: X}), "have names, and 1 is none"),
    (TypeError, lambda: parameter().sum().backward([1]), "the list holds tensors, and item 0"),
    (TypeError, lambda: parameter().sum().backward(1), "a list of tensors is needed, not 1"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_a_mistake_names_itself_and_the_line(case):
    kind, call, text = REFUSED[case]
    assert text in refusal(kind, call)


def test_what_is_no_mistake_stays_allowed():
    assert X.reshape(range(1, 5)[::3]).shape == (1, 4)
    assert X.reshape(np.array([4, 1])).shape == (4, 1)
    assert X[-(2**70) : 2**70].shape == (2, 2)
    assert Tensor([1]).one_hot(0).shape == (1, 0)
    assert Tensor(2**63, dtype=uopc.u64).item() == 2**63
    assert Tensor(10**30, dtype=uopc.f64).item() == 1e30
    assert np.ma.array(X, mask=[[0, 1], [0, 0]]).sum() == 8
    w = parameter()
    w.sum().backward((t for t in [w]))
    assert w.grad.tolist() == [1.0, 1.0]
    assert nn.AdamW([w], betas=[0.5, 0.25]).betas == (0.5, 0.25)


def test_arrays_beside_lists_are_taken_as_lists():
    ones = np.ones(2, np.float32)
    for mixed in ([ones, [1, 2]], [[1, 2], ones], [ones, (1, ones[0] * 2)]):
        swapped = mixed[0] is not ones
        t = Tensor(mixed)
        want = [[1.0, 2.0], [1.0, 1.0]] if swapped else [[1.0, 1.0], [1.0, 2.0]]
        assert (t.dtype, t.tolist()) == (uopc.f32, want)
    # The arrays say the dtype, as they do among themselves.
    t = Tensor([[1, 2], np.array([3, 4], np.int8)])
    assert (t.dtype, t.tolist()) == (uopc.i8, [[1, 2], [3, 4]])
    t = Tensor([[[1, 2], [3, 4]], np.array([[5, 6], [7, 8]], np.int64)])
    assert (t.dtype, t.tolist()) == (uopc.i64, [[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
    t = Tensor([[np.array([1.5, 2.0]), [3, 4]], np.ones((2, 2), np.float32)])
    assert (t.dtype, t.tolist()) == (uopc.f64, [[[1.5, 2.0], [3.0, 4.0]], [[1.0, 1.0], [1.0, 1.0]]])
    t = Tensor([np.ones((2, 0)), [[], []]])
    assert (t.dtype, t.shape) == (uopc.f64, (2, 2, 0))
    # So do tensors, and gradients flow to them.
    w = parameter()
    t = Tensor([[3, 4], w])
    assert t.tolist() == [[3.0, 4.0], [1.0, 2.0]]
    (t * t).sum().backward([w])
    assert w.grad.tolist() == [2.0, 4.0]
    for ragged in (
        [np.ones(3), [1, 2]],
        [[1, 2], np.ones(3)],
        [np.ones(2), 1],
        [1, np.ones(2)],
        [[1, 2], 3],
        [3, [1, 2]],
        [np.ones((2, 2)), [1, 2]],
    ):
        with pytest.raises(ValueError, match="ragged"):
            Tensor(ragged)


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("offset", [2**63, 2**64 - 8])
def test_offsets_beyond_all_memory_are_refused(versioned, offset):
    exporter = Exporter(np.ones(2), versioned=versioned, byte_offset=offset)
    with pytest.raises(BufferError, match=f"makes no sense: an offset of {offset} bytes"):
        uopc.from_dlpack(exporter)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.5])
def test_optimisers_refuse_numbers_that_make_no_sense(bad):
    for make, text in [
        (lambda: nn.SGD([parameter()], lr=bad), "SGD: the learning rate (lr) is"),
        (lambda: nn.SGD([parameter()], momentum=bad), "SGD: momentum is"),
        (lambda: nn.AdamW([parameter()], lr=bad), "AdamW: the learning rate (lr) is"),
        (lambda: nn.AdamW([parameter()], betas=(bad, 0.9)), "AdamW: betas[0] is"),
        (lambda: nn.AdamW([parameter()], betas=(0.9, bad)), "AdamW: betas[1] is"),
        (lambda: nn.AdamW([parameter()], eps=bad), "AdamW: eps is"),
        (lambda: nn.AdamW([parameter()], weight_decay=bad), "AdamW: weight_decay is"),
    ]:
        found = refusal(ValueError, make)
        assert text in found and "at least 0" in found
    assert "below 1" in refusal(ValueError, lambda: nn.AdamW([parameter()], betas=(0.9, 1.0)))
    for opt in (nn.SGD([parameter()], lr=0.25), nn.AdamW([parameter()], lr=0.25)):
        assert "the learning rate (lr)" in refusal(ValueError, lambda: setattr(opt, "lr", bad))
        assert opt.lr == 0.25
        opt.lr = 0
        assert opt.lr == 0.0


def test_a_state_that_does_not_fit_names_the_entry():
    opt = nn.AdamW([parameter()])
    state = opt.state_dict()
    for name, value, kind, text in [
        ("mean.0", np.ones(3, np.float32), ValueError, "the entry mean.0 has shape (3,)"),
        ("square.0", np.ones(2), TypeError, "the entry square.0 is f64, and f32 is needed"),
        ("steps", np.ones(1, np.float32), TypeError, "the entry steps is f32"),
    ]:
        found = refusal(kind, lambda: opt.load_state_dict({**state, name: value}))
        assert text in found
    opt.load_state_dict(state)
