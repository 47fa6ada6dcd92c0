"""Functions with derivatives of one's own."""

import pytest

import uopc
from uopc import Tensor


def log1pexp(**rules):
    return uopc.custom(lambda x: (x.exp() + 1.0).log(), name="log1pexp", **rules)


def sigmoid(x):
    return 1.0 / ((-x).exp() + 1.0)


@pytest.mark.parametrize("rule", ["vjp", "jvp"])
def test_one_rule_is_enough(rule):
    rules = {
        "vjp": lambda args, y, g: g * sigmoid(args[0]),
        "jvp": lambda args, y, t: t[0] * sigmoid(args[0]),
    }
    f = log1pexp(**{rule: rules[rule]})
    x = Tensor([0.0, 100.0])
    assert uopc.grad(lambda x: f(x).sum())(x).tolist() == [0.5, 1.0]
    _, tangent = uopc.jvp(f, (x,), (Tensor([2.0, 3.0]),))
    assert tangent.tolist() == [1.0, 3.0]
    # And the rule is differentiated in its turn: s(1 - s).
    second = uopc.grad(lambda x: uopc.grad(lambda x: f(x).sum())(x).sum())(x)
    assert second.tolist() == pytest.approx([0.25, 0.0], abs=1e-40)


def test_it_is_mapped_and_left_to_backward():
    f = log1pexp(vjp=lambda args, y, g: g * sigmoid(args[0]))
    rows = Tensor([[0.0, 100.0], [0.0, 0.0]])
    each = uopc.vmap(uopc.grad(lambda x: f(x).sum()))(rows)
    assert each.tolist() == [[0.5, 1.0], [0.5, 0.5]]
    w = Tensor([0.0], requires_grad=True)
    f(w).sum().backward()
    assert w.grad.tolist() == [0.5]


def test_arguments_may_be_trees_and_constants():
    def f(weights, n, x):
        return weights["w"] * x * n + weights["b"]

    def vjp(args, y, g):
        weights, n, x = args
        return {"w": g * x * n * 10, "b": g}, None, None

    scaled = uopc.custom(f, vjp=vjp)
    weights = {"w": Tensor([1.0, 2.0]), "b": Tensor([0.5, 0.5])}
    x = Tensor([3.0, 4.0])
    assert scaled(weights, 2, x).tolist() == [6.5, 16.5]
    by_weights, by_x = uopc.grad(lambda w, x: scaled(w, 2, x).sum(), argnums=(0, 1))(weights, x)
    assert by_weights["w"].tolist() == [60.0, 80.0]
    assert by_weights["b"].tolist() == [1.0, 1.0]
    assert by_x.tolist() == [0.0, 0.0]
    assert repr(scaled) == "Custom(f)"


def test_rules_are_compared():
    good = uopc.custom(
        lambda a, b: a * b,
        vjp=lambda args, y, g: (g * args[1], g * args[0]),
        jvp=lambda args, y, t: t[0] * args[1] + args[0] * t[1],
    )
    a, b = Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0, 6.0])
    forward, reverse = good.check(a, b)
    assert forward == pytest.approx(reverse, rel=1e-4)
    bad = uopc.custom(
        lambda a, b: a * b,
        vjp=lambda args, y, g: (g * args[1], g * args[0] * 2),
        jvp=lambda args, y, t: t[0] * args[1] + args[0] * t[1],
        name="bad",
    )
    with pytest.raises(RuntimeError, match="bad has rules that contradict each other"):
        bad.check(a, b)
    with pytest.raises(RuntimeError, match="needs both rules"):
        log1pexp(vjp=lambda args, y, g: g).check(a)


