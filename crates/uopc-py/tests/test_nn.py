"""Modules, layers, losses and optimisers."""

import copy
import pickle
import threading

import numpy as np
import pytest

import uopc
from uopc import Tensor, nn
from uopc.nn import SGD, AdamW, Embedding, Linear, Module, Sequential, parameters


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def parameter(*shape, seed=0):
    return Tensor(array(*shape, seed=seed), requires_grad=True)


class Net(Module):
    def __init__(self):
        self.table = Embedding(10, 4)
        self.blocks = [Linear(4, 4), Linear(4, 4, bias=False)]
        self.heads = {"a": Linear(4, 2), "b": (Linear(4, 1),)}
        self.scale = Tensor(np.ones(4, np.float32), requires_grad=True)
        self.mean = Tensor(np.zeros(4, np.float32))
        self.name = "net"

    def forward(self, x):
        h = self.table(x) * self.scale - self.mean
        for block in self.blocks:
            h = block(h).relu()
        return self.heads["a"](h)


NAMES = ["table.weight", "blocks.0.weight", "blocks.0.bias", "blocks.1.weight", "heads.a.weight",
         "heads.a.bias", "heads.b.0.weight", "heads.b.0.bias", "scale"]


# ---- modules ----


def test_parameters_are_found_in_the_order_of_assignment():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert net.parameters()[0] is net.table.weight and net.parameters()[-1] is net.scale
    assert list(net.state_dict()) == NAMES + ["mean"]
    assert [id(p) for p in parameters(net)] == [id(p) for p in net.parameters()]


def test_a_shared_tensor_is_there_once_under_its_first_name():
    net = Net()
    net.tied = net.table.weight
    net.again = net.blocks[0]
    assert [name for name, _ in net.named_parameters()] == NAMES


def test_modules_may_form_a_circle():
    a, b = Sequential(Linear(2, 2)), Sequential(Linear(2, 2))
    a.other, b.other = b, a
    assert len(a.parameters()) == 4 and len(b.parameters()) == 4 and len(a.modules()) == 4
    assert "..." in repr(a)
    a.eval()
    assert not b.layers[0].training


def test_deep_nesting_is_walked_without_recursion():
    root = here = []
    for _ in range(5000):
        here.append([])
        here = here[0]
    here.append(parameter(2))
    assert len(parameters(root)) == 1


def test_long_lists_of_numbers_are_passed_over():
    net = Sequential(Linear(2, 2))
    net.data = [0.5] * 300_000
    net.rows = {"a": np.zeros(3), 5: [1, "text", None]}
    assert [name for name, _ in net.named_parameters()] == ["layers.0.weight", "layers.0.bias"]


def test_plain_objects_are_searched_too():
    class Plain:
        def __init__(self):
            self.w = parameter(2)
            self.inner = [Linear(2, 3)]

    class Slots:
        __slots__ = ("w", "unset")

        def __init__(self):
            self.w = parameter(3)

    plain, slots = Plain(), Slots()
    assert [p.shape for p in parameters(plain)] == [(2,), (2, 3), (3,)]
    assert [p.shape for p in parameters([slots, plain])] == [(3,), (2,), (2, 3), (3,)]
    holder = Module()
    holder.plain = plain
    assert [name for name, _ in holder.named_parameters()] == [
        "plain.w", "plain.inner.0.weight", "plain.inner.0.bias"]


def test_parameters_of_many_kinds_of_objects():
    w, v = parameter(2), parameter(3)
    for holder in ([w, v], (w, v), {"w": w, "v": v}, {"w": w, "v": v}.values(), iter([w, v]),
                   (t for t in (w, v, w)), [w, [v, w]]):
        found = parameters(holder)
        assert len(found) == 2 and found[0] is w and found[1] is v
    assert parameters(w)[0] is w
    assert parameters([]) == [] and parameters(Tensor([1.0])) == []
    # What is computed from a parameter is none.
    assert parameters([w * 2]) == []
    for wrong in (1, None, "text", 1.5, {1}, len, np):
        with pytest.raises(TypeError):
            parameters(wrong)


def test_calling_needs_a_forward():
    with pytest.raises(NotImplementedError, match="Module has no forward"):
        Module()(1)
    net = Net()
    assert net(Tensor(np.array([1, 2, 3], np.int32))).shape == (3, 2)


