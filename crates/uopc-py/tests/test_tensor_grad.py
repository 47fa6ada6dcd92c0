"""Gradients from Python: parameters, backward, no_grad."""

import gc
import threading
import weakref

import numpy as np
import pytest

from uopc import Tensor
from uopc.tensor import no_grad


def parameter(*values):
    return Tensor(list(values), requires_grad=True)


def values(t):
    return t.numpy().tolist()


def test_backward_with_a_list():
    w, v = parameter(1.0, 2.0), parameter(3.0, 4.0)
    loss = (w * v).sum()
    assert loss.backward([w]) is loss
    assert values(w.grad) == [3.0, 4.0] and v.grad is None
    loss.backward((w, v))
    assert values(w.grad) == [6.0, 8.0] and values(v.grad) == [1.0, 2.0]
    loss.backward(v)
    assert values(v.grad) == [2.0, 4.0]
    loss.backward(p for p in [v])
    assert values(v.grad) == [3.0, 6.0]


def test_backward_of_all():
    w, v, unused = parameter(1.0, 2.0), parameter(3.0, 4.0), parameter(5.0)
    loss = (w * v.detach()).sum()
    assert loss.backward() is loss
    assert values(w.grad) == [3.0, 4.0] and v.grad is None and unused.grad is None


def test_backward_refuses():
    w = parameter(1.0, 2.0)
    with pytest.raises(RuntimeError, match="backward needs a scalar"):
        (w * 2).backward()
    with pytest.raises(RuntimeError, match="backward needs a scalar"):
        (w * 2).backward([w])
    with pytest.raises(RuntimeError, match="depends on no tensor"):
        Tensor(1.0).backward()
    with pytest.raises(RuntimeError, match="needs no gradient"):
        w.sum().backward([Tensor([1.0])])
    with pytest.raises(TypeError):
        w.sum().backward(3)
    loss = w.sum()
    w.assign(w * 2)
    with pytest.raises(RuntimeError, match="updated at .*test_tensor_grad.py"):
        loss.backward([w])


def test_requires_grad():
    w, c = parameter(1.0), Tensor([1.0])
    assert (w.requires_grad, w.is_leaf) == (True, True)
    assert ((w * 2).requires_grad, (w * 2).is_leaf) == (True, False)
    assert (c.requires_grad, c.is_leaf, (c * 2).is_leaf) == (False, True, True)
    assert not w.detach().requires_grad and not (w > 0).requires_grad
    c.requires_grad = True
    assert c.requires_grad and c.is_leaf
    assert Tensor([1.0]).requires_grad_().requires_grad
    t = Tensor([2.0])
    assert t.requires_grad_(False) is t
    with pytest.raises(TypeError, match="i32 has no gradients"):
        Tensor([1]).requires_grad_()
    with pytest.raises(TypeError, match="i32 has no gradients"):
        Tensor([1], requires_grad=True)


def test_frozen_parameters():
    w, v = parameter(1.0, 2.0), parameter(3.0, 4.0)
    w.requires_grad = False
    assert not w.requires_grad and w.is_leaf and not (w * 2).requires_grad
    (w * v).sum().backward()
    assert w.grad is None and values(v.grad) == [1.0, 2.0]
    w += 1
    assert w.requires_grad_().requires_grad and values(w) == [2.0, 3.0]
    with pytest.raises(RuntimeError, match="detach"):
        (v * 2).requires_grad_(False)


def test_the_gradient_is_one_object():
    w = parameter(1.0, 2.0)
    assert w.grad is None
    w.square().sum().backward()
    grad = w.grad
    assert w.grad is grad and w.grad is w.grad
    w.square().sum().backward()
    assert w.grad is not grad and values(w.grad) == [4.0, 8.0]
    w.zero_grad()
    assert w.grad is None


def test_setting_the_gradient():
    w = parameter(1.0, 2.0)
    grad = Tensor([5.0, 6.0])
    w.grad = grad
    assert w.grad is grad
    w.sum().backward()
    assert values(w.grad) == [6.0, 7.0] and values(grad) == [5.0, 6.0]
    w.grad = None
    assert w.grad is None
    w.grad = grad
    del w.grad
    assert w.grad is None
    with pytest.raises(ValueError, match=r"shape \(2,\) has no gradient of shape \(1,\)"):
        w.grad = Tensor([1.0])
    with pytest.raises(TypeError, match="no gradient of f64"):
        w.grad = grad.double()
    with pytest.raises(TypeError, match="a tensor or None"):
        w.grad = 3.0


def test_gradients_are_not_kept_alive():
    w = parameter(1.0)
    w.sum().backward()
    grad = weakref.ref(w.grad)
    w.zero_grad()
    gc.collect()
    assert grad() is None


def test_second_derivatives():
    x = parameter(1.0, 2.0)
    (x * x * x).sum().backward()
    first = x.grad
    x.grad = None
    first.sum().backward()
    assert values(first) == [3.0, 12.0] and values(x.grad) == [6.0, 12.0]


