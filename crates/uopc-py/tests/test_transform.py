"""grad, vjp, jvp, vmap, Jacobians and gradcheck: values against formulas and loops, errors, threads.

Trees and modules are in test_tree.py, what JAX gives for the same in test_transform_jax.py.
"""

import functools
import os
import signal
import sys
import threading
import warnings

import numpy as np
import pytest

import uopc
from uopc import Tensor, grad, gradcheck, hessian, hvp, jacfwd, jacobian, jacrev, jvp, nn
from uopc import stop_gradient, tree_leaves, value_and_grad, vjp, vmap
from uopc.gradient import Batched
from uopc.uop import Ops, UOp


def t(values):
    return Tensor(np.asarray(values, np.float64))


def near(got, expected):
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-13)


X = np.array([0.5, -1.5, 2.0])
A = np.arange(12.0).reshape(3, 4) / 5 - 1


# ---- grad ----


def test_gradients_are_those_of_formulas():
    near(grad(lambda x: (x * x * x).sum())(t(X)), 3 * X**2)
    near(grad(lambda x, y: (x * y.sin()).sum(), 1)(t(X), t(X)), X * np.cos(X))
    value, g = value_and_grad(lambda x: x.exp().sum())(t(X))
    near(value, np.exp(X).sum())
    near(g, np.exp(X))


def test_argnums_choose_arguments():
    f = lambda x, y, z: (x * y).sum() * z
    args = t(X), t(X + 1), t(3.0)
    near(grad(f, -1)(*args), (X * (X + 1)).sum())
    by_z, by_x = grad(f, (2, 0))(*args)
    near(by_z, (X * (X + 1)).sum())
    near(by_x, 3 * (X + 1))
    (alone,) = grad(f, [1])(*args)
    near(alone, 3 * X)
    assert grad(f, ())(*args) == ()


def test_aux_comes_along():
    def f(x):
        y = x.exp()
        return y.sum(), {"y": y, "text": "kept", "n": 3}

    g, aux = grad(f, has_aux=True)(t(X))
    near(g, np.exp(X))
    near(aux["y"], np.exp(X))
    assert aux["text"] == "kept" and aux["n"] == 3
    (value, aux), g = value_and_grad(f, has_aux=True)(t(X))
    near(value, np.exp(X).sum())
    near(aux["y"], np.exp(X))
    # What comes along is a function of the arguments like all else.
    twice = grad(lambda x: grad(f, has_aux=True)(x)[1]["y"].sum())
    near(twice(t(X)), np.exp(X))
    value, pull, aux = vjp(f, t(X), has_aux=True)
    near(pull(1.0)[0], np.exp(X))
    near(aux["y"], np.exp(X))
    value, tangent, aux = jvp(f, (t(X),), (t(X),), has_aux=True)
    near(tangent, (X * np.exp(X)).sum())
    near(aux["y"], np.exp(X))
    with pytest.raises(TypeError, match=r"with has_aux the function returns \(out, aux\), not a Tensor"):
        grad(lambda x: x.sum(), has_aux=True)(t(X))


def test_other_arguments_pass_through():
    def f(x, name, *, power, scale=1.0):
        assert name == "cube" and isinstance(power, int)
        return (x**power).sum() * scale

    near(grad(f)(t(X), "cube", power=3), 3 * X**2)
    near(grad(f)(t(X), "cube", power=3, scale=t(2.0)), 6 * X**2)
    # Not differentiated, so an integer stays one.
    near(grad(lambda x, k: (x * k).sum())(t(X), 2), np.full(3, 2.0))


def test_numbers_and_arrays_become_tensors():
    g = grad(lambda x: x * x)(3.0)
    assert g.item() == 6 and g.dtype == uopc.f32
    near(grad(lambda x: (x * x).sum())(X), 2 * X)
    assert grad(lambda x: x * np.float64(2.0))(np.float64(1.5)).dtype == uopc.f64
    # A function may ignore its argument, and return a number.
    near(grad(lambda x: 1.0)(t(X)), np.zeros(3))