def test_train_and_eval_reach_all_modules():
    net = Net()
    assert net.training and net.eval() is net and not net.training
    assert not any(m.training for m in net.modules()) and len(net.modules()) == 6
    assert net.train() is net and all(m.training for m in net.modules())


def test_the_repr_is_a_tree():
    net = Sequential(Linear(8, 16), Tensor.relu, Sequential(Linear(16, 2, bias=False)))
    assert repr(net) == (
        "Sequential(\n"
        "  (layers.0): Linear(in_features=8, out_features=16, bias=True)\n"
        "  (layers.2): Sequential(\n"
        "    (layers.0): Linear(in_features=16, out_features=2, bias=False)\n"
        "  )\n"
        ")")
    net = Net()
    assert "scale=f32 (4,)" in repr(net) and "(heads.b.0): Linear" in repr(net)
    assert repr(Embedding(10, 4)) == "Embedding(10, 4)" and repr(Module()) == "Module()"


def test_zero_grad_forgets():
    net = Net()
    net(Tensor(np.array([1], np.int32))).sum().backward(net.parameters()[:6] + [net.scale])
    assert net.scale.grad is not None
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


# ---- states ----


def values(module):
    return {name: t.numpy().copy() for name, t in module.state_dict().items()}


def same(a, b):
    return list(a) == list(b) and all(np.array_equal(a[k], b[k]) for k in a)


def test_a_state_is_a_snapshot():
    layer = Linear(2, 3)
    before = values(layer)
    state = layer.state_dict()
    opt = SGD(layer, lr=1.0)
    layer(Tensor(array(4, 2))).sum().backward(opt.params)
    opt.step()
    assert not np.array_equal(layer.weight.numpy(), before["weight"])
    assert same({k: t.numpy() for k, t in state.items()}, before)
    assert not any(t.requires_grad for t in state.values())
    layer.load_state_dict(state)
    assert same(values(layer), before)


def test_states_load_from_tensors_and_arrays():
    a, b = Net(), Net()
    assert not same(values(a), values(b))
    result = b.load_state_dict(a.state_dict())
    assert result == ([], []) and same(values(a), values(b))
    b.load_state_dict({name: v * 0 for name, v in values(a).items()})
    assert all(not v.any() for v in values(b).values())
    assert all(p.requires_grad for p in b.parameters()) and len(b.parameters()) == len(NAMES)


def test_loading_is_all_or_nothing():
    net = Net()
    before = values(net)
    good = {name: v + 1 for name, v in before.items()}
    missing = {k: v for k, v in good.items() if k != "scale"}
    cases = [
        (ValueError, missing),
        (ValueError, {**good, "more": good["scale"]}),
        (ValueError, {**good, "mean": np.zeros(5, np.float32)}),
        (TypeError, {**good, "mean": np.zeros(4, np.float64)}),
        (TypeError, {**good, "mean": "text"}),
    ]
    for error, state in cases:
        with pytest.raises(error) as raised:
            net.load_state_dict(state)
        assert same(values(net), before)
        if error is ValueError:
            assert any(name in str(raised.value) for name in ("scale", "more", "mean"))
    result = net.load_state_dict({**missing, "more": 1}, strict=False)
    assert result.missing == ["scale"] and result.unexpected == ["more"]
    assert np.array_equal(net.mean.numpy(), good["mean"])
    assert np.array_equal(net.scale.numpy(), before["scale"])


def test_files(tmp_path):
    a, b = Net(), Net()
    path = tmp_path / "net.safetensors"
    a.save(path)
    assert b.load(str(path)) == ([], []) and same(values(a), values(b))
    before = values(b)
    other = Linear(2, 3)
    with pytest.raises(OSError, match="weight"):
        other.load(path)
    assert other.load(path, strict=False).missing == ["weight", "bias"]
    with pytest.raises(OSError):
        b.load(tmp_path / "nothing")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(OSError, match="truncated|damaged"):
        b.load(path)
    assert same(values(b), before)
    with pytest.raises(OSError):
        a.save(tmp_path / "no" / "folder" / "net")
    with pytest.raises(TypeError):
        a.save(3.5)


def test_copies_and_pickles():
    net = Net()
    net.tied = net.table.weight
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert same(values(net), values(other))
        assert len(other.parameters()) == len(NAMES)
        assert other.tied is other.table.weight and other.table.weight is not net.table.weight
        other.load_state_dict({name: v * 0 for name, v in values(other).items()})
        assert values(net)["scale"].any()
        x = Tensor(np.array([1, 2], np.int32))
        assert other(x).shape == net(x).shape
    sequential = pickle.loads(pickle.dumps(Sequential(Linear(2, 3), Tensor.relu)))
    assert sequential(Tensor.zeros(1, 2)).shape == (1, 3)


