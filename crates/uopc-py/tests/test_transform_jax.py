"""Values, gradients, tangents, second derivatives and nested transformations against JAX in f64.

The fixture, written by fixtures/transforms_jax.py, is walked: what it names has to be here, under
the same name and written for uopc.
"""

import json
import pathlib

import numpy as np
import pytest

import uopc
from uopc import Tensor, grad, hessian, hvp, jacfwd, jacobian, jacrev, jvp, value_and_grad, vjp, vmap

FIXTURE = pathlib.Path(__file__).parent / "fixtures" / "transforms_jax.jsonl"
RECORDS = [json.loads(line) for line in FIXTURE.read_text().splitlines()]
GIVEN_FUNCTIONS = {r["function"]: r for r in RECORDS if "function" in r}
GIVEN_PROGRAMS = {r["program"]: r for r in RECORDS if "program" in r}

# Relative to the largest element of each array. Sums and products are rounded in other orders than
# JAX's; what is compared has condition numbers of up to some thousands.
TOLERANCE = 1e-10


def t(values):
    return Tensor(np.asarray(values, np.float64))


def mask(values):
    return Tensor(np.asarray(values, np.bool_))


def length(x, axis=None, keepdim=False):
    return (x * x).sum(axis, keepdim=keepdim).sqrt()


def logsumexp(x, axis):
    m = x.detach().max(axis, keepdim=True)
    return (x - m).exp().sum(axis).log() + m.squeeze(axis)


def trace(a):
    return (a * t(np.eye(a.shape[0]))).sum()


# ---- functions ----


def temperature_softmax(x):
    return (x / (1.5 + x.sin().mean())).softmax(-1)


def entropy(x):
    p = x.softmax(1)
    return -(p * p.log()).sum(1)


def layer_norm(x, scale, shift):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * scale + shift


def batch_norm(x):
    centred = x - x.mean(0)
    return centred / (centred.square().mean(0) + 1e-5).sqrt()


def guarded_lengths(x):
    x = x * t([[0.0], [1.0], [2.0]])
    s = (x * x).sum(1)
    return (s == 0.0).where(0.0, s.sqrt())


def small_inverse(a):
    a = a + 3 * t(np.eye(2))
    det = a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
    return Tensor.stack([a[1, 1], -a[0, 1], -a[1, 0], a[0, 0]]).reshape(2, 2) / det


def newton_schulz(a):
    a = a @ a.T + 2 * t(np.eye(3))
    x = a.T / (a * a).sum()
    for _ in range(4):
        x = 2 * x - x @ a @ x
    return x


def power_iteration(a, x):
    for _ in range(3):
        x = a @ x
        x = x / (x @ x + 1).sqrt()
    return x


def attention(x, wq, wk, wv):
    q, k, v = x @ wq, x @ wk, x @ wv
    return (q @ k.T / 2).softmax(-1) @ v


def causal_attention(q, k, v):
    scores = mask(np.tril(np.ones((5, 5)))).where(q @ k.T / 2, -np.inf)
    return scores.softmax(-1) @ v


def recurrent(xs, wx, wh):
    h = Tensor.zeros(4, dtype="f64")
    for x in xs:
        h = (x @ wx + h @ wh).tanh()
    return h


def lstm_step(x, wx, wh, h, c):
    gates = x @ wx + h @ wh
    i, f, g, o = (gates[:, 2 * k : 2 * k + 2] for k in range(4))
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return Tensor.cat([o.sigmoid() * c.tanh(), c])


def convolution_1d(x, w):
    return sum(x[k : k + 5] * w[k] for k in range(3))


def convolution_2d(x, w):
    x = x.pad(((1, 1), (1, 1)))
    return sum(x[i : i + 5, j : j + 5] * w[i, j] for i in range(3) for j in range(3))


def convolution_with_channels(x, w):
    # Windows of 2x2 that do not overlap are a movement, and the rest is a product.
    windows = x.reshape(2, 2, 2, 2, 2).permute(1, 3, 0, 2, 4).reshape(4, 8)
    return (windows @ w.reshape(3, 8).T).relu().T.reshape(3, 2, 2)


def lennard_jones(x):
    x = x + 2 * t(np.arange(12).reshape(4, 3))
    total = 0.0
    for i in range(4):
        for j in range(i):
            r2 = (x[i] - x[j]).square().sum() / 25
            total = total + r2**-6 - r2**-3
    return total


def gaussian(x, mean, log_scale):
    z = (x - mean) / log_scale.exp()
    return -0.5 * (z @ z) - 3 * log_scale - 1.5 * np.log(2 * np.pi)