def test_a_function_may_look_at_values():
    def f(x):
        steps = 0
        while (x * x).sum().item() > 1 and steps < 50:
            x, steps = x / 2, steps + 1
        if x[0] > 0:
            return x.sum() * 3
        return x.sum()

    n = int(np.ceil(np.log2(np.sqrt((X**2).sum()))))
    near(grad(f)(t(X)), np.full(3, 3 / 2**n))
    near(grad(f)(t(-X)), np.full(3, 1 / 2**n))
    seen = []
    grad(lambda x: seen.append(x.numpy()) or x.sum())(t(X))
    np.testing.assert_array_equal(seen[0], X)
    assert len(seen) == 1


def test_gradients_work_where_gradients_are_off():
    with uopc.no_grad():
        g = grad(lambda x: (x * x).sum())(t(X))
    near(g, 2 * X)
    assert not g.requires_grad


def test_parameters_outside_of_the_arguments_keep_theirs():
    w = Tensor(X, requires_grad=True)
    value, g = value_and_grad(lambda x: (w * x * x).sum())(t(X))
    near(g, 2 * X * X)
    value.backward()
    near(w.grad, X * X)
    (g * g).sum().backward()
    near(w.grad, X * X + 8 * X**3)


# ---- confusion, nesting ----


def test_perturbations_are_not_confused():
    f = lambda x: x * grad(lambda y: x + y)(t(1.0))
    near(grad(f)(t(3.0)), 1)
    near(jvp(f, (t(3.0),), (t(1.0),))[1], 1)
    g = lambda x: x * jvp(lambda y: x * y, (t(2.0),), (t(1.0),))[1]
    near(grad(g)(t(3.0)), 6)
    near(jvp(g, (t(3.0),), (t(1.0),))[1], 6)
    # The same tensor inside and outside.
    x = t(2.0)
    near(grad(lambda y: y * grad(lambda z: z * z * x)(x))(x), 8)


@pytest.mark.parametrize("outer", [grad, jacfwd, jacrev, jacobian])
@pytest.mark.parametrize("inner", [grad, jacfwd, jacrev, jacobian])
def test_all_nest(outer, inner):
    near(outer(inner(lambda x: x.sin() * x))(t(0.7)), 2 * np.cos(0.7) - 0.7 * np.sin(0.7))
    each = vmap(outer(inner(lambda x: x.sin() * x)))(t(X))
    near(each, 2 * np.cos(X) - X * np.sin(X))
    first = outer(lambda x: vmap(inner(lambda y: y.exp() * x))(t(X)).sum())
    near(first(t(2.0)), np.exp(X).sum())


def test_tenth_derivative():
    f = lambda x: x.exp() * x
    for _ in range(10):
        f = grad(f)
    near(f(t(0.5)), np.exp(0.5) * 10.5)


# ---- vjp and jvp ----


def test_pullbacks_and_tangents():
    f = lambda a, b: {"product": a @ b, "sum": a.sum()}
    a, b = t(A), t(A.T)
    out, pull = vjp(f, a, b)
    g = np.cos(np.arange(9.0)).reshape(3, 3)
    by_a, by_b = pull({"product": t(g), "sum": 2.0})
    near(by_a, g @ A + 2)
    near(by_b, A.T @ g)
    again, _ = pull({"product": t(0 * g), "sum": t(1.0)})
    near(again, np.ones((3, 4)))
    out, tangents = jvp(f, (a, b), (t(A * 0 + 1), t(A.T * 2)))
    near(out["product"], A @ A.T)
    near(tangents["product"], np.ones((3, 4)) @ A.T + 2 * A @ A.T)
    near(tangents["sum"], 12)


def test_integers_have_no_tangents_and_zero_cotangents():
    f = lambda x, k: (x * k, k + 1)
    k = Tensor([1, 2, 3])
    (y, n), (dy, dn) = jvp(f, (t(X), k), (t(X), k))
    near(dy, X * [1, 2, 3])
    assert dn.dtype == uopc.i32 and dn.tolist() == [0, 0, 0] and n.tolist() == [2, 3, 4]
    _, pull = vjp(f, t(X), k)
    by_x, by_k = pull((t(X), k))
    near(by_x, X * [1, 2, 3])
    assert by_k.dtype == uopc.i32 and by_k.tolist() == [0, 0, 0]


