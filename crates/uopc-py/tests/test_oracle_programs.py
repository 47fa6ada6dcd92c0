"""Random programs of all kinds of functions, run by the library as a few fused kernels and by NumPy
step by step.

Integer programs must agree exactly. Programs of f64 are compared to 1e-9 of the largest element: a
dozen steps whose values stay near 1 err by far less, and a wrong element by far more.
"""

import hypothesis
import numpy as np
from hypothesis import strategies as st

import support
from support import run, same
from uopc import Tensor

SHAPES = [(4,), (3, 4), (2, 3), (2, 3, 4), (3, 1), (1,), ()]


class Program:
    """Values in pairs, an array and the tensor that must be equal to it."""

    def __init__(self, draw, dtype, leaves, smooth):
        self.draw = draw
        self.is_float = dtype == "f64"
        self.smooth = smooth
        self.pool = [(x, Tensor(x, requires_grad=smooth)) for x in leaves]

    def pick(self, wanted=lambda x: True):
        found = [pair for pair in self.pool if wanted(pair[0])]
        return found[self.draw(st.integers(0, len(found) - 1))] if found else (None, None)

    def add(self, x, t):
        x = np.asarray(x)
        assert t.shape == x.shape
        self.pool.append((x, t))

    def step(self):
        kinds = ["unary", "binary", "binary", "reduce", "move", "part", "set", "matmul"]
        if not self.smooth:
            kinds.append("choice")
        getattr(self, self.draw(st.sampled_from(kinds)))()

    def unary(self):
        x, t = self.pick()
        table = [(np.negative, "neg")]
        if not self.smooth:
            table += [(np.abs, "abs"), (lambda a: np.maximum(a, 0), "relu")]
        if self.is_float:
            table += [(np.sin, "sin"), (np.tanh, "tanh"), (lambda a: 1 / (1 + np.exp(-a)), "sigmoid")]
        else:
            table += [(np.invert, "bitwise_not"), (lambda a: a * a, "square")]
        function, name = self.draw(st.sampled_from(table))
        self.add(function(x), getattr(t, name)())

    def partner(self, x, t):
        """A value that broadcasts with another one to a small shape, or that one itself."""

        def fits(y):
            try:
                return np.broadcast(x, y).size <= 64
            except ValueError:
                return False

        y, u = self.pick(fits)
        return (x, t) if y is None else (y, u)

    def binary(self):
        x, t = self.pick()
        y, u = self.partner(x, t)
        names = ["add", "sub", "mul"] + ([] if self.smooth else ["maximum", "minimum"])
        name = self.draw(st.sampled_from(names))
        numpy_names = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
        function = numpy_names.get(name) or getattr(np, name)
        result, tensor = function(x, y), getattr(t, name)(u)
        if self.is_float and name in ("add", "sub", "mul"):
            # Keeps the values near 1.
            result, tensor = result * 0.5, tensor * 0.5
        self.add(result, tensor)

    def choice(self):
        x, t = self.pick()
        y, u = self.partner(x, t)
        self.add(np.where(x < y, x, 3), (t < u).where(t, 3))

    def reduce(self):
        x, t = self.pick(lambda x: x.ndim)
        axis = self.draw(st.integers(-x.ndim, x.ndim - 1))
        keep = self.draw(st.booleans())
        names = ["mean"] if self.is_float else ["sum", "prod"]
        names += [] if self.smooth else ["max", "min"]
        name = self.draw(st.sampled_from(names))
        more = {"dtype": x.dtype} if name in ("sum", "prod") else {}
        result = getattr(np, name)(x, axis=axis, keepdims=keep, **more)
        self.add(result, getattr(t, name)(axis, keep))

    def move(self):
        x, t = self.pick()
        kind = self.draw(st.sampled_from(["permute", "flip", "pad", "flatten", "unsqueeze", "cat"]))
        if kind == "permute":
            order = self.draw(st.permutations(range(x.ndim)))
            self.add(x.transpose(order), t.permute(tuple(order)))
        elif kind == "flip" and x.ndim:
            axis = self.draw(st.integers(0, x.ndim - 1))
            self.add(np.flip(x, axis), t.flip(axis))
        elif kind == "pad" and x.size <= 24:
            around = [(self.draw(st.integers(0, 1)), self.draw(st.integers(0, 1))) for _ in x.shape]
            self.add(np.pad(x, around) if around else x, t.pad(around))
        elif kind == "flatten":
            self.add(x.ravel(), t.flatten())
        elif kind == "unsqueeze" and x.ndim < 3:
            axis = self.draw(st.integers(0, x.ndim))
            self.add(np.expand_dims(x, axis), t.unsqueeze(axis))
        elif kind == "cat" and x.ndim and x.size <= 24:
            axis = self.draw(st.integers(0, x.ndim - 1))
            y, u = self.pick(lambda y: y.shape == x.shape)
            self.add(np.concatenate([x, y], axis), Tensor.cat([t, u], axis))

    def key(self, shape):
        key = []
        for n in shape[: self.draw(st.integers(0, len(shape)))]:
            step = self.draw(st.sampled_from([1, 2, -1, -2]))
            if self.draw(st.booleans()):
                key.append(slice(None, None, step))
            else:
                key.append(self.draw(st.integers(-n, n - 1)))
        return tuple(key)

    def part(self):
        x, t = self.pick(lambda x: x.ndim and x.size)
        key = self.key(x.shape)
        self.add(x[key], t[key])

    def set(self):
        x, t = self.pick(lambda x: x.ndim and x.size)
        key = self.key(x.shape)
        y = x.copy()
        shape = y[key].shape
        value, u = self.pick(lambda v: v.shape == shape)
        if value is None:
            value, u = 2, 2
        y[key] = value
        if self.draw(st.booleans()):
            self.add(y, t.with_slice(key, u))
        else:
            new = t + 0
            new[key] = u
            self.add(y, new)

    def matmul(self):
        x, t = self.pick(lambda x: x.ndim == 2)
        if x is None:
            return
        y, u = self.pick(lambda y: y.ndim in (1, 2) and y.shape[0] == x.shape[1])
        if y is None:
            y, u = x.T, t.T
        scale = 1 / max(x.shape[1], 1) if self.is_float else 1
        self.add(np.matmul(x, y) * x.dtype.type(scale), (t @ u) * scale)


