"""Running combinations, sorting and order statistics, as Python spells them, against NumPy."""

import numpy as np
import pytest

from support import near, run, same
from uopc import Tensor, grad

X = np.array([[3.0, -1.0, 2.0, 2.0], [0.5, 0.5, -4.0, np.inf], [1.0, np.nan, -0.0, 0.0]], np.float32)
F = np.nan_to_num(X, posinf=7.0)
x, f = Tensor(X), Tensor(F)


def test_running_combinations_go_along_an_axis_or_through_all():
    got = run(f.cumsum(), f.cumsum(0), f.cumsum(dim=-1), f.cumprod(), f.cumsum(1, dtype="f64"))
    expected = [F.cumsum(), F.cumsum(0), F.cumsum(1), F.cumprod(), F.cumsum(1, dtype=np.float64)]
    for a, b in zip(got, expected):
        same(a, b)
    values, positions = x.cummax()
    same(values.numpy(), np.maximum.accumulate(X.ravel()))
    assert positions.tolist() == [0, 0, 0, 0, 0, 0, 0, 7, 7, 9, 9, 9]
    values, positions = f.cummin(dim=0)
    same(values.numpy(), np.minimum.accumulate(F, 0))
    assert positions.tolist() == [[0, 0, 0, 0], [1, 0, 1, 0], [1, 0, 1, 2]]
    near(f.logcumsumexp().numpy(), np.log(np.exp(F.astype(np.float64)).cumsum()), "f32", 4)
    counts = Tensor([[True, True], [False, True]]).cumsum(1)
    assert counts.dtype.name == "i32" and counts.tolist() == [[1, 2], [0, 1]]


def test_numpy_functions_are_those_of_the_tensor():
    for name in ("cumsum", "cumprod", "median"):
        got = getattr(np, name)(f)
        same(got.numpy() if isinstance(got, Tensor) else got, getattr(np, name)(F))


def test_sorting():
    values, positions = x.sort()
    order = np.argsort(X, 1, kind="stable")
    same(positions.numpy(), order)
    same(values.numpy(), np.take_along_axis(X, order, 1))
    same(x.argsort(dim=0).numpy(), np.argsort(X, 0, kind="stable"))
    values, positions = x.sort(-1, descending=True, stable=True)
    assert positions.tolist() == [[0, 2, 3, 1], [3, 0, 1, 2], [1, 0, 2, 3]]
    values, positions = f.topk(2, dim=1, largest=False)
    same(values.numpy(), np.sort(F, 1)[:, :2])
    values, positions = f.kthvalue(k=2, dim=0, keepdims=True)
    same(values.numpy(), np.sort(F, 0)[1:2])
    assert f.kthvalue(1)[0].shape == (3,)


def test_order_statistics():
    same(x.median(1).numpy(), np.median(X, 1))
    same(f.median((0, 1), keepdim=True).numpy(), np.median(F, (0, 1), keepdims=True))
    for how in ("linear", "lower", "higher", "nearest", "midpoint"):
        for q in (0.0, 0.3, [0.5, 0.9], np.array([0.25])):
            got = f.quantile(q, 1, method=how)
            expected = np.quantile(F.astype(np.float64), q, 1, method=how)
            near(got.numpy(), expected, "f32", 2, how, slack=1e-6)
    same(f.quantile(0.5, interpolation="lower").numpy(), np.quantile(F, 0.5, method="lower"))


def test_places_in_a_sorted_row():
    line, values = np.array([1, 3, 3, 5], np.int32), np.array([[0, 3], [6, 5]], np.int32)
    t = Tensor(line)
    for side in ("left", "right"):
        same(t.searchsorted(values, side).numpy(), np.searchsorted(line, values, side))
    same(t.searchsorted(values, right=True).numpy(), np.searchsorted(line, values, "right"))
    mixed = np.array([3, 1, 5, 3], np.int32)
    sorter = np.argsort(mixed, kind="stable")
    same(Tensor(mixed).searchsorted([3, 4], sorter=sorter).numpy(), np.searchsorted(mixed, [3, 4], sorter=sorter))


def test_gradients_go_to_what_was_read():
    assert grad(lambda t: t.topk(2)[0].sum())(Tensor([1.0, 4.0, 3.0])).tolist() == [0, 1, 1]
    assert grad(lambda t: t.median())(Tensor([1.0, 4.0, 3.0, 9.0])).tolist() == [0, 0.5, 0.5, 0]
    assert grad(lambda t: t.cumprod(0).sum())(Tensor([2.0, 0.0, 0.0])).tolist() == [1, 2, 0]
    assert grad(lambda t: t.cummax(0)[0].sum())(Tensor([2.0, 5.0, 5.0, 1.0])).tolist() == [1, 1, 2, 0]


@pytest.mark.parametrize(
    "error, text, call",
    [
        (ValueError, "cumsum: axis 2 of shape", lambda: x.cumsum(2)),
        (TypeError, "cumsum: a result is a new tensor", lambda: x.cumsum(out=x)),
        (ValueError, "topk: k = -1 is negative", lambda: x.topk(-1)),
        (ValueError, "topk: k = 5, but axis 1", lambda: x.topk(5)),
        (ValueError, "kthvalue: k = 0, but axis 1", lambda: x.kthvalue(0)),
        (TypeError, "an integer is needed", lambda: x.topk(1.5)),
        (ValueError, "q = 2 is no part", lambda: x.quantile(2.0)),
        (TypeError, "q is a number or a list of numbers, not 'half'", lambda: x.quantile("half")),
        (ValueError, "there is no interpolation 'cubic'", lambda: x.quantile(0.5, method="cubic")),
        (ValueError, "the side is left or right, not \"up\"", lambda: x.searchsorted([1.0], "up")),
        (ValueError, "side and right say different things", lambda: x.searchsorted([1.0], "left", right=True)),
    ],
)
def test_mistakes_say_what_to_do(error, text, call):
    with pytest.raises(error) as found:
        call()
    assert text in str(found.value)