def test_in_place_updates_of_parameters():
    w = parameter(1.0, 2.0)
    with pytest.raises(RuntimeError, match="no_grad"):
        w += 1
    with pytest.raises(RuntimeError, match="no_grad"):
        w[0] = 1
    w.square().sum().backward()
    name = w
    with no_grad():
        w -= 0.5 * w.grad
        w[0] = 3
    assert name is w and values(name) == [3.0, 0.0]
    assert w.requires_grad and w.is_leaf


def test_in_place_keeps_history():
    w = parameter(1.0, 2.0)
    t = w * 2
    t *= 3
    t[0] = 0
    t.sum().backward()
    assert values(w.grad) == [0.0, 6.0]


def needs_grad():
    return (parameter(1.0) * 2).requires_grad


def test_no_grad():
    with no_grad():
        assert not needs_grad()
        with no_grad():
            assert not needs_grad()
        assert not needs_grad()
        assert parameter(1.0).requires_grad
    assert needs_grad()
    with pytest.raises(ZeroDivisionError):
        with Tensor.no_grad():
            1 / 0
    assert needs_grad()


def test_no_grad_as_a_decorator():
    @no_grad
    def bare(a, *, b):
        """Its docstring."""
        return a, b, needs_grad()

    @no_grad()
    def called():
        raise ZeroDivisionError

    class Model:
        @no_grad
        def method(self):
            return self, needs_grad()

    assert bare(1, b=2) == (1, 2, False)
    assert bare.__name__ == "bare" and bare.__doc__ == "Its docstring."
    with pytest.raises(ZeroDivisionError):
        called()
    model = Model()
    assert model.method() == (model, False)
    assert needs_grad()


def test_no_grad_of_generators():
    seen = []

    @no_grad
    def steps():
        try:
            received = yield needs_grad()
            seen.append((received, needs_grad()))
            try:
                yield needs_grad()
            except KeyError:
                seen.append(("thrown", needs_grad()))
            yield needs_grad()
        finally:
            seen.append(("closed", needs_grad()))
        return "end"

    generator = steps()
    assert next(generator) is False and needs_grad()
    assert generator.send("message") is False and needs_grad()
    assert generator.throw(KeyError()) is False and needs_grad()
    with pytest.raises(StopIteration) as end:
        next(generator)
    assert end.value.value == "end"
    closed = steps()
    next(closed)
    closed.close()
    assert needs_grad()
    assert seen == [("message", False), ("thrown", False), ("closed", False), ("closed", False)]


def test_no_grad_refuses():
    async def coroutine():
        pass

    async def generator():
        yield

    for function in (coroutine, generator):
        with pytest.raises(TypeError, match="async"):
            no_grad(function)
    with pytest.raises(TypeError, match="decorates functions"):
        no_grad(3)


def test_no_grad_belongs_to_its_thread():
    inside, go = threading.Event(), threading.Event()
    seen = []

    def other():
        with no_grad():
            inside.set()
            assert go.wait(60)
            seen.append(needs_grad())

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(60)
    assert needs_grad()
    go.set()
    thread.join()
    assert seen == [False]


def numgrad(f, x, eps=1e-6):
    gradient = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[i] = eps
        gradient[i] = (f(x + step) - f(x - step)) / (2 * eps)
    return gradient


GRADIENTS = {
    "exp": (lambda t: t.exp(), np.exp),
    "log": (lambda t: t.square().log(), lambda x: np.log(x**2)),
    "div": (lambda t: 1 / (t * t + 2), lambda x: 1 / (x**2 + 2)),
    "pow": (lambda t: t**3, lambda x: x**3),
    "where": (lambda t: (t > 0).where(t * 2, t * 5), lambda x: np.where(x > 0, x * 2, x * 5)),
    "var": (lambda t: t.var(1, correction=1), lambda x: x.var(1, ddof=1)),
    "max": (lambda t: t.max(0) * 3, lambda x: x.max(0) * 3),
    "cat": (lambda t: Tensor.cat([t, t * 2]) ** 2, lambda x: np.concatenate([x, x * 2]) ** 2),
    "pad": (lambda t: t.pad(((1, 0), (0, 2))).square(), lambda x: np.pad(x, ((1, 0), (0, 2))) ** 2),
    "matmul": (lambda t: (t @ t.T).sin(), lambda x: np.sin(x @ x.T)),
    "flip": (lambda t: t.flip(1) * t, lambda x: x[:, ::-1] * x),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    ours, reference = GRADIENTS[name]
    x = np.random.default_rng(1).standard_normal((2, 3))
    t = Tensor(x, requires_grad=True)
    ours(t).sum().backward()
    assert t.grad.dtype == "f64"
    np.testing.assert_allclose(t.grad.numpy(), numgrad(lambda x: reference(x).sum(), x), atol=1e-7)