def mixture(x, logits, means, log_scales):
    z = (x.unsqueeze(1) - means) * (-log_scales).exp()
    return logsumexp(logits.log_softmax() - 0.5 * z * z - log_scales, 1).sum()


def kl_divergence(p, q):
    p, q = p.log_softmax(), q.log_softmax()
    return (p.exp() * (p - q)).sum()


def huber(x, y):
    r = x - y
    return (r.abs() < 0.5).where(0.5 * r * r, 0.5 * (r.abs() - 0.25)).mean()


def contrastive(x, y):
    x, y = x / length(x, 1, True), y / length(y, 1, True)
    return -trace((x @ y.T / 0.5).log_softmax(1)) / 4


def focal_loss(x):
    p = x.sigmoid()
    return -((1 - p).square() * p.log()).mean()


def pendulum(state, k):
    for _ in range(6):
        angle, speed = state[0], state[1]
        speed = speed - 0.1 * (4 + k) * angle.sin()
        state = Tensor.stack([angle + 0.1 * speed, speed])
    return state


def ridge(w, x, penalty):
    return ((w * x).sum() - 1).square() + penalty.exp() * (w @ w)


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1].square()).square() + (1 - x[:-1]).square()).sum()


def himmelblau(x):
    return (x[0].square() + x[1] - 11).square() + (x[0] + x[1].square() - 7).square()


def differences(x):
    for _ in range(2):
        x = x[1:] - x[:-1]
    return x.square()


