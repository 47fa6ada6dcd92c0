"""Limits of memory and checkpoints: the same bits, errors, and trees."""

import threading

import numpy as np
import pytest

import uopc
from uopc import Tensor


def weights():
    rng = np.random.default_rng(0)
    return [Tensor((rng.standard_normal((32, 32)) / 6).astype(np.float32)) for _ in range(8)]


def loss(ws):
    h = Tensor(np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32))
    for w in ws:
        h = (h @ w).relu()
    return (h * h).mean()


def bits(tree):
    leaves = uopc.tree_leaves(tree)
    Tensor.realize_all(leaves)
    return [t.numpy().tobytes() for t in leaves]


def test_a_limit_changes_no_bit_and_the_error_names_the_least():
    ws = weights()
    expected = bits(uopc.value_and_grad(loss)(ws))
    with pytest.raises(MemoryError, match="the least this plan reaches is") as raised:
        with uopc.memory_limit(1):
            bits(uopc.value_and_grad(loss)(ws))
    least = int(str(raised.value).split("reaches is ")[1].split()[0])
    with uopc.memory_limit(least):
        assert bits(uopc.value_and_grad(loss)(ws)) == expected
    with pytest.raises(MemoryError):
        with uopc.memory_limit(least - 1):
            bits(uopc.value_and_grad(loss)(ws))
    assert bits(uopc.value_and_grad(loss)(ws)) == expected


def test_limits_nest_and_belong_to_a_thread():
    x = Tensor([1.0, 2.0])
    limit = uopc.memory_limit("1K")
    with uopc.memory_limit(1):
        with limit, limit:
            assert (x + 1).tolist() == [2.0, 3.0]
        with pytest.raises(MemoryError):
            (x + 2).tolist()
        found = []
        other = threading.Thread(target=lambda: found.append((x + 3).tolist()))
        other.start()
        other.join()
        assert found == [[4.0, 5.0]]
    assert (x + 2).tolist() == [3.0, 4.0]


@pytest.mark.parametrize("bad", ["", "12T", "-1", "many"])
def test_sizes_are_checked(bad):
    with pytest.raises(ValueError, match="memory_limit"):
        uopc.memory_limit(bad)


def test_what_is_no_size_is_refused():
    for bad in (None, 1.5, float("nan"), [1]):
        with pytest.raises(TypeError, match="memory_limit: .* is neither a whole number nor a text; use bytes"):
            uopc.memory_limit(bad)
    for bad in (-1, 10**30):
        with pytest.raises(ValueError, match=f"memory_limit: {bad} bytes are no size"):
            uopc.memory_limit(bad)
    with uopc.memory_limit(np.int64(1 << 20)):
        assert Tensor(1.0).exp().item() > 2


def test_checkpoints_take_trees_and_modules():
    rng = np.random.default_rng(1)
    x = Tensor(rng.standard_normal((4, 3)).astype(np.float32))
    net = uopc.nn.Linear(3, 3)

    def layer(net, inputs, scale=1.0, *, power):
        h = net(inputs["x"]).exp() * scale
        return {"h": h.sin() * power, "n": 3}

    saved = uopc.checkpoint(layer)
    assert saved.__name__ == "layer"

    def step(layer, net):
        first = layer(net, {"x": x}, power=Tensor(2.0))
        assert first["n"] == 3
        return layer(net, {"x": first["h"]}, 0.5, power=Tensor(3.0))["h"].sum()

    plain = uopc.grad(lambda net: step(layer, net))(net)
    again = uopc.grad(lambda net: step(saved, net))(net)
    assert bits(plain) == bits(again)
    each = uopc.vmap(uopc.grad(lambda row: saved(net, {"x": row}, power=2.0)["h"].sum()))(x)
    rows = uopc.vmap(uopc.grad(lambda row: layer(net, {"x": row}, power=2.0)["h"].sum()))(x)
    assert bits(each) == bits(rows)


def test_parameters_get_their_gradients_through_a_checkpoint():
    def gradients(wrap):
        w = Tensor([[0.5, -0.25], [1.0, 0.75]], requires_grad=True)
        layer = wrap(lambda w, x: (x @ w).exp().sin())
        layer(w, layer(w, Tensor([[1.0, 2.0]]))).sum().backward()
        return bits([w.grad])

    assert gradients(lambda f: f) == gradients(uopc.checkpoint)


def test_what_the_function_raises_comes_out():
    def fails(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        uopc.checkpoint(fails)(Tensor(1.0))