# ---- layers and losses ----


def test_linear():
    layer = Linear(3, 2)
    assert layer.weight.shape == (3, 2) and layer.bias.shape == (2,)
    assert layer.weight.requires_grad and layer.bias.requires_grad
    bound = 1 / np.sqrt(3)
    assert np.abs(layer.weight.numpy()).max() <= bound
    x = array(4, 5, 3)
    expected = x @ layer.weight.numpy() + layer.bias.numpy()
    np.testing.assert_allclose(layer(Tensor(x)).numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer(x).numpy(), expected, rtol=1e-5, atol=1e-6)
    bare = Linear(3, 2, bias=False)
    assert bare.bias is None and len(bare.parameters()) == 1
    np.testing.assert_allclose(bare(x).numpy(), x @ bare.weight.numpy(), rtol=1e-5, atol=1e-6)


def test_the_same_seed_gives_the_same_layer():
    Tensor.manual_seed(5)
    a = values(Linear(3, 2))
    Tensor.manual_seed(5)
    assert same(a, values(Linear(3, 2)))


def test_embedding():
    table = Embedding(10, 4)
    assert table.weight.shape == (10, 4) and np.abs(table.weight.numpy()).max() < 0.2
    ids = np.array([[1, 5], [9, 1]], np.int32)
    np.testing.assert_array_equal(table(Tensor(ids)).numpy(), table.weight.numpy()[ids])
    table(Tensor(ids)).sum().backward([table.weight])
    counts = np.zeros((10, 4))
    np.add.at(counts, ids.ravel(), 1)
    np.testing.assert_array_equal(table.weight.grad.numpy(), counts)
    some = table(Tensor([-1, 10, -11]))
    np.testing.assert_array_equal(some.numpy(), [table.weight.numpy()[-1], np.zeros(4), np.zeros(4)])
    with pytest.raises(TypeError):
        table(Tensor([0.5]))