FUNCTIONS = {
    "cube": lambda x: x**3,
    "exp_": Tensor.exp,
    "exp2_": Tensor.exp2,
    "sin_": Tensor.sin,
    "cos_": Tensor.cos,
    "tanh_": Tensor.tanh,
    "sigmoid_": Tensor.sigmoid,
    "silu_": Tensor.silu,
    "softplus_": Tensor.softplus,
    "gelu_": Tensor.gelu,
    "relu_": Tensor.relu,
    "leaky_relu": lambda x: (x < 0).where(0.1 * x, x),
    "elu": lambda x: (x > 0).where(x, x.exp() - 1),
    "abs_": Tensor.abs,
    "square_": Tensor.square,
    "clip": lambda x: x.maximum(-0.7).minimum(0.9),
    "mish": lambda x: x * x.softplus().tanh(),
    "hard_tanh_of_sin": lambda x: (2 * (3 * x).sin()).maximum(-1.0).minimum(1.0),
    "swish_of_square": lambda x: (x * x - 0.3).silu(),
    "bump": lambda x: (-x * x).exp() * (5 * x).cos(),
    "rational": lambda x: (x**2 + 1) / (x**4 + 2),
    # Without the second where that JAX needs.
    "guarded_sqrt": lambda x: (x > 0).where(x.sqrt(), 0.0),
    "guarded_log": lambda x: (x > 0).where(x.log(), x),
    "guarded_quotient": lambda x: (x < 0).where(0.0, x.sin() / x),
    "log_": Tensor.log,
    "log2_": Tensor.log2,
    "sqrt_": Tensor.sqrt,
    "reciprocal_": Tensor.reciprocal,
    "root_of_power": lambda x: x**1.7 + x**-0.5,
    "log_of_log": lambda x: (1 + (1 + x).log()).log(),
    "products_and_sums": lambda x, y: x * y + x - 2 * y,
    "quotients": lambda x, y: x / y - y / (x + 1),
    "powers": lambda x, y: (x.log() * y).exp(),
    "maxima_and_minima": lambda x, y: x.maximum(y) * x.minimum(2 * y),
    "chosen": lambda x, y: (x < y).where(x * x * y, x.sin() + y),
    "broadcast": lambda x, y, z: (x + y) * z * x,
    "sums_by_axis": lambda x: (x * x).sum(0),
    "mean_of_all": lambda x: x.exp().mean(),
    "variance": lambda x: (x - x.mean(1, keepdim=True)).square().mean(1),
    "standard_deviation": lambda x: ((x - x.mean(1, keepdim=True)).square().sum(1) / 3).sqrt(),
    "maxima": lambda x: (x * x * x).max(1),
    "minima": lambda x: x.sin().min(0),
    "range_of_all": lambda x: x.max() - x.min(),
    "products_by_axis": lambda x: x.prod(1),
    "product_with_a_zero": lambda x: (x - x[1, 2] * t(np.eye(3, 4)[[2, 0, 1]])).prod(1),
    "logsumexp": lambda x: logsumexp(3 * x, 1),
    "softmax": lambda x: (3 * x).softmax(1),
    "log_softmax": lambda x: (3 * x).log_softmax(0),
    "temperature_softmax": temperature_softmax,
    "entropy": entropy,
    "cross_entropy": lambda x: uopc.nn.cross_entropy(x, Tensor([1, 3, 0])),
    "layer_norm": layer_norm,
    "rms_norm": lambda x, scale: x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * scale,
    "batch_norm": batch_norm,
    "lengths": lambda x: length(x, 1),
    "unit_vectors": lambda x: x / length(x, 1, True),
    "guarded_lengths": guarded_lengths,
    "cosine_similarity": lambda x, y: (x * y).sum(1) / (length(x, 1) * length(y, 1)),
    "matrix_product": lambda a, b: a @ b,
    "matrix_times_vector": lambda a, x: (a @ x).tanh(),
    "chain_of_products": lambda a, b, c: a @ b @ c @ a.T,
    "batched_product": lambda a, b: a @ b,
    "quadratic_form": lambda a, x: x @ a @ x / (x @ x),
    "trace_of_powers": lambda a: trace(a @ a @ a),
    "outer_product": lambda x, y: x.sin().unsqueeze(1) * (y * y),
    "determinant": lambda a: a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0],
    "small_inverse": small_inverse,
    "newton_schulz": newton_schulz,
    "power_iteration": power_iteration,
    "attention": attention,
    "causal_attention": causal_attention,
    "mlp": lambda x, w1, b1, w2, b2: (x @ w1 + b1).tanh() @ w2 + b2,
    "recurrent": recurrent,
    "lstm_step": lstm_step,
    "transposed": lambda x: x.sin().T.reshape(2, 6)[:, 1:5] * x.reshape(2, 6)[:, 2:],
    "padded": lambda x: x.pad(((1, 0), (2, 1)))[:2, 1:] * x.sum(),
    "flipped": lambda x: x[::-1] * x[:, ::-1],
    "joined": lambda x, y: Tensor.cat([x, y * y, x * y], 1) * Tensor.stack([x, y]).sum(),
    "rolled": lambda x: Tensor.cat([x[3:], x[:3]]) * x - Tensor.cat([x[1:], x[:1]]),
    "differences": differences,
    "cumulative_sum": lambda x: (-(t(np.tril(np.ones((6, 6)))) @ (x * x))).exp(),
    "cumulative_product": lambda x: mask(np.tril(np.ones((6, 6)))).where(1 + 0.5 * x, 1.0).prod(1),
    "gathered": lambda x: x.take(Tensor([4, 0, 0, 2]), 0) ** 2,
    "picked": lambda x: Tensor.stack([x[1, 2], x[4, 0], x[1, 2]]) * x[:3, 1],
    "embedded": lambda table, w: (table.take(Tensor([[1, 5, 1], [0, 1, 2]]), 0).mean(1) @ w).tanh(),
    "convolution_1d": convolution_1d,
    "convolution_2d": convolution_2d,
    "convolution_with_channels": convolution_with_channels,
    "max_pooling": lambda x: x.reshape(2, 2, 2, 3).max((1, 3)),
    "mean_pooling": lambda x: (x * x).reshape(2, 2, 3, 2).mean((1, 3)),
    "upper_triangle": lambda x: (x * t(np.triu(np.ones((4, 4)), 1))) @ (x * t(np.tril(np.ones((4, 4))))),
    "rosenbrock": rosenbrock,
    "himmelblau": himmelblau,
    "rastrigin": lambda x: (x * x - 10 * (2 * np.pi * x).cos() + 10).sum(),
    "lennard_jones": lennard_jones,
    "gaussian": gaussian,
    "mixture": mixture,
    "kl_divergence": kl_divergence,
    "huber": huber,
    "contrastive": contrastive,
    "focal_loss": focal_loss,
    "pendulum": pendulum,
    "ridge": ridge,
}


# ---- programs ----


def loss(w1, w2, x, y):
    return ((x @ w1).tanh() @ w2 - y).square().sum()


def hessian_by_two(x, y):
    f = lambda x, y: (x.sin().unsqueeze(1) * y**2).sum() + x.prod() * y[0]
    blocks = hessian(f, (0, 1))(x, y)
    return [blocks[i][j] for i in range(2) for j in range(2)]


def derivatives_to_order_five(x):
    f, found = lambda x: x.sin() * (x / 2).exp(), []
    for _ in range(6):
        found.append(f(x))
        f = grad(f)
    return found