# ---- vmap ----


def test_maps_are_loops():
    f = lambda x, y: ((x * y).sum(), x.softmax() + y)
    xs, ys = t(A), t(A[:, ::-1].copy())
    totals, rows = vmap(f)(xs, ys)
    for k in range(3):
        total, row = f(xs[k], ys[k])
        near(totals[k], total.numpy())
        near(rows[k], row.numpy())


def test_axes():
    a, v = t(A), t(X)
    near(vmap(lambda x: x * 2, 1, 1)(a), 2 * A)
    near(vmap(lambda x: x * 2, -1, 0)(a), 2 * A.T)
    near(vmap(lambda x, y: (x * y).sum(), (1, None))(a, v), A.T @ X)
    near(vmap(lambda x, y: (x * y).sum(), [1, None])(a, v), A.T @ X)
    tree = {"w": a, "more": [v, 5.0]}
    f = lambda p, k: (p["w"] * k).sum() + p["more"][0] + p["more"][1]
    got = vmap(f, in_axes=({"w": 0, "more": [0, None]}, None))(tree, 2.0)
    near(got, 2 * A.sum(1) + X + 5)
    # A prefix stands for all that is below.
    got = vmap(lambda p: p["a"] * p["b"][0].sum(), in_axes=({"a": None, "b": 0},))({"a": v, "b": (a,)})
    near(got, np.outer(A.sum(1), X))
    out = vmap(lambda x: {"x": x, "same": v.sum()}, out_axes={"x": 1, "same": None})(a)
    near(out["x"], A.T)
    near(out["same"], X.sum())
    # Keyword arguments are mapped over axis 0, results that are the same are repeated.
    near(vmap(lambda x, *, y: x.sum() * y)(a, y=v), A.sum(1) * X)
    near(vmap(lambda x: 3.0)(a), [3, 3, 3])


def test_decorators():
    @vmap
    def dot(x, y):
        """The sum of products."""
        return (x * y).sum()

    near(dot(t(A), t(A)), (A * A).sum(1))
    assert dot.__name__ == "dot" and dot.__doc__ == "The sum of products."

    @functools.partial(vmap, in_axes=(0, None))
    @functools.partial(grad, argnums=1)
    def by_y(x, y):
        return (x * y).sum() ** 2

    near(by_y(t(A), t(A[0])), 2 * (A @ A[0])[:, None] * A)
    for make in (grad, value_and_grad, jacobian, jacfwd, jacrev, hessian):
        assert make(dot).__name__ == "dot"
    assert grad(functools.partial(lambda k, x: (x * k).sum(), 2.0))(t(X)).tolist() == [2, 2, 2]


def test_per_example_gradients_are_those_of_a_loop():
    Tensor.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 5), Tensor.tanh, nn.Linear(5, 2))
    xs, ys = t(A).float(), Tensor([0, 1, 0])
    loss = lambda net, x, y: nn.cross_entropy(net(x.reshape(1, 4)), y.reshape(1))
    each = vmap(grad(loss), in_axes=(None, 0, 0))(net, xs, ys)
    assert isinstance(each, nn.Sequential) and each.layers[1] is Tensor.tanh
    assert each.layers[0].weight.shape == (3, 4, 5)
    for k in range(3):
        one = grad(loss)(net, xs[k], ys[k])
        for a, b in zip(tree_leaves(each), tree_leaves(one)):
            np.testing.assert_allclose(a[k].numpy(), b.numpy(), rtol=1e-6, atol=1e-7)


def test_what_depends_on_a_slice_has_no_value():
    with pytest.raises(NotImplementedError):
        vmap(lambda x: x if x.sum().item() > 0 else -x)(t(A))
    with pytest.raises(NotImplementedError):
        vmap(lambda x: x if x.sum() > 0 else -x)(t(A))
    # What does not depend on one has.
    y = t(X)
    near(vmap(lambda x: x * y.sum().item())(t(A)), A * X.sum())


# ---- Jacobians ----