def build(draw, dtype, smooth=False, step=0.0):
    """A program's values. Those of its leaves are moved by a step along a fixed direction."""
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=2, max_size=3))
    if not any(shapes):
        shapes = [(3, 4), *shapes]
    arrays = [support.moderate(dtype, s, seed=k) for k, s in enumerate(shapes)]
    if smooth:
        arrays = [x + step * direction(x, k) for k, x in enumerate(arrays)]
    program = Program(draw, dtype, arrays, smooth)
    for _ in range(draw(st.integers(3, 10))):
        program.step()
    return program.pool


def direction(x, k):
    return np.random.default_rng(100 + k).uniform(-1, 1, x.shape)


class Recorder:
    """Draws and remembers what was drawn, to build the same program again."""

    def __init__(self, draw):
        self.source, self.drawn = draw, []

    def draw(self, strategy):
        self.drawn.append(self.source(strategy))
        return self.drawn[-1]

    def again(self, *arguments, **more):
        rest = iter(self.drawn)
        return build(lambda _: next(rest), *arguments, **more)


@support.examples(25)
@hypothesis.given(st.data())
def test_programs_of_integers(data):
    pool = build(data.draw, "i32")
    for (x, _), got in zip(pool, run(*(t for _, t in pool))):
        same(got, x)


@support.examples(25)
@hypothesis.given(st.data())
def test_programs_of_floats_and_that_fusion_changes_no_bit(data):
    recorder = Recorder(data.draw)
    pool = build(recorder.draw, "f64")
    together = run(*(t for _, t in pool))
    for (x, _), got in zip(pool, together):
        assert got.dtype == x.dtype and got.shape == x.shape
        bound = 1e-9 * max(np.abs(x).max(initial=0), 1)
        assert np.abs(got - x).max(initial=0) <= bound, f"{got}\n{x}"
    # The same program again, of which only the last value is computed.
    same(recorder.again("f64")[-1][1].numpy(), together[-1])


@support.examples(20)
@hypothesis.given(st.data())
def test_gradients_of_programs(data):
    """Along a direction, against central differences of the NumPy side in f64: with h = 1e-5 they
    err by about 1e-10 of a loss near 1 with slopes near 1, and 1e-6 is allowed."""
    recorder = Recorder(data.draw)
    pool = build(recorder.draw, "f64", smooth=True)
    # Every value counts, in every element differently.
    weights = [np.random.default_rng(k).uniform(-1, 1, x.shape) for k, (x, _) in enumerate(pool)]
    loss = sum((t * Tensor(w)).sum() for (_, t), w in zip(pool, weights))
    params = [t for _, t in pool if t.is_leaf]
    loss.backward(params)
    slopes = run(*(t.grad for t in params))
    slope = sum(np.sum(g * direction(g, k)) for k, g in enumerate(slopes))

    def moved(step):
        values = recorder.again("f64", smooth=True, step=step)
        return sum(np.sum(x * w) for (x, _), w in zip(values, weights))

    h = 1e-5
    expected = (moved(h) - moved(-h)) / (2 * h)
    assert abs(slope - expected) <= 1e-6 * max(abs(expected), 1)
