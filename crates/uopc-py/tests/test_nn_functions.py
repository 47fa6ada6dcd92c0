"""What layers compute in Python: the calls of PyTorch's names against its results, and training runs
with everything that changes from step to step.
"""

import json
import math
import pathlib

import numpy as np
import pytest

import uopc
from uopc import Tensor, kernelize, nn
from uopc.nn import functional as F

FIXTURES = pathlib.Path(__file__).parents[2] / "uopc" / "tests" / "fixtures"
CASES = json.loads((FIXTURES / "layers.json").read_text())
RUNS = json.loads((FIXTURES / "optimizers.json").read_text())


def array(v):
    return Tensor(np.array([float(x) for x in v["data"]]).reshape(v["shape"]).astype("i8" if v["int"] else "f8"))


def conv(name, **options):
    return lambda x, w, b: getattr(x, name)(w, b, **options)


def method(name, *args, **options):
    return lambda x, w=None, b=None: getattr(x, name)(*args, **options)


def normed(name, *args, **options):
    return lambda x, w=None, b=None: getattr(x, name)(*args, *(t for t in (w, b) if t is not None), **options)


def classes(**options):
    return lambda x, y, w=None: nn.cross_entropy(x, y, w, **options)


AROUND = [None, None, (1, 3), (2, 1)]
sdpa = F.scaled_dot_product_attention
CALLS = {
    "conv1d all": conv("conv1d", stride=3, padding=2, dilation=2, groups=2),
    "conv1d same": conv("conv1d", padding="same"),
    "conv1d single": conv("conv1d", padding="valid"),
    "conv2d all": conv("conv2d", stride=(2, 1), padding=(1, 2), dilation=(1, 3), groups=2),
    "conv3d": conv("conv3d", stride=(1, 2, 1), padding=1),
    "transpose1d all": conv("conv_transpose1d", stride=3, padding=2, output_padding=1, groups=2, dilation=2),
    "transpose2d": conv("conv_transpose2d", stride=(2, 1), padding=(1, 0), output_padding=(1, 0)),
    "transpose3d": conv("conv_transpose3d", stride=2, padding=1),
    "max_pool1d all": method("max_pool1d", 3, stride=2, padding=1, dilation=2),
    "max_pool2d all": method("max_pool2d", (3, 2), (2, 3), (1, 0), ceil_mode=True),
    "max_pool3d": method("max_pool3d", 2, (2, 1, 2)),
    "avg_pool1d ceil own": method("avg_pool1d", 3, 2, 1, True, False),
    "avg_pool2d divisor": method("avg_pool2d", 3, divisor_override=5),
    "avg_pool3d": method("avg_pool3d", 2, padding=1),
    "adaptive_avg_pool1d": method("adaptive_avg_pool1d", 4),
    "adaptive_avg_pool2d both": method("adaptive_avg_pool2d", (3, 2)),
    "adaptive_avg_pool3d": method("adaptive_avg_pool3d", 2),
    "adaptive_max_pool1d": method("adaptive_max_pool1d", 4),
    "adaptive_max_pool2d": method("adaptive_max_pool2d", (3, 2)),
    "pad reflect": method("pad", AROUND, "reflect"),
    "pad replicate": method("pad", AROUND, mode="replicate"),
    "pad circular": method("pad", AROUND, mode="circular"),
    "pad constant": method("pad", AROUND[1:], value=1.5),
    "interpolate nearest scale": method("interpolate", scale_factor=1.45),
    "interpolate nearest-exact": method("interpolate", (3, 7), mode="nearest-exact"),
    "interpolate bilinear aligned": method("interpolate", (1, 7), mode="bilinear", align_corners=True),
    "interpolate trilinear": method("interpolate", scale_factor=[2, 2, 2], mode="trilinear"),
    "interpolate area": method("interpolate", (3, 4), mode="area"),
    "attention mask": lambda q, k, v, m: sdpa(q, k, v, attn_mask=m.cast(bool)),
    "attention bias": lambda q, k, v, m: sdpa(q, k, v, m),
    "attention grouped": lambda q, k, v: sdpa(q, k, v, enable_gqa=True, is_causal=True),
    "layer_norm": normed("layer_norm", (3, 4)),
    "rms_norm": normed("rms_norm", 4, eps=1e-6),
    "group_norm": normed("group_norm", 2),
    "batch_norm 2d": lambda x, w, b: x.batch_norm(weight=w, bias=b, training=True),
    "batch_norm eval": lambda x, w, b, m, s: x.batch_norm(m, s, w, b),
    "mse none": lambda a, b: nn.mse_loss(a, b, reduction="none"),
    "l1": nn.l1_loss,
    "huber": lambda a, b: nn.huber_loss(a, b, delta=0.7),
    "smooth_l1": lambda a, b: nn.smooth_l1_loss(a, b, beta=0.7),
    "bce weight": lambda p, t, w: nn.binary_cross_entropy(p, t, w, "sum"),
    "bce_logits weights": lambda a, t, w, q: nn.binary_cross_entropy_with_logits(a, t, w, pos_weight=q),
    "kl_div": lambda p, q: nn.kl_div(p, q, "batchmean"),
    "kl_div log": lambda p, q: nn.kl_div(p, q, "sum", log_target=True),
    "cross_entropy mean": classes(),
    "cross_entropy weighted mean": classes(label_smoothing=0.2),
    "cross_entropy probabilities sum": classes(label_smoothing=0.1, reduction="sum"),
    "cross_entropy ignore": classes(ignore_index=2),
    "cross_entropy axis": classes(dim=1),
    "nll": nn.nll_loss,
}