def gradient_penalty(x):
    f = lambda x: (x.tanh() * x**2).sum()
    return value_and_grad(lambda x: length(grad(f)(x)))(x)


def gradient_of_a_batch(w1, w2, xs, ys):
    whole = lambda w1, w2: vmap(loss, (None, None, 0, 0))(w1, w2, xs, ys).mean()
    return grad(whole, (0, 1))(w1, w2)


def vmap_in_axes(a, b):
    rows = vmap(vmap(lambda x, y: (x * y).sum(), (None, 1)), (0, None), out_axes=1)(a[0], b)
    return rows, vmap(lambda a, b: a @ b, (2, None), 1)(a, b[:3])


def vmap_out_axes(a, b):
    return vmap(lambda x, y: (x * y, x.unsqueeze(1) * x * y), (1, 0), (1, 2))(a, b)


def nested_vmap(a, b):
    return vmap(lambda x: vmap(lambda y: length(x - y))(b))(a)


def gradient_of_nested_vmap(a, b):
    kernel = lambda x, y: (-(x - y).square().sum()).exp()
    gram = lambda a, b: vmap(lambda x: vmap(lambda y: kernel(x, y))(b))(a)
    return grad(lambda a, b: gram(a, b).square().sum(), (0, 1))(a, b)


def vmap_of_jacobians(xs):
    f = lambda x: Tensor.stack([x[0] * x[1], x[2].sin(), (x * x).sum()])
    return vmap(jacfwd(f))(xs), vmap(jacrev(f))(xs)


def jacobians_of_jacobians(x):
    f = lambda x: x.sin() * x.sum()
    return jacfwd(jacrev(f))(x), jacrev(jacfwd(f))(x)


def reverse_over_forward(x, v):
    return grad(lambda x: jvp(lambda x: (x.exp() * x).sum(), (x,), (v,))[1])(x)


def forward_over_forward(x, v):
    slope = lambda x: jvp(lambda x: x.tanh() * x.sum(), (x,), (v,))[1]
    return jvp(slope, (x,), (v,))


def pulled_back(x, g):
    y, pull = vjp(lambda x: (Tensor.stack([x.prod(), x[0]]), x.exp()), x)
    return y[0], y[1], pull((g, x))[0]


def laplacian(x):
    f = lambda x: (-x * x).exp().sum() * x.prod()
    second = lambda v: jvp(lambda x: jvp(f, (x,), (v,))[1], (x,), (v,))[1]
    return vmap(second)(t(np.eye(3))).sum()


def newton_step(x):
    h, g = hessian(himmelblau)(x) + 50 * t(np.eye(2)), grad(himmelblau)(x)
    det = h[0, 0] * h[1, 1] - h[0, 1] * h[1, 0]
    inverse = Tensor.stack([h[1, 1], -h[0, 1], -h[1, 0], h[0, 0]]).reshape(2, 2) / det
    return x - inverse @ g


def unrolled_descent(w, x):
    inner = lambda w: ridge(w, x, t(-1.0))

    def trained(rate):
        v = w
        for _ in range(4):
            v = v - rate * grad(inner)(v)
        return inner(v)

    return value_and_grad(trained)(t(0.05))


def gradients_of_a_tree(x):
    f = lambda p: (p["a"] ** 2 * p["b"][0]).sum() + p["b"][1][0]
    g = grad(f)({"b": [x, x * 2], "a": x.sin()})
    return g["a"], g["b"][0], g["b"][1]


def perturbation_confusion(x):
    inner = lambda x: x * grad(lambda y: x * y + y**2)(t(2.0))
    return grad(inner)(x), grad(lambda x: x * jacfwd(lambda y: x + y)(t(1.0)))(x)


def vmap_of_gathers(xs, table):
    rows = Tensor([[0, 5], [1, 1], [4, 2], [3, 0]])
    one = lambda x, r: grad(lambda t: (t.take(r, 0) * x).sum().square())(table)
    return vmap(one)(xs, rows)