def test_jacobians_are_trees_of_results_over_trees_of_arguments():
    f = lambda p, y: {"a": p["x"] * y, "b": (p["x"] * p["x"]).sum()}
    for make in (jacobian, jacfwd, jacrev):
        by_p = make(f)({"x": t(X)}, t(X + 1))
        near(by_p["a"]["x"], np.diag(X + 1))
        near(by_p["b"]["x"], 2 * X)
        by_y, by_p = make(f, (1, 0))({"x": t(X)}, t(X + 1))["a"]
        near(by_y, np.diag(X))
        near(by_p["x"], np.diag(X + 1))
    near(jacobian(lambda a: a.T)(t(A)), np.einsum("ik,jl->jikl", np.eye(3), np.eye(4)).transpose(0, 1, 2, 3))


def test_hessians():
    f = lambda x, p: (x**3).sum() + (x * p["y"]).sum() * p["z"]
    args = t(X), {"y": t(X + 1), "z": t(2.0)}
    near(hessian(f)(*args), np.diag(6 * X))
    h = hessian(f, (0, 1))(*args)
    near(h[0][0], np.diag(6 * X))
    near(h[0][1]["y"], 2 * np.eye(3))
    near(h[0][1]["z"], X + 1)
    near(h[1]["z"][1]["y"], X)
    near(h[1]["y"][1]["y"], np.zeros((3, 3)))
    near(hessian(lambda x: x**3)(t(X))[1], np.diag([0, 6 * X[1], 0]))
    near(hvp(f, args, (t(X), {"y": t(X), "z": 0.0}))[0], 6 * X**2 + 2 * X)
    near(hvp(lambda x: (x**3).sum(), [t(X)], [t(X)]), 6 * X**2)


def test_aux_comes_along_with_jacobians_and_hessians():
    f = lambda x, y: ({"s": (x * x * y).sum(), "v": x * y}, {"n": 3, "x": x + y, "i": Tensor([1, 2]), "none": None})
    for make in (jacobian, jacfwd, jacrev):
        found, aux = make(f, has_aux=True)(t(X), t(X + 1))
        near(found["s"], 2 * X * (X + 1))
        near(found["v"], np.diag(X + 1))
        near(aux["x"], 2 * X + 1)
        assert aux["n"] == 3 and aux["i"].tolist() == [1, 2] and aux["none"] is None
        with pytest.raises(TypeError, match="with has_aux the function returns"):
            make(lambda x: x, has_aux=True)(t(X))
    blocks, aux = hessian(f, (0, 1), has_aux=True)(t(X), t(X + 1))
    near(blocks["s"][0][1], np.diag(2 * X))
    near(aux["x"], 2 * X + 1)
    found, aux = hessian(lambda x: ((x * x * x).sum(), x * 2), has_aux=True)(t(X))
    near(found, np.diag(6 * X))
    near(aux, 2 * X)
    # What comes along is differentiated from outside.
    near(grad(lambda x: hessian(lambda x: ((x * x).sum(), x**3), has_aux=True)(x)[1].sum())(t(X)), 3 * X**2)
    per_row = vmap(lambda x: jacobian(lambda x: (x * x, x.sum()), has_aux=True)(x))
    found, aux = per_row(t(A))
    near(aux, A.sum(1))
    assert found.shape == (3, 4, 4)


def test_a_pullback_belongs_to_the_primals_as_they_were():
    x = t([1.0, 2.0])
    _, pull_back = vjp(lambda x: x**3, x)
    x.assign(x * 10)
    near(pull_back(t([1.0, 1.0]))[0], np.array([3.0, 12.0]))
    x[0] = 5.0
    near(pull_back(t([1.0, 1.0]))[0], np.array([3.0, 12.0]))


# ---- errors ----


class Own(Exception):
    pass