def test_values_are_those_of_pytorch():
    results = {}
    for name, call in CALLS.items():
        case = CASES[name]
        inputs = {key: array(v) for key, v in case["in"].items()}
        results[name] = call(**inputs) if name not in ("l1", "nll") else call(*inputs.values())
    Tensor.realize_all(list(results.values()))
    for name, y in results.items():
        expected = array(CASES[name]["y"]).numpy()
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12, atol=1e-12, err_msg=name)


def test_functions_are_the_methods():
    x = Tensor.randn(1, 2, 6)
    w = Tensor.randn(3, 2, 2)
    assert F.conv1d(x, w, stride=2).tolist() == x.conv1d(w, stride=2).tolist()
    assert F.cross_entropy is nn.cross_entropy


@pytest.mark.parametrize(
    "error, call, part",
    [
        (ValueError, lambda x: x.conv2d(Tensor.zeros(1, 3, 9, 1)), "a kernel of 9 is larger"),
        (ValueError, lambda x: x.conv2d(Tensor.zeros(1, 3, 1, 1), padding="some"), '"same" or "valid"'),
        (ValueError, lambda x: x.conv2d(Tensor.zeros(1, 3, 1, 1), stride=-1), "the stride is"),
        (TypeError, lambda x: x.conv2d(Tensor.zeros(1, 3, 1, 1), stride=1.5), "an integer is needed"),
        (ValueError, lambda x: x.max_pool2d(9), "larger than axis"),
        (ValueError, lambda x: x.pad([None] * 4, mode="odd"), "none of constant"),
        (TypeError, lambda x: x.interpolate(), "either a size"),
        (ValueError, lambda x: x.interpolate(2, mode="cubic"), "none of nearest"),
        (ValueError, lambda x: x.interpolate(2, mode="linear"), "does not fit 2 spatial axes"),
        (ValueError, lambda x: x.interpolate(2, align_corners=True), "no meaning"),
        (ValueError, lambda x: x.batch_norm(Tensor.zeros(3)), "go together"),
        (ValueError, lambda x: x.batch_norm(), "without training it needs"),
        (ValueError, lambda x: x.dropout(2.0), "a probability"),
        (ValueError, lambda x: nn.mse_loss(x, x, "all"), "a reduction is"),
        (ValueError, lambda x: nn.Conv2d(3, 4, 3, groups=2), "groups do not divide"),
        (ValueError, lambda x: nn.Conv2d(3, 4, (3, 3, 3)), "has not 2 numbers"),
        (ValueError, lambda x: nn.GroupNorm(2, 3), "do not divide"),
        (ValueError, lambda x: nn.Dropout(-1), "a probability"),
        (ValueError, lambda x: nn.MultiheadAttention(6, 4), "do not divide"),
        (ValueError, lambda x: nn.BatchNorm2d(3)(x[0]), "an input with 4 axes"),
        (ValueError, lambda x: nn.Muon([Tensor([1.0], requires_grad=True)]), "for matrices"),
        (ValueError, lambda x: nn.EMA([], decay=2.0), "below 1"),
        (TypeError, lambda x: nn.save_checkpoint("nowhere", x=3), "has no state_dict"),
    ],
)
def test_mistakes_are_named(error, call, part):
    with pytest.raises(error, match=None) as info:
        call(Tensor.zeros(2, 3, 4, 4))
    assert part in str(info.value)


