"""Trees: their kinds, tree_map, and modules as arguments of transformations."""

import collections
import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

import uopc
from uopc import Tensor, grad, hvp, jvp, nn, tree_leaves, tree_map, value_and_grad, vmap

X = np.array([0.5, -1.5, 2.0])


def t(values):
    return Tensor(np.asarray(values, np.float64))


def near(got, expected):
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-13)


# ---- trees ----


class Pair(NamedTuple):
    first: object
    second: object


def test_trees_come_back_as_they_were():
    tree = {"z": [1.0, (2.0,)], "a": Pair(3.0, None), "m": {"k": np.float32(4)}}
    leaves, structure = uopc.tree_flatten(tree)
    assert leaves == [3.0, 4.0, 1.0, 2.0] and structure.num_leaves == 4
    back = uopc.tree_unflatten(structure, leaves)
    assert back == tree and list(back) == ["z", "a", "m"] and type(back["a"]) is Pair
    assert uopc.tree_flatten(back)[1] == structure
    assert uopc.tree_flatten({**tree, "a": (3.0, None)})[1] != structure
    assert repr(structure) == "TreeDef({'a': Pair(first=*, second=None), 'm': {'k': *}, 'z': [*, (*,)]})"
    g = grad(lambda p: p["a"].first * p["z"][0] + p["z"][1][0] * p["m"]["k"])(tree)
    assert list(g) == ["z", "a", "m"] and g["a"].first.item() == 1 and g["a"].second is None
    assert g["z"][1][0].item() == 4 and g["m"]["k"].item() == 2


def test_kinds_of_containers():
    @dataclasses.dataclass(frozen=True)
    class State:
        x: object
        name: str = dataclasses.field(metadata={"static": True})
        y: object = None

    g = grad(lambda s: (s.x * s.x).sum() if s.name == "s" else 0.0)(State(t(X), "s"))
    assert g.name == "s" and g.y is None
    near(g.x, 2 * X)
    for make in (collections.OrderedDict, dict):
        g = grad(lambda d: (d["b"] * d["a"]).sum())(make([("b", t(X)), ("a", t(X + 1))]))
        assert type(g) is make and list(g) == ["b", "a"]
        near(g["b"], X + 1)
    d = collections.defaultdict(list, x=t(X))
    g = grad(lambda d: d["x"].sum())(d)
    assert type(g) is collections.defaultdict and g.default_factory is list
    with pytest.raises(TypeError, match="the keys of a dict can't be sorted: 1, 'a'"):
        tree_leaves({1: 2, "a": 3})


def test_tree_map():
    assert tree_map(lambda a, b: (a, b), [1, {"x": 2}], [3, {"x": [4, 5]}]) == [(1, 3), {"x": (2, [4, 5])}]
    for other, text in [
        ([3], "tree_map: tree 1 has 1 parts, not 2"),
        ([3, {"y": 4}], r"tree_map: tree 1\[1\] is a dict with the keys 'y', not a dict with the keys 'x'"),
        ((3, {"x": 4}), "tree_map: tree 1 is a tuple, not a list"),
        ([3, 4], r"tree_map: tree 1\[1\] is a int, not a dict with the keys 'x'"),
    ]:
        with pytest.raises(ValueError, match=text):
            tree_map(lambda a, b: a, [1, {"x": 2}], other)
    pairs = tree_map(sum, [(1, 2), (3, 4)], is_leaf=lambda x: isinstance(x, tuple))
    assert pairs == [3, 7]
    with pytest.raises(ValueError, match="2 leaves for a structure of 1"):
        uopc.tree_unflatten(uopc.tree_flatten(1)[1], [1, 2])


# ---- modules ----


class Net(nn.Module):
    def __init__(self):
        self.body = [nn.Linear(3, 4), {"act": Tensor.tanh, "out": nn.Linear(4, 1, bias=False)}]
        self.table = Tensor([0, 2, 1])
        self.scale = Tensor(2.0)
        self.width = 4
        self.hook = self.scaled

    def scaled(self, x):
        return x * self.scale

    def forward(self, x):
        x = x.T.take(self.table).T
        return self.hook(self.body[1]["out"](self.body[1]["act"](self.body[0](x))))


def test_gradients_of_a_module_are_a_module():
    net = Net()
    before = dict(vars(net))
    x = Tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]])
    loss = lambda net, x: net(x).square().mean()
    value, g = value_and_grad(loss)(net, x)
    assert type(g) is Net and g is not net and g.width == 4 and vars(net) == before
    assert g.body[1]["act"] is Tensor.tanh and g.body[1]["out"].bias is None
    assert g.table.tolist() == [0, 0, 0] and g.table.dtype == uopc.i32
    wanted = loss(net, x)
    wanted.backward()
    assert value.item() == wanted.item()
    np.testing.assert_allclose(g.body[0].weight.numpy(), net.body[0].weight.grad.numpy(), rtol=1e-6)
    np.testing.assert_allclose(g.body[1]["out"].weight.numpy(), net.body[1]["out"].weight.grad.numpy(), rtol=1e-6)
    # The tensor that the method reads is the argument's, though the method was bound to the module.
    np.testing.assert_allclose(g.scale.item(), value.item(), rtol=1e-6)
    # A step, and a loss that falls.
    moved = tree_map(lambda p, g: p - 0.01 * g if p.dtype.is_float else p, net, g)
    assert loss(moved, x).item() < value.item()


def test_modules_in_trees_and_tangents():
    net = nn.Linear(3, 2)
    f = lambda p, x: (p["net"](x) * p["scale"]).sum()
    p = {"net": net, "scale": Tensor(2.0)}
    x = Tensor([[1.0, 2.0, 3.0]])
    ones = tree_map(Tensor.ones_like, p)
    value, tangent = jvp(lambda p: f(p, x), (p,), (ones,))
    g = grad(f)(p, x)
    total = sum(leaf.sum() for leaf in tree_leaves(g))
    np.testing.assert_allclose(tangent.item(), total.item(), rtol=1e-5)
    product = hvp(lambda p: f(p, x), (p,), (ones,))
    np.testing.assert_allclose(product["scale"].item(), 2 * (1 + 6), rtol=1e-5)
    with pytest.raises(ValueError, match="jvp: tangent 0 is a Linear of weight, not a Linear of weight, bias"):
        jvp(lambda net: net(x).sum(), (net,), (nn.Linear(3, 2, bias=False),))
    stacked = tree_map(lambda w: Tensor.stack([w, w * 2]), net)
    both = vmap(lambda net: net(x))(stacked)
    np.testing.assert_allclose(both[1].numpy(), 2 * net(x).numpy(), rtol=1e-6)


def test_a_tensor_with_two_names_is_one_leaf():
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    net.layers[1].weight = net.layers[0].weight
    assert len(tree_leaves(net)) == 1
    x = Tensor([[1.0, 2.0, 3.0]])
    g = grad(lambda net: net(x).sum())(net)
    assert g.layers[0].weight is g.layers[1].weight
    net(x).sum().backward()
    np.testing.assert_allclose(g.layers[0].weight.numpy(), net.layers[0].weight.grad.numpy(), rtol=1e-6)


def test_modules_may_refer_to_each_other():
    outer, inner = nn.Sequential(), nn.Linear(2, 2)
    outer.layers.append(inner)
    inner.owner = (outer,)
    inner.log = log = []
    g = grad(lambda net: net(Tensor([[1.0, 2.0]])).sum())(outer)
    assert g.layers[0].owner[0] is g and g.layers[0].log is log
