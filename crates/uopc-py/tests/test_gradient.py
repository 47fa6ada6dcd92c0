"""gradient: graphs, values against differences in f64, warnings and errors."""

import warnings

import numpy as np
import pytest

from uopc import Tensor
from uopc.gradient import GradientWarning, gradient
from uopc.uop import Ops, UOp


def leaf(array):
    return Tensor(np.asarray(array, np.float32)).uop


def differences(f, x, eps=1e-3):
    """Central differences in f64."""
    x = np.asarray(x, np.float64)
    g = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += eps
        down[i] -= eps
        g[i] = (f(up) - f(down)) / (2 * eps)
    return g


def total(u):
    return u.reduce(Ops.ADD, len(u.shape))


CASES = {
    "product": (lambda x: total(x * x * x), lambda x: (x**3).sum()),
    "quotient": (lambda x: total(x / (x * x + 1.0)), lambda x: (x / (x * x + 1)).sum()),
    "recip": (lambda x: total((x * x + 1.0).recip()), lambda x: (1 / (x * x + 1)).sum()),
    "exp2": (lambda x: total(x.exp2()), lambda x: (2**x).sum()),
    "exp": (lambda x: total(x.exp()), lambda x: np.exp(x).sum()),
    "log2": (lambda x: total((x * x + 1.0).log2()), lambda x: np.log2(x * x + 1).sum()),
    "sqrt": (lambda x: total((x * x + 1.0).sqrt()), lambda x: np.sqrt(x * x + 1).sum()),
    "sin": (lambda x: total(x.sin() * x.cos()), lambda x: (np.sin(x) * np.cos(x)).sum()),
    "where": (lambda x: total((x < 0.0).where(x * x, x)), lambda x: np.where(x < 0, x * x, x).sum()),
    "maximum": (lambda x: total(x.maximum(0.1)), lambda x: np.maximum(x, 0.1).sum()),
    "mulacc": (lambda x: total(x.mulacc(x, x)), lambda x: (x * x + x).sum()),
    "movement": (
        lambda x: total(x.permute(1, 0).reshape(2, 6).shrink(((0, 2), (1, 4)))
                        * x.reshape(12).shrink(((3, 9),)).reshape(2, 3)),
        lambda x: (x.T.reshape(2, 6)[:, 1:4] * x.reshape(12)[3:9].reshape(2, 3)).sum()),
    "expand": (
        lambda x: total(x.reshape(3, 4, 1).expand(3, 4, 5) * x.reshape(3, 4, 1).expand(3, 4, 5)),
        lambda x: 5 * (x * x).sum()),
    "max": (lambda x: total(x.reduce(Ops.MAX, 1)), lambda x: x.max(-1).sum()),
    "mul": (lambda x: total(x.reduce(Ops.MUL, 1)), lambda x: x.prod(-1).sum()),
    "stack": (lambda x: total(UOp.stack(x, x * x)), lambda x: (x + x * x).sum()),
    "index": (lambda x: total(x.index(1) * x.index(2)), lambda x: (x[1] * x[2]).sum()),
    "cast": (lambda x: total((x * x).cast("f64")).cast("f32"), lambda x: (x * x).sum()),
}


@pytest.mark.parametrize("name", CASES)
def test_against_differences(name):
    build, reference = CASES[name]
    x = np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32)
    node = leaf(x)
    (g,) = gradient(build(node), [node])
    assert g.shape == node.shape and g.dtype == node.dtype
    np.testing.assert_allclose(Tensor(g).numpy(), differences(reference, x), rtol=2e-2, atol=2e-3)


def test_targets_in_order_and_interior_ones():
    x, y = leaf([1, 2, 3]), leaf([10, 20, 30])
    m = x * y
    root = total(m + x)
    gx, gm, gy, groot = gradient(root, (x, m, y, root))
    for g, expected in ((gx, [11, 21, 31]), (gm, [1, 1, 1]), (gy, [1, 2, 3]), (groot, 1)):
        np.testing.assert_array_equal(Tensor(g).numpy(), expected)
    assert gradient(root, []) == []


def test_a_gradient_can_be_differentiated():
    x = leaf([1, 2, 3, 4])
    (g,) = gradient(total(x * x * x), [x])
    (h,) = gradient(total(g), [x])
    (third,) = gradient(total(h), [x])
    np.testing.assert_array_equal(Tensor(g).numpy(), [3, 12, 27, 48])
    np.testing.assert_array_equal(Tensor(h).numpy(), [6, 12, 18, 24])
    np.testing.assert_array_equal(Tensor(third).numpy(), [6, 6, 6, 6])


# ---- cut paths ----


def test_a_cut_target_warns_and_names_the_op_and_the_line():
    x = leaf([1, 2])
    with pytest.warns(GradientWarning, match="detach") as caught:
        (g,) = gradient(total(x.detach() * 2.0), [x])
    assert len(caught) == 1 and caught[0].filename == __file__
    assert issubclass(GradientWarning, UserWarning)
    np.testing.assert_array_equal(Tensor(g).numpy(), [0, 0])


def test_strict_makes_a_cut_an_error():
    x = leaf([1, 2])
    with pytest.raises(RuntimeError, match="cmplt"):
        gradient(total((x < 1.0).cast("f32")), [x], strict=True)
    with pytest.raises(RuntimeError, match=str(__file__)):
        gradient(total(x.cast("i32").cast("f32")), [x], strict=True)


def test_no_warning_without_a_cut():
    x, z = leaf([1, 2]), leaf([1, 2, 3, 4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gx, gz = gradient(total(x * x.detach()), [x, z])
    np.testing.assert_array_equal(Tensor(gx).numpy(), [1, 2])
    np.testing.assert_array_equal(Tensor(gz).numpy(), [0, 0, 0, 0])


def test_a_warning_made_an_error_is_raised():
    x = leaf([1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error", GradientWarning)
        with pytest.raises(GradientWarning):
            gradient(total(x.detach()), [x])


# ---- errors ----


def test_errors():
    x, i = leaf([1, 2]), Tensor(np.array([1, 2], np.int32)).uop
    with pytest.raises(RuntimeError, match="no float"):
        gradient(i, [x])
    with pytest.raises(RuntimeError, match="no float"):
        gradient(total(x), [i])
    with pytest.raises(RuntimeError, match="store"):
        memory = UOp(Ops.PARAM, (), (3, "f32", 0, "out"))
        store = UOp(Ops.STORE, (memory, UOp.const(0), UOp.const(1.0)), ("set", False))
        gradient(UOp(Ops.AFTER, (x, UOp(Ops.END, (store,)))), [x])
    for wrong in (lambda: gradient(x, x), lambda: gradient(1.0, [x]), lambda: gradient(x, [1.0]),
                  lambda: gradient(Tensor([1.0]), [x]), lambda: gradient(x)):
        with pytest.raises(TypeError):
            wrong()


def test_a_long_chain():
    x = UOp.buffer(4)
    u = x
    for _ in range(200_000):
        u = u * 1.5
    (g,) = gradient(total(u), [x])
    assert g.shape == (4,) and len(g.toposort()) < 400_000