def test_layers_compute_what_pytorch_does():
    torch = pytest.importorskip("torch")
    Tensor.manual_seed(2)
    attention = nn.MultiheadAttention(8, 2)
    other = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    with torch.no_grad():
        other.in_proj_weight.copy_(torch.tensor(np.concatenate([p.weight.numpy().T for p in parts])))
        other.out_proj.weight.copy_(torch.tensor(attention.out_proj.weight.numpy().T))
    q, k = np.random.default_rng(0).normal(size=(2, 2, 5, 8)).astype("f")
    padding = np.array([[False] * 4 + [True], [False] * 5])
    mask = np.triu(np.ones((5, 5), bool), 2)
    y, w = attention(Tensor(q), Tensor(k), Tensor(k), Tensor(padding), attn_mask=Tensor(mask))
    to = torch.tensor
    expected = other(to(q), to(k), to(k), to(padding), attn_mask=to(mask))
    np.testing.assert_allclose(y.numpy(), expected[0].detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(w.numpy(), expected[1].detach().numpy(), atol=1e-5)


SHAPES = [(3, 4), (4, 2)]
OPTIMIZERS = {
    "sgd": lambda p: nn.SGD(p, lr=0.1),
    "sgd momentum": lambda p: nn.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.05),
    "sgd nesterov": lambda p: nn.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: nn.Adam(p, lr=0.1, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    "adamw": lambda p: nn.AdamW(p, lr=0.1, weight_decay=0.1),
    "rmsprop": lambda p: nn.RMSprop(p, lr=0.1, alpha=0.9),
    "rmsprop all": lambda p: nn.RMSprop(
        p, lr=0.1, alpha=0.9, eps=1e-6, weight_decay=0.05, momentum=0.8, centered=True
    ),
    "groups": lambda p: nn.AdamW(
        [{"params": p[:1]}, {"params": p[1], "lr": 0.01, "weight_decay": 0.0}], lr=0.1, weight_decay=0.1
    ),
    "muon": lambda p: nn.Muon(p, lr=0.02),
    "muon plain": lambda p: nn.Muon(
        p, lr=0.02, momentum=0.8, nesterov=False, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
    ),
}


def tensors(lists, **options):
    return [Tensor(np.array(v).reshape(s), **options) for v, s in zip(lists, SHAPES)]


@pytest.mark.parametrize("name", RUNS["optimizers"])
def test_optimisers_step_as_in_pytorch(name):
    params = tensors(RUNS["start"], requires_grad=True)
    opt = OPTIMIZERS[name](params)
    for gradients in RUNS["gradients"]:
        for p, g in zip(params, tensors(gradients)):
            p.grad = g
        opt.step()
    for p, expected in zip(params, RUNS["optimizers"][name]):
        np.testing.assert_allclose(p.numpy().ravel(), expected, rtol=1e-12, atol=1e-12)


def test_groups_have_their_own_settings():
    a, b = (Tensor([1.0], requires_grad=True) for _ in "ab")
    opt = nn.SGD([{"params": [a], "lr": 0.5}, {"params": [b]}], lr=0.25)
    assert opt.lrs == [0.5, 0.25] and opt.lr == 0.5
    assert [[p is q for p, q in zip(g, [t])] for g, t in zip(opt.groups, (a, b))] == [[True], [True]]
    opt.lrs = [1.0, 2.0]
    assert opt.lrs == [1.0, 2.0]
    opt.lr = 3.0
    assert opt.lrs == [3.0, 3.0]
    with pytest.raises(ValueError, match="there are 2 groups"):
        opt.lrs = [1.0]
    with pytest.raises(ValueError, match="is -1"):
        opt.lrs = [1.0, -1.0]
    assert opt.lrs == [3.0, 3.0]
    for bad, error in (
        ([{"params": [a], "speed": 1}], TypeError),
        ([{"lr": 1.0}], ValueError),
        ([{"params": [a]}, {"params": [a]}], ValueError),
        ([{"params": [a]}, b], TypeError),
    ):
        with pytest.raises(error):
            nn.SGD(bad)


SCHEDULES = {
    "constant": lambda o: nn.ConstantLR(o, factor=0.5, total_iters=3),
    "step": lambda o: nn.StepLR(o, step_size=3, gamma=0.5),
    "multistep": lambda o: nn.MultiStepLR(o, milestones=[2, 5, 6], gamma=0.5),
    "exponential": lambda o: nn.ExponentialLR(o, gamma=0.9),
    "cosine": lambda o: nn.CosineAnnealingLR(o, T_max=8, eta_min=0.02),
    "linear": lambda o: nn.LinearLR(o, start_factor=0.25, end_factor=0.75, total_iters=4),
    "one_cycle": lambda o: nn.OneCycleLR(o, max_lr=1.5, total_steps=12),
    "one_cycle linear": lambda o: nn.OneCycleLR(
        o, 1.5, 12, pct_start=0.25, anneal_strategy="linear", div_factor=10.0, final_div_factor=100.0
    ),
}


@pytest.mark.parametrize("name", RUNS["schedules"])
def test_schedules_are_those_of_pytorch(name):
    opt = nn.SGD([Tensor([0.0], requires_grad=True)], lr=0.8)
    if name == "sequence":
        # The parts are made for the same optimiser, whose rate each of them sets.
        first = nn.LinearLR(opt, start_factor=0.1, total_iters=3)
        opt.lr = 0.8
        schedule = nn.SequentialLR(opt, [first, nn.StepLR(opt, step_size=4, gamma=0.5)], [3])
    else:
        schedule = SCHEDULES[name](opt)
    rates = []
    for _ in range(12):
        rates.append(opt.lr)
        schedule.step()
    np.testing.assert_allclose(rates, RUNS["schedules"][name], rtol=1e-12)


class Net(nn.Module):
    def __init__(self):
        self.body = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Dropout(0.3), nn.Linear(12, 4),
        )

    def forward(self, x):
        return self.body(x)