PROGRAMS = {
    "jacfwd_softmax": jacfwd(lambda x: x.softmax(-1)),
    "jacrev_softmax": jacrev(lambda x: x.softmax(-1)),
    "jacobian_of_tanh": jacobian(lambda x: x.tanh() * x),
    "jacobian_by_matrices": jacobian(lambda a, b: (a @ b).sin(), (0, 1)),
    "hessian_of_rosenbrock": hessian(rosenbrock),
    "hessian_of_logsumexp": hessian(lambda x: logsumexp(x, 0)),
    "hessian_by_two": hessian_by_two,
    "hessian_of_a_vector": hessian(lambda x: Tensor.stack([x.prod(), (x**3).sum()])),
    "derivatives_to_order_five": derivatives_to_order_five,
    "third_derivatives": jacfwd(hessian(lambda x: x.sin().prod() + (x**4).sum())),
    "gradient_penalty": gradient_penalty,
    "per_example_gradients": vmap(grad(loss, (0, 1)), (None, None, 0, 0)),
    "gradient_of_a_batch": gradient_of_a_batch,
    "hvp_of_a_net": lambda w1, w2, x, y, v1, v2: hvp(
        lambda w1, w2: loss(w1, w2, x, y), (w1, w2), (v1, v2)
    ),
    "per_example_hvps": vmap(lambda x, v: hvp(lambda x: (x.exp() * x[::-1]).sum(), (x,), (v,))),
    "vmap_in_axes": vmap_in_axes,
    "vmap_out_axes": vmap_out_axes,
    "nested_vmap": nested_vmap,
    "gradient_of_nested_vmap": gradient_of_nested_vmap,
    "vmap_of_hessians": vmap(hessian(lambda x: x.prod() + x.exp().sum())),
    "vmap_of_jacobians": vmap_of_jacobians,
    "jacobians_of_jacobians": jacobians_of_jacobians,
    "reverse_over_forward": reverse_over_forward,
    "forward_over_forward": forward_over_forward,
    "pulled_back": pulled_back,
    "divergence": lambda x: trace(jacfwd(lambda x: x.sin() * Tensor.cat([x[2:], x[:2]]))(x)),
    "laplacian": laplacian,
    "newton_step": newton_step,
    "unrolled_descent": unrolled_descent,
    "gradients_of_a_tree": gradients_of_a_tree,
    "stopped": grad(lambda x: (x**2 * uopc.stop_gradient(x**3)).sum()),
    "perturbation_confusion": perturbation_confusion,
    "vmap_of_gathers": vmap_of_gathers,
    "gradients_of_rows": vmap(grad(lambda r: logsumexp(r, 0) * r[0])),
    "jacobian_of_a_gradient": jacrev(grad(lambda a: (a @ a.T).tanh().sum())),
}


# ---- comparisons ----


def arrays(given):
    return [np.array(a["values"], np.float64).reshape(a["shape"]) for a in given]


def check(what, got, given):
    leaves = uopc.tree_leaves(got)
    Tensor.realize_all(leaves)
    expected = arrays(given)
    assert len(leaves) == len(expected), what
    for k, (y, e) in enumerate(zip(leaves, expected)):
        y = y.numpy()
        assert y.dtype == np.float64 and y.shape == e.shape, f"{what} {k}: {y.dtype} {y.shape} {e.shape}"
        assert np.isfinite(y).all(), f"{what} {k}: {y}"
        error = np.abs(y - e).max(initial=0.0)
        size = max(np.abs(e).max(initial=0.0), 1e-3)
        assert error <= TOLERANCE * size, f"{what} {k}: off by {error}, of {size}\n{y}\n{e}"


def test_the_fixture_is_large_enough():
    assert len(GIVEN_FUNCTIONS) >= 60 and len(GIVEN_PROGRAMS) >= 30


def test_nothing_here_is_missing_in_the_fixture():
    assert set(FUNCTIONS) == set(GIVEN_FUNCTIONS) and set(PROGRAMS) == set(GIVEN_PROGRAMS)


@pytest.mark.parametrize("name", GIVEN_FUNCTIONS)
def test_function(name):
    f, record = FUNCTIONS[name], GIVEN_FUNCTIONS[name]
    args = tuple(map(t, arrays(record["args"])))
    along = tuple(map(t, arrays(record["tangents"])))

    def weighted(*args):
        y = f(*args)
        return (y * t(np.cos(np.arange(y.numel()))).reshape(*y.shape)).sum()

    gradient = grad(weighted, tuple(range(len(args))))
    value, tangent = jvp(f, args, along)
    second = jvp(gradient, args, along)[1]
    check("value", value, record["value"])
    check("gradient", gradient(*args), record["gradient"])
    check("tangent", tangent, record["tangent"])
    check("second derivatives", second, record["hvp"])
    product = hvp(weighted, args, along)
    check("hvp", product, record["hvp"])


@pytest.mark.parametrize("name", GIVEN_PROGRAMS)
def test_program(name):
    record = GIVEN_PROGRAMS[name]
    check(name, PROGRAMS[name](*map(t, arrays(record["args"]))), record["results"])