def test_layers_refuse_what_does_not_fit():
    for wrong in (lambda: Linear(3, 2)(Tensor.zeros(4, 4)), lambda: Linear(-1, 2), lambda: Embedding(2, -1)):
        with pytest.raises(ValueError):
            wrong()
    for wrong in (lambda: Linear(3.5, 2), lambda: Linear("3", 2), lambda: Linear(3),
                  lambda: Sequential(1), lambda: Embedding(None, 2)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises((ValueError, MemoryError)):
        Linear(2**40, 2**40)


def test_losses():
    logits, labels = array(5, 3), np.array([0, 2, 1, 1, 0], np.int32)
    shifted = logits - logits.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    expected = -log_p[np.arange(5), labels].mean()
    got = nn.cross_entropy(Tensor(logits), Tensor(labels)).item()
    assert got == pytest.approx(expected, rel=1e-5)
    assert nn.cross_entropy(logits, labels).item() == got
    a, b = array(4, 3), array(4, 3, seed=1)
    assert nn.mse(Tensor(a), Tensor(b)).item() == pytest.approx(((a - b) ** 2).mean(), rel=1e-5)
    assert nn.mse_loss is nn.mse
    with pytest.raises(ValueError):
        nn.mse(a, array(5, 2))
    with pytest.raises(TypeError):
        nn.cross_entropy(logits, logits[:, 0])


# ---- optimisers ----


@pytest.mark.parametrize("make", [lambda p: SGD(p, lr=0.1), lambda p: AdamW(p, lr=0.1)])
def test_params_are_the_objects_that_were_given(make):
    net, w = Net(), parameter(2)
    assert [id(p) for p in make(net).params] == [id(p) for p in net.parameters()]
    for given in ([w], (w,), {"w": w}.values(), (t for t in [w])):
        opt = make(given)
        assert isinstance(opt.params, list) and opt.params[0] is w
    opt.params.clear()
    assert len(opt.params) == 1 and "1 params" in repr(opt)


@pytest.mark.parametrize("make", [SGD, AdamW])
def test_wrong_lists_of_parameters(make):
    w = parameter(2)
    for wrong in ([], (), [w, w], [Tensor([1.0])], [w, w * 2]):
        with pytest.raises(ValueError):
            make(wrong, 0.1)
    for wrong in (w, {"w": w}, "w", None, 1, [1.0], [w, None], [np.zeros(2)]):
        with pytest.raises(TypeError):
            make(wrong, 0.1)
    with pytest.raises(TypeError):
        make([w], "fast")


def test_the_learning_rate_can_be_changed_without_new_plans():
    w = parameter(3)
    opt = SGD([w], lr=0.5)
    assert opt.lr == 0.5

    def step():
        opt.zero_grad()
        w.square().sum().backward(opt.params)
        opt.step()

    step()
    step()
    plans, before = len(uopc.kernelize._plans), w.numpy().copy()
    opt.lr = 0.25
    step()
    assert opt.lr == 0.25 and len(uopc.kernelize._plans) == plans
    np.testing.assert_allclose(w.numpy(), before * 0.5, rtol=1e-6)


def test_sgd_with_momentum():
    w = Tensor(np.array([1.0, -2.0], np.float32), requires_grad=True)
    opt = SGD([w], lr=0.1, momentum=0.9)
    assert opt.momentum == 0.9
    for _ in range(2):
        opt.zero_grad()
        w.square().sum().backward(opt.params)
        opt.step()
    np.testing.assert_allclose(w.numpy(), [0.46, -0.92], rtol=1e-5)


def test_adamw_is_that_of_the_formula():
    start = array(4)
    w = Tensor(start, requires_grad=True)
    opt = AdamW([w], lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
    assert (opt.betas, opt.eps, opt.weight_decay) == ((0.8, 0.95), 1e-6, 0.1)
    p, m, v = start.astype(np.float64), np.zeros(4), np.zeros(4)
    for t in range(1, 6):
        opt.zero_grad()
        (w.square().sum() * 0.5).backward(opt.params)
        opt.step()
        g = p.copy()
        p *= 1 - 0.05 * 0.1
        m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g * g
        p -= 0.05 / (1 - 0.8**t) * m / (np.sqrt(v) / np.sqrt(1 - 0.95**t) + 1e-6)
        np.testing.assert_allclose(w.numpy(), p, rtol=1e-4, atol=1e-6)
    assert opt.steps == 5


def test_a_step_needs_gradients():
    for opt in (SGD([parameter(2)], 0.1), AdamW([parameter(2)])):
        with pytest.raises(RuntimeError, match="no parameter has a gradient"):
            opt.step()
        with pytest.raises(TypeError):
            opt.step(1.0)


def test_the_state_of_an_optimiser():
    def trained(steps, w, opt):
        for _ in range(steps):
            opt.zero_grad()
            w.square().sum().backward(opt.params)
            opt.step()

    w = parameter(3)
    opt = AdamW([w], lr=0.1)
    assert opt.state_dict()["steps"].item() == 0
    trained(3, w, opt)
    state, saved = opt.state_dict(), w.numpy().copy()
    assert state["steps"].item() == 3
    trained(2, w, opt)
    # A state is a snapshot.
    assert state["steps"].item() == 3
    other = Tensor(saved, requires_grad=True)
    again = AdamW([other], lr=0.1)
    again.load_state_dict(state)
    trained(2, other, again)
    np.testing.assert_array_equal(other.numpy(), w.numpy())
    again.load_state_dict({name: t.numpy() for name, t in state.items()})
    assert again.steps == 3
    with pytest.raises(ValueError, match="mean.0"):
        again.load_state_dict({name: state[name] for name in ("steps", "rates")})
    with pytest.raises((TypeError, ValueError)):
        again.load_state_dict({**state, "mean.0": np.zeros(4, np.float32)})
    with pytest.raises(TypeError):
        again.load_state_dict([1])
    assert again.steps == 3


def test_training_reduces_the_loss():
    Tensor.manual_seed(1)
    x = array(64, 8)
    y = (x.sum(1) > 0).astype(np.int32)
    net = Sequential(Linear(8, 16), Tensor.relu, Linear(16, 2))
    opt = AdamW(net, lr=1e-2)
    losses = []
    for _ in range(40):
        loss = nn.cross_entropy(net(Tensor(x)), Tensor(y))
        opt.zero_grad()
        loss.backward(opt.params)
        opt.step(loss)
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_two_threads_may_use_one_optimiser():
    w = parameter(4)
    opt = SGD([w], lr=0.01)
    w.square().sum().backward([w])
    failures = []

    def work():
        try:
            for _ in range(20):
                opt.lr = 0.01
                opt.step()
                opt.state_dict()
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