WRAPPED = {
    "grad": lambda f: grad(f)(t(X)),
    "value_and_grad": lambda f: value_and_grad(f)(t(X)),
    "vjp": lambda f: vjp(f, t(X)),
    "jvp": lambda f: jvp(f, (t(X),), (t(X),)),
    "vmap": lambda f: vmap(f)(t(X)),
    "jacobian": lambda f: jacobian(f)(t(X)),
    "hessian": lambda f: hessian(f)(t(X)),
    "hvp": lambda f: hvp(f, (t(X),), (t(X),)),
    "gradcheck": lambda f: gradcheck(f, t(X)),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_what_the_function_raises_comes_out_as_it_is(name):
    error = Own("mine", 3)

    def f(x):
        raise error

    for wrapped in (f, lambda x: grad(f)(x.sum()), lambda x: vmap(f)(x.reshape(-1, 1))):
        with pytest.raises(Own) as caught:
            WRAPPED[name](wrapped)
        assert caught.value is error
    assert "f" in [entry.name for entry in caught.traceback]
    # An error of the library's is what it is, too, and the next call is a new one.
    with pytest.raises(ValueError, match="shapes"):
        WRAPPED[name](lambda x: (t(A).sum(1) * t(A).sum(0)).sum() * x)
    near(grad(lambda x: x.sum())(t(X)), np.ones(3))
    with pytest.raises(KeyboardInterrupt):
        WRAPPED[name](lambda x: (_ for _ in ()).throw(KeyboardInterrupt))


@pytest.mark.parametrize(
    "error, text, call",
    [
        (TypeError, r"grad: argument 1 is i32 of shape \(2,\), and only floats have derivatives; cast it to f32, or leave it out by argnums",
         lambda: grad(lambda x, k: x.sum(), 1)(t(X), Tensor([1, 2]))),
        (TypeError, r"argument 0\['k'\]\[1\] is i32 of shape \(\)", lambda: grad(lambda p: 0.0)({"k": [1.0, 2]})),
        (TypeError, r"argument 0 is bool", lambda: grad(lambda p: 0.0)(True)),
        (TypeError, r"grad: argument 0\[1\] is a str; tensors, arrays and numbers are needed", lambda: grad(lambda p: 0.0)([1.0, "x"])),
        (TypeError, r"vjp: argument 1 is a str.*bind it first", lambda: vjp(lambda x, s: x, t(X), "x")),
        (RuntimeError, r"returns a scalar of floats, not f64 of shape \(3,\); take its sum or mean, or use jacobian",
         lambda: grad(lambda x: x * 2)(t(X))),
        (RuntimeError, "not i32 of shape", lambda: grad(lambda x: x.sum().int())(t(X))),
        (TypeError, "grad: the function returns a tree of 2 tensors, not one scalar of floats; with has_aux",
         lambda: grad(lambda x: (x.sum(), x))(t(X))),
        (TypeError, "grad: the function returns nothing", lambda: grad(lambda x: None)(t(X))),
        (TypeError, "grad: the result is a str", lambda: grad(lambda x: "text")(t(X))),
        (TypeError, r"jacobian: the result\['a'\] is a object", lambda: jacobian(lambda x: {"a": object()})(t(X))),
        (RuntimeError, "is no float and has no Jacobian", lambda: jacobian(lambda x: x.int())(t(X))),
        (TypeError, "argnums names argument 1, but the function was called with 1 positional", lambda: grad(lambda x: x, 1)(t(X))),
        (TypeError, "argnums is an integer or a tuple of integers, not 'x'", lambda: grad(lambda x: x, "x")(t(X))),
        (ValueError, "argnums names argument 0 twice", lambda: grad(lambda x: x, (0, -1))(t(X))),
        (TypeError, r"jvp: primals is a tuple with one for each argument, not a Tensor; write \(x,\)", lambda: jvp(lambda x: x, t(X), t(X))),
        (ValueError, "jvp: 1 primals and 2 tangents", lambda: jvp(lambda x: x, (t(X),), (t(X), t(X)))),
        (ValueError, r"jvp: the tangent of argument 0 has shape \(3, 4\), not \(3,\)", lambda: jvp(lambda x: x, (t(X),), (t(A),))),
        (TypeError, "jvp: the tangent of argument 0 is f32, not f64; cast it", lambda: jvp(lambda x: x, (t(X),), (t(X).float(),))),
        (ValueError, "jvp: tangent 0 is a tuple, not a list", lambda: jvp(lambda x: x[0], ([t(X)],), ((t(X),),))),
        (ValueError, "vjp: the cotangent is a list, not a tuple", lambda: vjp(lambda x: (x, x), t(X))[1]([t(X), t(X)])),
        (ValueError, r"vjp: the cotangent\[1\] has shape \(3, 4\), not \(3,\)", lambda: vjp(lambda x: (x, x), t(X))[1]((t(X), t(A)))),
        (ValueError, "vmap: no argument is mapped", lambda: vmap(lambda x: x, None)(t(X))),
        (ValueError, r"vmap: argument 1 has shape \(\) and no axis 0", lambda: vmap(lambda x, y: x)(t(X), 3.0)),
        (ValueError, r"vmap: argument 0 is mapped over 3 slices and argument 1, of shape \(4, 3\), over 4", lambda: vmap(lambda x, y: x)(t(A), t(A.T))),
        (ValueError, "vmap: in_axes has 1 entries for 2 positional arguments", lambda: vmap(lambda x, y: x, (0,))(t(X), t(X))),
        (ValueError, r"vmap: in_axes\[0\] is a tuple of 2 parts, but what it is for is a Tensor", lambda: vmap(lambda x: x, ((0, 1),))(t(X))),
        (TypeError, "vmap: in_axes is an integer, None, or a tuple", lambda: vmap(lambda x: x, "x")),
        (TypeError, r"vmap: in_axes\[0\] is 'x'; an axis is an integer or None", lambda: vmap(lambda x: x, ("x",))(t(X))),
        (ValueError, "vmap: out_axes is a tuple of 2 parts", lambda: vmap(lambda x: x, 0, (0, 1))(t(X))),
        (ValueError, "out_axes can't be None", lambda: vmap(lambda x: x, 0, None)(t(X))),
        (ValueError, "there is no such axis", lambda: vmap(lambda x: x, 0, 2)(t(X))),
        (TypeError, "vmap: argument 0 is a str; .* leave it out by in_axes", lambda: vmap(lambda x: x)("x")),
        (RuntimeError, "gradcheck needs an argument of floats", lambda: gradcheck(lambda x: x, Tensor([1]))),
        (ValueError, "gradcheck: the step is -1; use a finite number above 0", lambda: gradcheck(lambda x: x, t(X), step=-1)),
        (ValueError, "gradcheck: the tolerance is NaN", lambda: gradcheck(lambda x: x, t(X), tolerance=float("nan"))),
        (ValueError, "gradcheck: no directions", lambda: gradcheck(lambda x: x, t(X), directions=0)),
        (ValueError, "has more than 64 bits", lambda: gradcheck(lambda x: x, t(X), seed=2**70)),
        (TypeError, "a seed is an integer, not 0.5", lambda: gradcheck(lambda x: x, t(X), seed=0.5)),
        (RuntimeError, "returns a scalar of floats, not f64 of shape", lambda: hvp(lambda x: x, (t(X),), (t(X),))),
        (TypeError, "explain_gradient: the loss is a tensor, not a float", lambda: uopc.explain_gradient(3.0, t(X))),
    ],
)
def test_error(error, text, call):
    with pytest.raises(error, match=text):
        call()


def test_errors_name_the_line():
    with pytest.raises(RuntimeError, match=r"test_transform\.py"):
        grad(lambda x: x * 2)(t(X))


# ---- threads, signals ----


def test_threads():
    failures = []

    def work(k):
        try:
            for n in range(8):
                x = t(X * k + n)
                near(grad(lambda x: (x * x * k).sum())(x), 2 * k * x.numpy())
                near(vmap(lambda v: v * k)(x), k * x.numpy())
                with pytest.raises(Own):
                    grad(lambda x: (_ for _ in ()).throw(Own()))(x)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_pullback_may_be_called_on_another_thread():
    _, pull = vjp(lambda x: x * x, t(X))
    found = []
    thread = threading.Thread(target=lambda: found.append(pull(t(X))[0].numpy()))
    thread.start()
    thread.join()
    np.testing.assert_allclose(found[0], 2 * X * X)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_another_thread_may_fork_while_a_function_waits_for_it():
    def fork():
        with warnings.catch_warnings():
            # Newer Pythons warn of forks with threads.
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def f(x):
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        return (x * x).sum()

    near(grad(f)(t(X)), 2 * X)


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_signal_in_the_function_comes_out():
    def f(x):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass
        return x.sum()

    with pytest.raises(KeyboardInterrupt):
        grad(f)(t(X))
    near(grad(lambda x: x.sum())(t(X)), np.ones(3))


# ---- gradcheck ----


def test_gradcheck_finds_what_is_right_and_what_is_wrong():
    report = gradcheck(lambda p, y: (p["x"].sin() * y).exp(), ({"x": Tensor(X.astype(np.float32))}, t(X)))
    assert report and report.passed and len(report.comparisons) == 8
    assert str(report).splitlines()[-1] == "all gradients agree"
    assert {c.argument for c in report.comparisons} == {"argument 0['x']", "argument 1"}
    for c in report.comparisons:
        assert c.verdict == "agree" and c.error <= c.allowed and c.shape == (3,)
        assert abs(c.found - c.wanted) == c.error
    # A kink is not called a defect, nor is it passed over.
    kink = gradcheck(lambda x: x.abs(), t([0.0]))
    assert not kink and {c.verdict for c in kink.comparisons} >= {"unclear"}
    assert "unclear" in str(kink)
    corner = gradcheck(lambda x: (x - 2.0).relu(), t([1.0, 2.0, 3.0]))
    assert not corner and {c.verdict for c in corner.comparisons} == {"agree", "unclear"}
    assert len(gradcheck(Tensor.exp, t(X), second_order=False).comparisons) == 2
    # Quotients of a large step are far off, and more so than those of half of it.
    assert not gradcheck(lambda x: x.exp(), t(X), step=1e-1, directions=1)
    assert gradcheck(lambda x: x.exp(), t(X), step=1e-1, tolerance=0.1, directions=1)
    # A gradient that is wrong.
    wrong = uopc.custom(lambda x: x * x, vjp=lambda args, y, g: 3 * args[0] * g)
    report = gradcheck(wrong, t(X), second_order=False)
    assert not report and report.comparisons[0].verdict == "differ"
    assert "differ" in str(report).splitlines()[-1]
    again = gradcheck(lambda x: x.exp(), t(X), seed=1)
    assert again.comparisons[0].found != gradcheck(lambda x: x.exp(), t(X), seed=2).comparisons[0].found


def test_gradcheck_of_a_module():
    net = nn.Sequential(nn.Linear(2, 3), Tensor.tanh, nn.Linear(3, 1))
    report = gradcheck(lambda net, x: net(x), (net, Tensor([[0.5, -1.0]])))
    assert report, str(report)
    assert "argument 0.layers.2.weight" in str(report)


# ---- the rest ----


def test_stop_gradient():
    near(grad(lambda x: (x * stop_gradient(x)).sum())(t(X)), X)
    tree = stop_gradient({"x": Tensor(X, requires_grad=True), "n": 3, "s": "text"})
    assert not tree["x"].requires_grad and tree["n"] == 3 and tree["s"] == "text"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        near(grad(lambda x: stop_gradient(x).sum())(t(X)), np.zeros(3))


def test_choices_at_ties_and_kinks():
    """Where there are several derivatives, this is the one that is taken."""
    near(grad(lambda x: x.abs())(t(0.0)), 0)
    near(grad(lambda x: x.relu())(t(0.0)), 0)


def test_graphs():
    x, v, y = UOp.buffer(3, slot=0), UOp.buffer(3, slot=1), UOp.buffer(3, slot=2)
    loss = (x * y).reduce(Ops.ADD, 1)
    assert uopc.gradient.jvp(loss, [x], [v]) == (v * y).reduce(Ops.ADD, 1)
    assert uopc.gradient.jvp(loss, [v], [v]).shape == ()
    with pytest.raises(ValueError):
        uopc.gradient.jvp(loss, [x], [UOp.buffer(4, slot=1)])
    xs = UOp.buffer(15, slot=3).reshape(5, 3)
    (total, same) = uopc.gradient.vmap([loss, y], [(x, xs)])
    assert isinstance(total, Batched) and total.batched and total.node.shape == (5,)
    assert same == (y, False)
    with pytest.raises(ValueError):
        uopc.gradient.vmap([loss], [(x, y)])