class Run:
    def __init__(self):
        self.net = Net()
        self.opt = nn.AdamW(self.net, lr=0.01)
        warm_up = nn.LinearLR(self.opt, start_factor=0.25, total_iters=3)
        self.opt.lr = 0.01
        cosine = nn.CosineAnnealingLR(self.opt, T_max=8)
        self.schedule = nn.SequentialLR(self.opt, [warm_up, cosine], [3])
        self.ema = nn.EMA(self.net, decay=0.9)
        self.done = 0

    def parts(self):
        return dict(model=self.net, optimizer=self.opt, schedule=self.schedule, ema=self.ema)

    def step(self):
        self.done += 1
        x = Tensor(np.random.default_rng(self.done).normal(size=(8, 1, 4, 4)).astype("f"))
        loss = nn.cross_entropy(self.net(x), [(k + self.done) % 4 for k in range(8)])
        self.opt.zero_grad()
        loss = loss.backward(self.opt.params)
        nn.clip_grad_norm_(self.opt.params, 1.0 / self.done)
        self.opt.step(loss)
        self.schedule.step()
        self.ema.update()
        return loss.item()

    def bits(self):
        states = (part.state_dict().items() for part in self.parts().values())
        return [(n, t.numpy().tobytes()) for state in states for n, t in state], Tensor.random_state()


def test_nothing_is_compiled_after_the_second_step():
    Tensor.manual_seed(4)
    run = Run()
    seen = []
    for _ in range(6):
        assert math.isfinite(run.step())
        s = kernelize.stats()
        seen.append((s.plan_misses, s.compiler_calls))
    assert len(set(seen[1:])) == 1, seen
    state = run.net.state_dict()
    assert "body.layers.1.running_mean" in state and any(state["body.layers.1.running_mean"].tolist())
    assert not any(n.endswith("running_mean") for n, _ in run.net.named_parameters())
    # In evaluation the same input gives the same output, and no statistics move.
    run.net.eval()
    x = Tensor.ones(2, 1, 4, 4)
    assert run.net(x).tolist() == run.net(x).tolist()
    assert run.net.state_dict()["body.layers.1.running_mean"].tolist() == state["body.layers.1.running_mean"].tolist()


def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(tmp_path):
    Tensor.manual_seed(4)
    whole = Run()
    losses = [whole.step() for _ in range(6)]
    Tensor.manual_seed(4)
    first = Run()
    assert [first.step() for _ in range(3)] == losses[:3]
    path = tmp_path / "run.safetensors"
    nn.save_checkpoint(path, **first.parts())
    Tensor.manual_seed(99)
    second = Run()
    second.step()
    nn.load_checkpoint(path, **second.parts())
    second.done = 3
    assert [second.step() for _ in range(3)] == losses[3:]
    assert second.bits() == whole.bits()


def test_a_checkpoint_that_does_not_fit_changes_nothing(tmp_path):
    path = tmp_path / "run.safetensors"
    layer = nn.Linear(2, 3)
    nn.save_checkpoint(path, model=layer, optimizer=nn.SGD(layer))
    other = nn.Linear(2, 3)
    before, state = other.weight.tolist(), Tensor.random_state()
    with pytest.raises(ValueError, match="steps"):
        nn.load_checkpoint(path, model=other, optimizer=nn.AdamW(other))
    assert other.weight.tolist() == before and Tensor.random_state() == state
    with pytest.raises(OSError):
        nn.load_checkpoint(tmp_path / "none", model=other)
    nn.Module.save(layer, path)
    with pytest.raises(ValueError, match="random.generator"):
        nn.load_checkpoint(path)


def test_a_module_with_layers_can_be_differentiated_and_copied():
    import copy

    net = nn.Sequential(nn.Conv1d(1, 2, 2), nn.BatchNorm1d(2))
    twin = copy.deepcopy(net)
    net(Tensor([[[1.0, 2.0, 4.0]]]))
    assert twin.layers[1].running_mean.tolist() == [0.0, 0.0]
    assert any(net.layers[1].running_mean.tolist())
    gradient = uopc.grad(lambda net: net(Tensor([[[1.0, 2.0, 4.0]]])).square().sum())(net)
    assert gradient.layers[0].weight.shape == (2, 1, 2)
