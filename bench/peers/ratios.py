"""Losses whose gradients are timed over the loss alone, in PyTorch and in JAX.

Each is written once, from parts that a framework names itself: `Torch` and `Jax` have the parts, in
the form that is fastest there.
"""

import math

import numpy as np

# name: what the loss is made of. They are those of `uopc bench`.
MLP = {"sizes": (784, 512, 256, 10), "batch": 128}
CNN = {
    "images": 64,
    "side": 28,
    "filters": ((32, 1, 5), (32, 32, 5), (64, 32, 3), (64, 64, 3)),
    "classes": 10,
}
BLOCK = {"layers": 6, "heads": 6, "width": 384, "length": 256, "batch": 4}
SOFTMAX, LAYER_NORM, CHAIN = (4096, 1024), (4096, 768), 3

NAMES = [f"grad_ratio_{what}" for what in ("block", "mlp", "cnn", "softmax", "layernorm")]


def inputs(name):
    """Arrays by name, the parameters first."""
    generator = np.random.default_rng(300 + NAMES.index(name))

    def normal(*shape, mean=0.0, deviation=1.0):
        values = generator.standard_normal(shape, dtype=np.float32)
        return (mean + deviation * values).astype(np.float32)

    def zeros(*shape):
        return np.zeros(shape, np.float32)

    def below(limit, *shape):
        return generator.integers(0, limit, shape).astype(np.int32)

    if name == "grad_ratio_mlp":
        arrays, sizes = {}, MLP["sizes"]
        for k, (n, m) in enumerate(zip(sizes, sizes[1:])):
            arrays |= {f"w{k}": normal(n, m, deviation=math.sqrt(2 / n)), f"b{k}": zeros(m)}
        return arrays | {"x": normal(MLP["batch"], sizes[0]), "y": below(sizes[-1], MLP["batch"])}
    if name == "grad_ratio_cnn":
        arrays, side = {}, CNN["side"]
        for k, (o, c, extent) in enumerate(CNN["filters"]):
            deviation = math.sqrt(2 / (c * extent * extent))
            arrays |= {f"cw{k}": normal(o, c, extent, extent, deviation=deviation), f"cb{k}": zeros(o)}
            side = (side + 1 - extent) // (2 if k % 2 else 1)
        features, classes = CNN["filters"][-1][0] * side * side, CNN["classes"]
        arrays |= {"lw": normal(features, classes, deviation=features**-0.5), "lb": zeros(classes)}
        images = (CNN["images"], 1, CNN["side"], CNN["side"])
        return arrays | {"x": normal(*images), "y": below(classes, CNN["images"])}
    if name == "grad_ratio_block":
        c, arrays = BLOCK["width"], {}
        ones, smaller = np.ones(c, np.float32), 0.02 / math.sqrt(2 * BLOCK["layers"])

        def linear(part, n, m, deviation):
            return {f"h0.{part}_w": normal(n, m, deviation=deviation), f"h0.{part}_b": zeros(m)}

        arrays |= {"h0.ln1_w": ones, "h0.ln1_b": zeros(c)}
        arrays |= linear("attn", c, 3 * c, 0.02) | linear("proj", c, c, smaller)
        arrays |= {"h0.ln2_w": ones, "h0.ln2_b": zeros(c)}
        arrays |= linear("fc", c, 4 * c, 0.02) | linear("fc2", 4 * c, c, smaller)
        shape = (BLOCK["batch"], BLOCK["length"], c)
        return arrays | {"x": normal(*shape), "c": normal(*shape)}
    if name == "grad_ratio_softmax":
        return {"x": normal(*SOFTMAX), "w": normal(*SOFTMAX)}
    row = LAYER_NORM[1:]
    return {
        "x": normal(*LAYER_NORM),
        "w": normal(*row, mean=1.0, deviation=0.1),
        "b": normal(*row, deviation=0.1),
        "c": normal(*LAYER_NORM),
    }


def outside(name):
    """The inputs by which no gradient is taken."""
    return {"grad_ratio_block": ["c"], "grad_ratio_softmax": ["w"], "grad_ratio_layernorm": ["c"]}.get(
        name, ["x", "y"]
    )


def loss(name, f):
    """The loss as a function of the parameters and of the other inputs, both by name."""

    def mlp(p, o):
        h, last = o["x"], len(MLP["sizes"]) - 2
        for k in range(last + 1):
            h = h @ p[f"w{k}"] + p[f"b{k}"]
            h = f.relu(h) if k < last else h
        return f.cross_entropy(h, o["y"])

    def cnn(p, o):
        h = o["x"]
        for k in range(len(CNN["filters"])):
            h = f.relu(f.conv2d(h, p[f"cw{k}"]) + p[f"cb{k}"].reshape(-1, 1, 1))
            h = f.max_pool2(h) if k % 2 else h
        return f.cross_entropy(h.reshape(h.shape[0], -1) @ p["lw"] + p["lb"], o["y"])

    def block(p, o):
        b, n, c, heads = BLOCK["batch"], BLOCK["length"], BLOCK["width"], BLOCK["heads"]

        def norm(h, part):
            return f.layer_norm(h, p[f"h0.{part}_w"], p[f"h0.{part}_b"])

        def linear(h, part):
            return h @ p[f"h0.{part}_w"] + p[f"h0.{part}_b"]

        h, t = p["x"], linear(norm(p["x"], "ln1"), "attn")
        q, k, v = (f.heads(t[..., i * c : (i + 1) * c].reshape(b, n, heads, -1)) for i in range(3))
        h = h + linear(f.heads(f.attention(q, k, v)).reshape(b, n, c), "proj")
        h = h + linear(f.gelu(linear(norm(h, "ln2"), "fc")), "fc2")
        return (h * o["c"]).sum()

    def softmax(p, o):
        y = p["x"]
        for _ in range(CHAIN):
            y = f.softmax(y)
        return (y * o["w"]).sum()

    def layer_norm(p, o):
        y = p["x"]
        for _ in range(CHAIN):
            y = f.layer_norm(y, p["w"], p["b"])
        return (y * o["c"]).sum()

    return dict(zip(NAMES, (block, mlp, cnn, softmax, layer_norm)))[name]