def test_what_callbacks_raise_comes_out():
    def fails(*_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        uopc.custom(fails, vjp=fails)(Tensor([1.0]))
    with pytest.raises(KeyError, match="mine"):
        uopc.custom(lambda x: x, vjp=fails)(Tensor([1.0]))
    with pytest.raises(KeyError, match="mine"):
        uopc.gradient_hook(Tensor([1.0]), fails)


def test_mistakes_are_named():
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    with pytest.raises(RuntimeError, match="none has no rule"):
        uopc.custom(lambda x: x, name="none")(x)
    with pytest.raises(RuntimeError, match="returns i32; only floats"):
        uopc.custom(lambda x: x.cast("i32"), vjp=lambda args, y, g: g)(x)
    with pytest.raises(ValueError, match="gives 1 cotangents for 2 arguments"):
        uopc.custom(lambda a, b: a + b, vjp=lambda args, y, g: (g,))(x, y)
    with pytest.raises(ValueError, match="gives a Tensor for 2 arguments"):
        uopc.custom(lambda a, b: a + b, vjp=lambda args, y, g: g)(x, y)
    with pytest.raises(ValueError, match="cotangent 0 has shape"):
        uopc.custom(lambda x: x, vjp=lambda args, y, g: g.sum())(x)
    with pytest.raises(ValueError, match="cotangent 0 is a Tensor, not a list"):
        uopc.custom(lambda xs: xs[0] + xs[1], vjp=lambda args, y, g: g)([x, y])
    with pytest.raises(TypeError, match="the result of pair is a tuple, not a tensor; join its parts"):
        uopc.custom(lambda x: (x, x), vjp=lambda args, y, g: g, name="pair")(x)
    with pytest.raises(TypeError, match="a cotangent that the vjp of listed gives is a list, not a tensor"):
        uopc.custom(lambda x: x, vjp=lambda args, y, g: [g], name="listed")(x)
    with pytest.raises(TypeError, match="the tangent that the jvp of none gives is a NoneType"):
        uopc.custom(lambda x: x, jvp=lambda args, y, t: None, name="none")(x)
    with pytest.raises(RuntimeError, match="has a jvp that is not linear, so no vjp follows from it"):
        uopc.custom(lambda x: x, jvp=lambda args, y, t: Tensor([1.0, 1.0]))(x)
    with pytest.raises(TypeError, match="gradient_hook: what the hook gives is a NoneType"):
        uopc.gradient_hook(x, lambda g: None)
    with pytest.raises(TypeError, match="straight_through: the result of the function is a tuple"):
        uopc.straight_through(lambda x: (x, x))(x)
    with pytest.raises(TypeError, match="vjp is a function, not 3"):
        uopc.custom(lambda x: x, vjp=3)
    with pytest.raises(TypeError, match="f is a function, not None"):
        uopc.custom(None)


def test_rules_in_f32_are_checked():
    x = Tensor([0.5, -1.0, 2.0])
    sine = lambda slope: uopc.custom(lambda x: x.sin(), vjp=lambda args, y, g: g * args[0].cos() * slope)
    assert uopc.gradcheck(sine(1.0), x)
    assert uopc.gradcheck(sine(1.001), x).comparisons[0].verdict == "differ"
    # What says of itself that its gradient is another one.
    assert uopc.gradcheck(uopc.straight_through(lambda x: x.trunc()), x * 1.25).comparisons[0].verdict == "differ"


def test_straight_through_passes_gradients():
    rounded = uopc.straight_through(lambda x: (x * 4).trunc() / 4)
    x = Tensor([0.3, -1.9])
    assert rounded(x).tolist() == [0.25, -1.75]
    assert uopc.grad(lambda x: (rounded(x) * 3).sum())(x).tolist() == [3.0, 3.0]
    with pytest.raises(ValueError, match="straight_through"):
        uopc.straight_through(lambda x: x.sum())(x)


def test_hooks_change_what_comes_back():
    x = Tensor([1.0, 2.0])
    weights = Tensor([5.0, -0.5])
    through = lambda hook: uopc.grad(lambda x: (hook(x) * weights).sum())(x).tolist()
    assert through(lambda x: x) == [5.0, -0.5]
    assert through(lambda x: uopc.gradient_hook(x, lambda g: g * g)) == [25.0, 0.25]
    assert through(lambda x: uopc.scale_gradient(x, -2)) == [-10.0, 1.0]
    assert through(lambda x: uopc.clip_gradient(x, -0.25, 1)) == [1.0, -0.25]
    assert uopc.clip_gradient(x, -1, 1).tolist() == [1.0, 2.0]
