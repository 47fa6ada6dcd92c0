"""Plans, kernels, listings and the plan cache from Python."""

import numpy as np
import pytest

from uopc import Tensor, kernelize
from uopc.kernelize import Kernel, Plan, PlanBuffer, Stats, listing, make_plan, plan_key, stats
from uopc.uop import Ops, UOp, from_uir


def tensor(*shape, seed=0):
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def buffer_of(t):
    return [u for u in t.uop.toposort() if u.op is Ops.BUFFER][0]


# ---- plans ----


def test_a_plan_names_its_parts():
    x = tensor(4, 5)
    plan, buffers = make_plan(x.softmax(-1))
    assert isinstance(plan, Plan) and all(isinstance(k, Kernel) for k in plan.kernels)
    assert [k.name for k in plan.kernels] == ["r_4", "r_4", "e_4_5"]
    assert all(isinstance(b, PlanBuffer) for b in plan.buffers)
    assert [(b.role, b.n, b.slot) for b in plan.buffers] == [
        ("input", 20, 0), ("temporary", 4, None), ("temporary", 4, None), ("output", 20, None)]
    assert {b.dtype for b in plan.buffers} == {x.dtype} and all(b.reason for b in plan.buffers)
    assert plan.outputs == (3,) and buffers == [buffer_of(x)]
    first, second, last = plan.kernels
    assert first.inputs == ((0, 0),) and first.outputs == ((1, 1),)
    assert [b for _, b in second.inputs] == [0, 1] and [b for _, b in last.inputs] == [0, 1, 2]
    assert "r_4" in repr(plan) and "e_4_5" in repr(last) and "output" in repr(plan.buffers[3])


def test_roots_are_planned_together():
    x = tensor(4)
    y = x.exp().sum()
    plan, buffers = make_plan([y.uop, (y * 2).uop, x])
    assert len(plan.outputs) == 3 and buffers == [buffer_of(x)]
    assert plan.buffers[plan.outputs[2]].role == "input"
    one, _ = make_plan(y.uop)
    same, _ = make_plan((y,))
    assert one.to_uir() == same.to_uir()


def test_inputs_are_in_order_of_slots_and_only_what_is_read():
    a, b, unread = tensor(4, seed=1), tensor(4, seed=2), Tensor(np.array([1, 2, 3, 4], np.int32))
    plan, buffers = make_plan(b * 2 + a + unread * 0)
    assert buffers == [buffer_of(b), buffer_of(a)]
    slots = [k.slot for k in plan.buffers if k.role == "input"]
    assert slots == sorted(slots) and len(slots) == 2
    x, y = UOp.buffer(3, slot=7), UOp.buffer(3, slot=2)
    assert make_plan(x * y)[1] == [y, x]


def test_a_value_that_was_computed_is_an_input():
    w = Tensor(np.ones(3, np.float32), requires_grad=True)
    y = w.exp().realize()
    node = y.uop
    plan, buffers = make_plan((y * 2).uop)
    assert len(plan.kernels) == 1 and buffers == [node] and node.op is Ops.EXP


def test_a_plan_prints_and_explains():
    x = tensor(4, 5)
    plan, _ = make_plan((x @ tensor(5, 3, seed=1)).relu().sum())
    roots = from_uir(plan.to_uir())
    assert [r.op for r in roots] == [Ops.SINK] * 3
    text = plan.explain()
    for kernel in plan.kernels:
        assert f"{kernel.name}: " in text and f"{kernel.flops} flops, {kernel.bytes} bytes" in text
        assert f"void {kernel.name}(" in kernel.source
        assert kernel.to_uir().startswith(f"; name: {kernel.name}\n")
    assert text.count("\n") == len(plan.kernels) + len(plan.buffers)


def test_flops_and_bytes_are_counted():
    plan, _ = make_plan(tensor(8, 16) @ tensor(16, 4, seed=1))
    (product,) = plan.kernels
    assert 2 * 8 * 16 * 4 <= product.flops <= 3 * 8 * 16 * 4
    assert product.bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)


def test_what_is_no_shape_graph_is_refused():
    store = UOp(Ops.SINK)
    for function in (make_plan, listing):
        with pytest.raises(ValueError):
            function(store)
        with pytest.raises(TypeError):
            function(1)
        with pytest.raises(TypeError):
            function([1.0])
    with pytest.raises(ValueError):
        plan_key(UOp.buffer(3))


# ---- listings ----


def test_a_listing_names_the_kernel_and_numbers_the_slots():
    x, y = UOp.buffer(3, slot=0), UOp.buffer(3, slot=1)
    text = listing(x * y, name="product")
    assert text.startswith("void product(float* restrict data0, float* restrict data1, float* restrict data2)")
    assert listing([x * y]) == text.replace("product", "e_3")
    assert listing(x * y, schedule="plain") == listing(x * y, None, "plain")
    with pytest.raises(ValueError, match="no schedule"):
        listing(x, schedule="fast")


def test_a_listing_of_tensors_shows_all_kernels():
    text = listing(tensor(4, 5).softmax(-1))
    assert text.count("void ") == 3 and text.index("void r_4") < text.index("void e_4_5")


# ---- the cache ----


def test_the_cache_is_seen_as_it_is():
    plans = kernelize._plans
    plans.clear()
    assert len(plans) == 0 and list(plans) == []
    a, b = tensor(4, seed=1), tensor(4, seed=2)
    key = plan_key(a * 2 + 1)
    assert key == plan_key(b * 2 + 1) and key != plan_key(b * 2 + 2) and key not in plans
    before = stats()
    (a * 2 + 1).realize()
    assert key in plans and list(plans) == [key] and len(plans) == 1
    (b * 2 + 1).realize()
    after = stats()
    assert list(plans) == [key] and f"{len(plans)} plan" in repr(plans)
    assert after.plan_misses - before.plan_misses == 1 and after.plan_hits - before.plan_hits == 1
    assert after.launches - before.launches == 2 and after.plans == 1
    assert 5 not in plans and "no key" not in plans
    plans.clear()
    assert key not in plans
    np.testing.assert_array_equal((a * 2 + 1).numpy(), a.numpy() * 2 + 1)
    assert key in plans


def test_stats_are_named():
    assert isinstance(stats(), Stats) and stats().peak_bytes >= 0
    assert set(stats()._fields) >= {"plan_hits", "plan_misses", "launches", "compiler_calls"}