class Torch:
    """The parts, and the two steps that are timed."""

    def __init__(self, compiled):
        import torch
        import torch.nn.functional as F

        self.torch, self.compiled, self.version = torch, compiled, torch.__version__
        self.relu, self.conv2d, self.gelu = F.relu, F.conv2d, F.gelu
        self.max_pool2 = lambda x: F.max_pool2d(x, 2)
        self.softmax = lambda x: F.softmax(x, -1)
        self.layer_norm = lambda x, w, b: F.layer_norm(x, w.shape, w, b)
        self.heads = lambda x: x.transpose(1, 2)
        self.attention = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
        self.cross_entropy = F.cross_entropy

    def steps(self, name, arrays):
        torch = self.torch
        tensors = {
            key: torch.from_numpy(a).long() if a.dtype == np.int32 else torch.from_numpy(a)
            for key, a in arrays.items()
        }
        others = {key: tensors.pop(key) for key in outside(name)}
        for tensor in tensors.values():
            tensor.requires_grad_()
        value = loss(name, self)
        value = torch.compile(value, dynamic=False) if self.compiled else value

        def forward():
            with torch.no_grad():
                return value(tensors, others)

        def both():
            result = value(tensors, others)
            torch.autograd.grad(result, list(tensors.values()))
            return result

        return forward, both

    def wait(self, _):
        pass


class Jax:
    """The parts, and the two steps that are timed."""

    def __init__(self):
        import jax
        import jax.numpy as jnp
        from jax import lax, nn

        self.jax, self.version, self.wait = jax, jax.__version__, jax.block_until_ready
        self.relu, self.gelu = nn.relu, lambda x: nn.gelu(x, approximate=False)
        self.conv2d = lambda x, w: lax.conv(x, w, (1, 1), "VALID")
        # Over an axis of windows instead of reduce_window, whose gradient is slow.
        windows = lambda x: x.reshape(*x.shape[:2], x.shape[2] // 2, 2, x.shape[3] // 2, 2)
        self.max_pool2 = lambda x: windows(x).max((3, 5))
        self.softmax = lambda x: nn.softmax(x, -1)
        self.heads = lambda x: jnp.swapaxes(x, 1, 2)

        def layer_norm(x, w, b):
            centred = x - x.mean(-1, keepdims=True)
            return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w + b

        def attention(q, k, v):
            n, size = q.shape[-2:]
            scores = q @ jnp.swapaxes(k, -1, -2) / math.sqrt(size)
            return nn.softmax(jnp.where(np.tril(np.ones((n, n), bool)), scores, -jnp.inf), -1) @ v

        def cross_entropy(logits, labels):
            logs = nn.log_softmax(logits, -1)
            return -jnp.take_along_axis(logs, labels[:, None], -1).mean()

        self.layer_norm, self.attention, self.cross_entropy = layer_norm, attention, cross_entropy

    def steps(self, name, arrays):
        jax = self.jax
        arrays = {key: jax.numpy.asarray(a) for key, a in arrays.items()}
        others = {key: arrays.pop(key) for key in outside(name)}
        value = loss(name, self)
        forward, both = jax.jit(value), jax.jit(jax.value_and_grad(value))
        return lambda: forward(arrays, others), lambda: both(arrays, others)


def framework(name):
    """The framework of that name."""
    if name == "jax":
        return Jax()
    if name in ("torch", "torch_compile"):
        return Torch(name == "torch_compile")
    raise SystemExit(f"{name} has no script for gradients over the loss alone")


def measure(name, arrays, parts, timing, budget):
    """Both times, the gradients' twice, and the loss."""
    forward, both = parts.steps(name, arrays)
    last = [None]

    def time(step):
        def kept():
            last[0] = step()

        return timing.measure(kept, lambda: parts.wait(last[0]), budget)

    first, alone, second = time(both), time(forward), time(both)
    result = min(first, second, key=lambda t: t["median_s"])
    check = last[0][0] if isinstance(last[0], tuple) else last[0]
    return {
        "forward_ms": round(alone["median_s"] * 1e3, 4),
        "grad_ms": round(result["median_s"] * 1e3, 4),
        "ratio": round(result["median_s"] / alone["median_s"], 3),
        "noisy": result["noisy"] or alone["noisy"],
        "check": float(check),
    }
