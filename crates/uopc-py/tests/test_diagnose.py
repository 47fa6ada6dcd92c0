"""Why a gradient is zero, missing or NaN, from Python: lines are those of the script."""

import inspect
import os
import pathlib
import subprocess
import sys
import warnings

import pytest

import uopc
from uopc import Tensor, nn
from uopc.gradient import GradientWarning, gradient
from uopc.uop import Ops, UOp

HERE = pathlib.Path(__file__).name


def parameter(values):
    return Tensor(values, requires_grad=True)


def next_line():
    """The number of the line behind the one that calls this."""
    return inspect.currentframe().f_back.f_lineno + 1


def test_paths_have_the_script_s_lines():
    w = parameter([1.0, 2.0])
    line = next_line()
    e = w.exp()
    loss = (e * w).sum()
    explanation = uopc.explain_gradient(loss, w)
    assert explanation.reaches and bool(explanation)
    assert explanation.path_count == 2 and explanation.cuts == []
    shortest, longer = explanation.paths
    assert [op.split(" ")[0] for op in shortest] == ["mul", "reduce"]
    assert longer[0].endswith(f"{HERE}:{line})"), longer
    text = str(explanation)
    assert "by 2 paths; the shortest:" in text and "then as path 1 from mul" in text
    assert repr(explanation) == "Explanation(2 paths, cut at 0 places; print it)"
    assert str(loss.explain_gradient(w)) == text


def test_each_kind_of_cut_is_named():
    w = parameter([1.0, 2.0])
    table = Tensor([5.0, 6.0, 7.0])
    cuts = {
        "it is detached": lambda: w.detach().sum(),
        "comparisons have no derivative": lambda: (w > 1.5).where(table[:2], 0.0).sum(),
        "integers and bools have no derivative": lambda: table.take(w.cast("i32")).sum(),
        "zero or undefined everywhere": lambda: w.trunc().sum(),
    }
    for reason, f in cuts.items():
        explanation = uopc.explain_gradient(f(), w)
        assert not explanation.reaches and explanation.path_count == 0
        (cut,) = explanation.cuts[:1]
        assert reason in " ".join(explanation.cuts), explanation
        assert HERE in cut


def test_under_no_grad_it_is_a_detach():
    w = parameter([1.0, 2.0])
    line = next_line() + 1
    with uopc.no_grad():
        y = w * 2
    (cut,) = uopc.explain_gradient(y.sum(), w).cuts
    assert "it is detached" in cut and f"{HERE}:{line}" in cut


def test_an_update_since_is_a_cut():
    w = parameter([1.0, 2.0])
    loss = (w * w).sum()
    loss.item()
    line = next_line()
    w.assign(Tensor([3.0, 4.0]))
    (cut,) = uopc.explain_gradient(loss, w).cuts
    assert "before an update" in cut and f"{HERE}:{line}" in cut


def test_what_does_not_occur_is_said():
    text = str(uopc.explain_gradient(parameter([1.0]).sum(), parameter([2.0])))
    assert "does not occur in the loss" in text


def test_only_floats_have_an_explanation():
    with pytest.raises(RuntimeError, match="is no float"):
        uopc.explain_gradient(Tensor([1, 2]).sum(), parameter([1.0]))
    with pytest.raises(TypeError):
        uopc.explain_gradient(Tensor([1.0]).sum(), 3)


def test_deep_graphs_are_explained():
    w = parameter([1.0, 2.0])
    y = w
    for _ in range(3000):
        y = y.sin() + y.exp()
    explanation = y.sum().explain_gradient(w)
    assert explanation.path_count == 2**64 - 1
    assert len(str(explanation).splitlines()) < 80


# ---- strict mode ----


def test_cut_arguments_warn_and_are_errors_in_strict_mode():
    f = lambda a, b: (a * b.detach()).sum()
    args = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    with pytest.warns(GradientWarning, match="argument 1, f32 .* gets zeros"):
        _, by_b = uopc.grad(f, argnums=(0, 1))(*args)
    assert by_b.tolist() == [0.0, 0.0]
    with uopc.strict_gradients():
        for transformed in (uopc.grad(f, (0, 1)), uopc.value_and_grad(f, (0, 1))):
            with pytest.raises(RuntimeError, match="argument 1, f32 .* it is detached"):
                transformed(*args)
        _, pull_back = uopc.vjp(f, *args)
        with pytest.raises(RuntimeError, match="argument 1"):
            pull_back(Tensor(1.0))
        # What is not cut passes.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert uopc.grad(f)(*args).tolist() == [3.0, 4.0]


def test_strict_mode_nests_and_decorates():
    x = UOp.buffer(3, slot=0)
    cut = x.detach().reduce(Ops.ADD, 1)
    with uopc.strict_gradients():
        with uopc.strict_gradients():
            pass
        with pytest.raises(RuntimeError, match="every path"):
            gradient(cut, [x])

    @uopc.strict_gradients()
    def strictly():
        return gradient(cut, [x])

    with pytest.raises(RuntimeError, match="every path"):
        strictly()
    with pytest.warns(GradientWarning, match="every path"):
        gradient(cut, [x])


# ---- NaNs ----


def test_a_nan_is_found_with_its_line():
    x = Tensor([4.0, -1.0, 9.0])
    line = next_line()
    root = x.sqrt()
    found = uopc.find_nan(root.sum())
    assert (found.what, found.op, found.index, found.shape) == ("NaN", "sqrt", (1,), (3,))
    assert found.value != found.value and found.dtype == uopc.f32
    assert found.site.endswith(f"{HERE}:{line}")
    (operand,) = found.operands
    assert operand.endswith(": -1") and not found.may_be_meant
    assert repr(found) == "Finding(NaN in sqrt; print it)"
    assert "at [1] it is NaN" in str(found)


def test_a_gradient_s_nan_has_the_rule():
    w = parameter([4.0, 0.0])
    line = next_line()
    root = w.sqrt()
    loss = root.sum()
    assert uopc.find_nan(loss, w) is None
    loss.backward()
    found = uopc.find_nan(loss, w)
    assert found.site.endswith(f"{HERE}:{line}, vjp of sqrt")
    assert (found.what, found.index) == ("infinity", (1,))


def test_modules_are_searched_with_their_gradients():
    class Root(nn.Module):
        def __init__(self):
            self.scale = parameter([4.0, 0.0])

    model = Root()
    loss = model.scale.sqrt().sum().backward()
    assert "vjp of sqrt" in uopc.find_nan(loss, {"model": [model]}).site
    assert uopc.find_nan() is None
    assert uopc.find_nan(Tensor([1, 2])) is None


def test_checked_runs_raise_with_the_report():
    code = (
        "import uopc\n"
        "x = uopc.Tensor([1.0, 0.0])\n"
        "assert x.exp().tolist()[1] == 1.0\n"
        "try:\n"
        "    x.log().tolist()\n"
        "except FloatingPointError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "UOPC_CHECK_NAN": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the first infinity is in the result of log2 f32 (2,) (at <string>:5)")
