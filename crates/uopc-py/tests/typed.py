"""All of the public interface, with types: mypy --strict passes on it, and it runs.

`cargo xtask python` checks the types; `test_typed.py` runs it and sees to it that no public name is
missing here.
"""

import copy
import os
import pickle
import sys
import tempfile
from typing import Any, Dict, List, Optional, Tuple, Union

import numpy as np
import numpy.typing as npt

import uopc
from uopc import DType, Tensor, composite, from_dlpack, from_numpy, gradient, kernelize, nn, no_grad
from uopc.composite import cat, flip, pad, sum_to, zeros_like
from uopc.gradient import GradientWarning
from uopc.kernelize import Kernel, Plan, PlanBuffer, PlanCache, Stats, listing, make_plan
from uopc.kernelize import plan_key, stats
from uopc.uop import LiveBuffer, Ops, UOp, from_uir, to_uir

if sys.version_info >= (3, 11):
    from typing import assert_type
else:
    from typing_extensions import assert_type


def dtypes() -> List[DType]:
    short = [uopc.f16, uopc.bf16, uopc.f32, uopc.f64, uopc.i8, uopc.i16, uopc.i32, uopc.i64]
    short += [uopc.u8, uopc.u16, uopc.u32, uopc.u64, uopc.bool_]
    long = [uopc.float16, uopc.bfloat16, uopc.float32, uopc.float64, uopc.int8, uopc.int16]
    long += [uopc.int32, uopc.int64, uopc.uint8, uopc.uint16, uopc.uint32, uopc.uint64]
    assert short[:-1] == long and DType("f32") == DType(np.float32) == DType(float) == uopc.f32
    d = uopc.i16
    assert_type((d.name, d.itemsize, d.is_float, d.is_int), Tuple[str, int, bool, bool])
    assert {d: 1}[pickle.loads(pickle.dumps(d))] == 1 and d == "int16"
    return short


def create() -> Tensor:
    a = Tensor([[1.0, 2.0], [3.0, 4.0]], dtype="f64", requires_grad=True)
    array: npt.NDArray[np.float32] = np.ones((2, 2), np.float32)
    made = [Tensor(array), Tensor(3), Tensor(True), Tensor(a), Tensor.zeros(2, 2), Tensor.ones((2, 2))]
    made += [Tensor.full((2, 2), 7, dtype=int), Tensor.scalar(2.5), Tensor.arange(4)]
    made += [Tensor.arange(0, 1.0, 0.25, dtype=uopc.f64), a.zeros_like(), a.ones_like(dtype=np.int8)]
    made += [a.full_like(3), from_numpy(array), Tensor.from_numpy(array, copy=True)]
    made += [from_dlpack(array), Tensor.from_dlpack(array, copy=None)]
    made += [Tensor.linspace(0, 1, 3), Tensor.linspace(0, 1, num=3, endpoint=False, dtype="f64"), Tensor.eye(2)]
    made += [Tensor.eye(2, 3, k=1, dtype=int), Tensor.empty(2, 2), a.empty_like(dtype="i8"), a.diag(), a.diag(k=1)]
    made += [a.diag_embed(1), a.tril(), a.triu(1), a.triu(k=-1), *Tensor.meshgrid([1, 2], a[0], indexing="ij")]
    Tensor.manual_seed(1)
    made += [Tensor.randint(3), Tensor.randint(1, 3, (2, 2), dtype="u8"), Tensor.normal(), Tensor.normal(a, 2.0)]
    made += [Tensor.normal(0.0, 1.0, (2,), dtype="f64"), Tensor.randperm(3), a.bernoulli(), a.multinomial(1)]
    made += [a.multinomial(3, replacement=True), Tensor.xavier_uniform(2, 2), Tensor.xavier_normal((2, 2), gain=2)]
    made += [Tensor.kaiming_uniform(2, 2, a=0.1), Tensor.kaiming_normal(2, 2, mode="fan_out", nonlinearity="relu")]
    assert_type(Tensor.calculate_gain("leaky_relu", 0.1), float)
    made += [Tensor.rand(2, 2), Tensor.randn((2, 2), dtype="f16"), Tensor.uniform(2, low=-1, high=1)]
    assert_type(made, List[Tensor])
    return a


def describe(t: Tensor) -> None:
    assert_type(t.shape, Tuple[int, ...])
    assert_type(t.dtype, DType)
    assert_type((t.ndim, t.size, t.itemsize, t.nbytes), Tuple[int, int, int, int])
    assert_type((t.numel(), t.dim(), len(t), hash(t)), Tuple[int, int, int, int])
    assert_type(t.uop, UOp)
    assert_type(repr(t) + str(t) + f"{t}" + f"{t.sum():.2f}", str)


def elementwise(a: Tensor, b: Tensor, i: Tensor, j: Tensor, c: Tensor) -> List[Tensor]:
    array = np.ones((2, 2), np.float32)
    results = [a + b, a - 1, a * 2.5, a / np.float32(2), 1 + a, 2.0 - a, 3 * a, 1 / a, a + array]
    results += [i // j, i % j, 7 // j, 7 % j, i & j, i | j, i ^ j, 1 & i, 1 | i, 1 ^ i, ~i]
    results += [-a, +a, abs(a), a**2, a @ b, a @ array, *divmod(i, j), *divmod(7, j)]
    results += [a < b, a <= 1, a > 2.0, a >= b, a == b, a != 1]
    results += [a.add(b), a.sub(1), a.subtract(b), a.mul(b), a.multiply(2), a.div(b), a.divide(b)]
    results += [a.true_divide(2), a.truediv(b), i.floordiv(j), i.floor_divide(2), i.mod(j)]
    results += [i.remainder(j), i.floormod(3), a.maximum(b), a.minimum(0), a.eq(b), a.ne(b)]
    results += [a.not_equal(b), a.lt(b), a.less(b), a.le(b), a.less_equal(b), a.gt(b), a.greater(b)]
    results += [a.ge(b), a.greater_equal(b), i.bitwise_and(j), i.bitwise_or(j), i.bitwise_xor(j)]
    results += [i.bitwise_not(), i.bitwise_invert(), c.logical_and(c), c.logical_or(True)]
    results += [c.logical_xor(c), c.logical_not(), a.pow(0.5), c.where(a, 0), a.neg(), a.negative()]
    results += [a.abs(), a.absolute(), a.relu(), a.square(), a.trunc(), a.fix(), a.exp(), a.exp2()]
    results += [a.log(), a.log2(), a.sqrt(), a.sin(), a.cos(), a.tanh(), a.sigmoid(), a.silu()]
    results += [a.swish(), a.softplus(), a.gelu(), a.reciprocal(), a.float(), a.half(), a.bfloat16()]
    results += [a.double(), a.int(), a.long(), a.bool(), a.cast("i64"), a.astype(np.float64)]
    results += [a.to(uopc.f16)]
    return results


def functions(a: Tensor, b: Tensor, i: Tensor, j: Tensor, c: Tensor) -> List[Tensor]:
    results = [a.tan(), a.asin(), a.arcsin(), a.acos(), a.arccos(), a.atan(), a.arctan(), a.sinh()]
    results += [a.cosh(), a.asinh(), a.arcsinh(), a.acosh(), a.arccosh(), a.atanh(), a.arctanh()]
    results += [a.expm1(), a.log1p(), a.log10(), a.rsqrt(), a.erf(), a.erfc(), a.floor(), a.ceil()]
    results += [a.frac(), a.sign(), a.signbit(), a.isnan(), a.isinf(), a.isfinite(), a.mish()]
    results += [a.softsign(), a.logsigmoid(), a.relu6(), a.hardsigmoid(), a.hardswish(), a.selu()]
    results += [a.positive(), a.atan2(b), a.arctan2(1), a.hypot(b), a.logaddexp(0.5), a.copysign(-1)]
    results += [a.fmod(b), i.bitwise_left_shift(j), i.bitwise_right_shift(1), i << j, i >> 1, 1 << i]
    results += [8 >> i, a.gelu(approximate="none"), a.softplus(2.0, threshold=20.0), a.elu(), a.elu(0.5)]
    results += [a.celu(2.0), a.leaky_relu(), a.leaky_relu(b), a.hardtanh(-2.0, max_val=2.0), a.round()]
    results += [a.round(decimals=2), a.clamp(0), a.clamp(max=b), a.clip(-1, 1), a.nan_to_num()]
    results += [a.nan_to_num(1.0, posinf=2.0, neginf=3.0), a.masked_fill(c, 0), a.lerp(b, 0.5)]
    results += [a.isclose(b), a.isclose(1.0, rtol=1e-3, atol=0.0, equal_nan=True), a.power(b), 2.0**a]
    results += [a**b, a % b, a // 2.0]
    assert_type(a.allclose(b, 1e-3), bool)
    i <<= 1
    i >>= 1
    return results


def in_place(t: Tensor, i: Tensor) -> Tensor:
    t += 1
    t -= t
    t *= 2
    t /= 2
    t **= 2
    t @= t
    i //= 2
    i %= 2
    i &= 1
    i |= 2
    i ^= 3
    assert_type((t, i), Tuple[Tensor, Tensor])
    return t


def movement(a: Tensor) -> List[Tensor]:
    results = [a.reshape(4), a.reshape((1, -1)), a.view(2, 2), a.flatten(), a.flatten(0, 1), a.ravel()]
    results += [a.permute(1, 0), a.permute((1, 0)), a.transpose(), a.transpose(0, 1), a.T, a.mT]
    results += [a.swapaxes(0, 1), a.swapdims(0, 1), a.swap_axes(-1, 0), a.expand(3, 2, 2)]
    results += [a.broadcast_to((3, 2, 2)), a.pad(((0, 1), None)), a.shrink(((0, 1), None)), a.flip()]
    results += [a.flip(0), a.flip((0, 1)), a.unsqueeze(0), a.unsqueeze(dim=-1), a.squeeze()]
    results += [a.unsqueeze(0).squeeze(dim=0), Tensor.cat([a, a]), Tensor.concat([a, a], dim=1)]
    results += [Tensor.concatenate((a, a), 1), Tensor.stack([a, a], axis=1), a.stack_with(a)]
    results += [*Tensor.broadcast_tensors(a, [1, 2]), *Tensor.broadcast_arrays(a, a), a.unflatten(0, (2, -1))]
    results += [a.expand_dims(0), a.repeat(2, 1), a.repeat((2, 1)), a.tile(2), a.repeat_interleave(2)]
    results += [a.repeat_interleave(2, dim=0), a.roll(1), a.roll((1, 1), (0, 1)), a.roll(1, dims=0), a.rot90()]
    results += [a.rot90(2, (1, 0)), a.unfold(0, 2, 1), a.diagonal(), a.diagonal(1, 1, 0), a.trace()]
    results += [a.moveaxis(0, 1), a.movedim((0, 1), (1, 0)), *a.split(1), *a.split([1, 1], dim=1), *a.chunk(2)]
    results += [*a.tensor_split(2), *a.tensor_split([1], 1), *a.array_split(2, dim=1), *a.unbind(), *a.unbind(dim=1)]
    results += [Tensor.hstack([a, a]), Tensor.vstack([a, a]), Tensor.row_stack([a, a]), Tensor.dstack([a, a])]
    return results


def products(a: Tensor) -> List[Tensor]:
    results = [Tensor.einsum("ij,jk->ik", a, a), Tensor.einsum("ii", [[1, 2], [3, 4]]), a.dot(a), a.vdot(a)]
    results += [a.inner(a), a.outer([1, 2]), a.vecdot(a), a.vecdot(a, axis=0), a.tensordot(a), a.tensordot(a, 1)]
    results += [a.tensordot(a, ((0,), (1,))), a.kron(a), Tensor([1, 0, 0]).cross([0, 1, 0])]
    return results


def positions(a: Tensor) -> List[Tensor]:
    at = Tensor([[0, 1], [1, 0]])
    mask = a > 1
    results = [a[[1, 0]], a[Tensor([0, 1]), 1], a[mask], a[np.array([0]), ..., None], a[:, [True, False]], a[True]]
    results += [a.with_slice(([0, 1], [1, 0]), 7), a.with_slice(mask, 0.0)]
    results += [a.gather(1, at), a.take_along_axis(at), a.take_along_dim(at, 0), a.index_select(1, [1])]
    results += [a.index_add(0, [1], a[:1], alpha=2), a.index_copy(0, [1], a[:1]), a.index_fill(0, [1], 0)]
    results += [a.scatter(1, at, a), a.scatter(1, at, 1.0), a.scatter_add(1, at, a)]
    results += [a.scatter_reduce(1, at, a, "amax", include_self=False), a.put_along_axis([[0, 1]], 2.0, 1)]
    results += [a.index_put(([0, 1], [1, 0]), [1.0, 2.0]), a.index_put((mask,), 1.0, accumulate=True)]
    results += [a.segment_sum([1, 0], 3), a.segment_sum(Tensor([0, 1]), np.int64(2)), a.masked_select(mask)]
    results += [a.masked_select(mask, size=3, fill_value=-1), a.nonzero(), *a.nonzero(as_tuple=True), a.argwhere()]
    results += [a.unique(), *a.unique(True, return_inverse=True, return_counts=True), a.unique(equal_nan=False)]
    a[[0]] = 5
    a[mask] = Tensor(1.0)
    return results


def reductions(a: Tensor, i: Tensor) -> List[Tensor]:
    results = [a.sum(), a.sum(0), a.sum((0, 1), keepdim=True), a.sum(dim=0, keepdims=True, dtype="f32")]
    results += [a.mean(axis=1), a.prod(), a.var(correction=1), a.var(0, ddof=1), a.max(), a.amax(0)]
    results += [a.min(1), a.amin(), a.any(), a.all(0), a.argmax(), a.argmin(dim=1, keepdim=True)]
    results += [a.cumsum(), a.cumsum(0, dtype="f64"), a.cumprod(dim=0), a.logcumsumexp(1), a.argsort()]
    results += [*a.cummax(0), *a.cummin(dim=1), *a.sort(), *a.sort(0, True, stable=True), *a.topk(1)]
    results += [*a.topk(1, dim=0, largest=False, sorted=False), *a.kthvalue(1, keepdim=True), a.median()]
    results += [a[0].searchsorted([0.5], "right"), a.searchsorted(a, right=True), a.median((0, 1), keepdim=True)]
    results += [a.quantile(0.5), a.quantile([0.1, 0.9], 1, method="lower", keepdims=True)]
    results += [a.std(), a.std(0, correction=1), a.std(dim=1, ddof=1.0, keepdims=True), a.norm(), a.norm(1, 0)]
    results += [a.norm(p=float("inf"), dim=0, keepdim=True), a.norm(ord=2.0), a.logsumexp(), a.logsumexp(0)]
    results += [a.count_nonzero(axis=1), a.nansum(dim=0), a.nanmean(0, True), *a.aminmax(), *a.aminmax(0)]
    results += [a.softmax(), a.softmax(dim=0), a.log_softmax(axis=-1), a.cross_entropy([0, 1])]
    results += [a.accuracy(Tensor([0, 1])), a.matmul(a)]
    return results


def parts(a: Tensor) -> List[Tensor]:
    results = [a[0], a[0, 1], a[-1:], a[:, ::-1], a[None, ..., 0], a[...], a[np.int64(1)], *a]
    results += [a.get(0), a.narrow(0, 0, 1), a.take([1, 0]), a.take(Tensor([0]), axis=None)]
    results += [a.with_slice((0, slice(None)), 5.0), Tensor([1, 0]).one_hot(2), *reversed(a)]
    t = a * 1
    t[0] = 5
    t[:, 1] = [1.0, 2.0]
    t[..., 0] = Tensor([3.0, 4.0])
    assert_type(2 in a, bool)
    return results


@no_grad
def scored(w: Tensor, factor: float = 2.0) -> Tensor:
    return w * factor


@no_grad()
def shifted(w: Tensor) -> Tensor:
    return w + 1


def gradients(w: Tensor) -> Optional[Tensor]:
    loss = (w * w).sum()
    assert_type(loss.backward(), Tensor)
    loss.backward([w])
    loss.backward(w)
    grad = w.grad
    assert_type(grad, Optional[Tensor])
    assert_type((w.requires_grad, w.is_leaf), Tuple[bool, bool])
    w.grad = None
    w.grad = grad
    del w.grad
    w.zero_grad()
    other = Tensor([1.0])
    other.requires_grad = True
    assert_type(other.requires_grad_(), Tensor)
    with no_grad():
        assert not (w * 2).requires_grad
    with Tensor.no_grad():
        assert not w.detach().requires_grad
    assert_type(scored(w, factor=3.0), Tensor)
    assert_type(shifted(w), Tensor)
    return grad


def values(t: Tensor) -> None:
    assert_type(t.realize(), Tensor)
    Tensor.realize_all(t, t + 1)
    Tensor.realize_all([t * 2])
    assert_type(t.numpy(), npt.NDArray[Any])
    copied: npt.NDArray[Any] = t.numpy(copy=True)
    assert_type(t.tolist(), Any)
    one = t.sum()
    assert_type(one.item(), Union[bool, int, float])
    assert_type((bool(one), int(one), float(one)), Tuple[bool, int, float])
    assert_type([5, 6][Tensor(1)], int)
    assert_type(bytes(t), bytes)
    assert np.asarray(t).shape == copied.shape
    copies: List[Tensor] = [copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t))]
    assert_type(t.assign(copies[0]), Tensor)
    Tensor.assign_all([(t, copies[1])], also=[one])
    assert t.__dlpack_device__()[1] == 0 and t.__dlpack__() is not None
    was: bool = Tensor.training
    Tensor.training = True
    Tensor.training = was


def graphs() -> UOp:
    x = UOp.buffer(4, "f32", slot=0).reshape(2, 2)
    c = UOp.const(2.0)
    assert_type((x.op, x.src, x.dtype, x.shape), Tuple[Ops, Tuple[UOp, ...], DType, Tuple[int, ...]])
    assert_type(x.toposort(), List[UOp])
    assert_type(x.arg, Any)
    made = [x + 1, 1 + x, x - 1.0, 1 - x, x * x, 2 * x, x / 2, 1 / x, -x, +x, x < 1, x > 1]
    i = UOp.iota(4)
    made += [i // 2, 7 // (i + 1), i % 3, 7 % (i + 1), i & 1, 1 & i, i | 1, 1 | i, i ^ 1, 1 ^ i, ~i]
    made += [i << 1, 1 << i, i >> 1, 8 >> i]
    made += [x.recip(), x.reciprocal(), x.exp2(), x.log2(), x.exp(), x.sqrt(), x.sin(), x.cos()]
    made += [x.trunc(), x.detach(), x.maximum(0.0), x.lt(1.0), x.cmplt(1.0), x.ne(1.0), x.cmpne(1.0)]
    made += [x.eq(1.0), x.mulacc(x, x), x.lt(0.0).where(x, 0.0), x.cast("f64"), x.bitcast("i32")]
    made += [x.full_like(3.0), x.reshape(4), x.reshape((4,)), x.reshape(1, 4).expand(3, 4)]
    made += [x.reshape(1, 4).expand((3, 4)), x.permute(1, 0), x.permute((1, 0))]
    made += [x.shrink(((0, 1), (0, 2))), x.reduce(Ops.ADD, 1), x.index(0), x.stage("detach")]
    made += [x.scatter_add(UOp.iota(2), shape=(3, 2)), x.scatter_add(UOp.iota(2), shape=[4, 2])]
    made += [UOp.stack(x, x), UOp.stack([x, x]), UOp(Ops.ADD, (x, x)), UOp(Ops.CONST, arg=1.0, dtype="f32")]
    made += [copy.copy(x), copy.deepcopy(x), c]
    made += [pad(x, ((0, 1), (1, 0))), flip(x, 0), flip(x, [0, 1]), sum_to(x, (1, 2)), zeros_like(x)]
    made += [cat([x, x], axis=1), composite.cat((x, x))]
    assert_type(made, List[UOp])
    assert x == x and hash(x) == hash(x) and x in {x: 1}
    text = to_uir(x + 1)
    assert_type(text, str)
    assert from_uir(text) == x + 1 and (x + 1).to_uir() == text
    slot = Tensor([1.0]).uop.toposort()[0].arg
    assert not isinstance(slot, LiveBuffer) or slot.id >= 0
    assert Ops.ADD.value == "add"
    return x


def derivatives() -> List[Tensor]:
    t = Tensor([[1.0, 2.0], [3.0, 4.0]])
    x = t.uop
    grads = gradient.gradient((x * x).reduce(Ops.ADD, 2), [x], strict=True)
    assert_type(grads, List[UOp])
    assert issubclass(GradientWarning, UserWarning)
    tangent = gradient.jvp((x * x).reduce(Ops.ADD, 2), [x], [x])
    assert_type(tangent, UOp)
    batched = gradient.vmap([x * x], [(x, x.reshape(1, 2, 2))])
    assert_type(batched, List[gradient.Batched])
    assert_type((batched[0].node, batched[0].batched), Tuple[UOp, bool])
    return [Tensor.from_uop(g) for g in [*grads, tangent, batched[0].node]]


def transformed() -> List[Tensor]:
    def f(x: Tensor, scale: float = 1.0) -> Tensor:
        return (x * x * x).sum() * scale

    x = Tensor([1.0, 2.0])
    made: List[Tensor] = [uopc.grad(f)(x), uopc.grad(f, argnums=(0,))(x, scale=2.0)[0]]
    made += uopc.value_and_grad(f)(x)
    y, pull_back = uopc.vjp(f, x)
    made += [y, *pull_back(1.0), *uopc.jvp(f, (x,), (x,))]
    made += [uopc.vmap(f, in_axes=0, out_axes=0)(Tensor([[1.0, 2.0]]))]
    made += [make(f)(x) for make in (uopc.jacobian, uopc.jacfwd, uopc.jacrev, uopc.hessian)]
    made += uopc.jacobian(lambda x: (f(x), x), argnums=0, has_aux=True)(x)
    made += [uopc.hvp(f, (x,), [x]), uopc.stop_gradient(x)]
    assert_type(uopc.stop_gradient((x, 1)), Tuple[Tensor, int])
    report = uopc.gradcheck(f, x, directions=1, tolerance=1e-6, step=1e-5, second_order=False, seed=1)
    assert_type(report, uopc.transform.GradcheckReport)
    assert report and report.passed and "agree" in str(report)
    for c in report.comparisons:
        assert_type(c, uopc.transform.Comparison)
        assert_type((c.argument, c.compared, c.verdict), Tuple[str, str, str])
        assert_type((c.found, c.wanted, c.error, c.allowed), Tuple[float, float, float, float])
        assert_type(c.shape, Tuple[int, ...])
    leaves, structure = uopc.tree_flatten({"x": x})
    assert_type(structure, uopc.tree.TreeDef)
    assert structure.num_leaves == len(leaves) == len(uopc.tree_leaves((x,)))
    assert structure.unflatten(leaves) == uopc.tree_unflatten(structure, leaves)
    return made + [uopc.tree_map(lambda a: a * 2, [x])[0]]


def diagnosed() -> List[Tensor]:
    w = Tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w).sum()
    explanation = loss.explain_gradient(w)
    assert_type(explanation, uopc.diagnose.Explanation)
    assert explanation and explanation.reaches and str(uopc.explain_gradient(loss, w))
    assert_type((explanation.paths, explanation.cuts), Tuple[List[List[str]], List[str]])
    assert_type(explanation.path_count, int)
    kept: Any = uopc.memory.checkpoint(lambda t: t * 2)(Tensor([1.0]))
    kept = uopc.checkpoint(lambda t: t + 1)(kept)
    with uopc.memory_limit("1G"), uopc.memory.memory_limit(1 << 20):
        assert kept is not None
    with uopc.strict_gradients():
        assert uopc.find_nan(loss, [w]) is None
    found = uopc.find_nan(Tensor([-1.0]).sqrt())
    assert isinstance(found, uopc.diagnose.Finding) and found.what == "NaN"
    assert_type((found.op, found.site, found.operands), Tuple[str, Optional[str], List[str]])
    assert_type((found.dtype, found.shape, found.index), Tuple[DType, Tuple[int, ...], Tuple[int, ...]])
    assert_type((found.value, found.may_be_meant), Tuple[float, bool])
    return [loss]


def with_rules() -> List[Tensor]:
    x = Tensor([1.0, 2.0])
    double = uopc.custom(lambda x: x * 2, vjp=lambda a, y, g: g * 2, jvp=lambda a, y, t: t[0] * 2)
    assert_type(double, uopc.rules.Custom)
    assert_type(double.check(x, tolerance=1e-3), Tuple[float, float])
    made = [double(x), uopc.straight_through(Tensor.trunc)(x)]
    made += [uopc.gradient_hook(x, lambda g: g), uopc.scale_gradient(x, 2)]
    return made + [uopc.clip_gradient(x, -1, 1)]


def plans() -> int:
    a = Tensor([[1.0, 2.0], [3.0, 4.0]])
    root = (a @ a).relu()
    plan, leaves = make_plan(root)
    assert_type((plan, leaves), Tuple[Plan, List[UOp]])
    for kernel in plan.kernels:
        assert_type(kernel, Kernel)
        assert_type(kernel.name + kernel.source + kernel.to_uir(), str)
        assert_type(kernel.flops + kernel.bytes, int)
        assert_type((kernel.inputs, kernel.outputs), Tuple[Tuple[Tuple[int, int], ...], Tuple[Tuple[int, int], ...]])
    for buffer in plan.buffers:
        assert_type(buffer, PlanBuffer)
        assert_type((buffer.dtype, buffer.n, buffer.slot, buffer.reason), Tuple[DType, int, Optional[int], str])
        assert buffer.role in ("input", "output", "temporary")
    assert_type(plan.outputs, Tuple[int, ...])
    assert_type(plan.to_uir() + plan.explain(), str)
    assert_type(plan_key([root.uop]), str)
    assert_type(listing(root, name="f", schedule="plain"), str)
    assert_type(stats(), Stats)
    cache = kernelize._plans
    assert_type(cache, PlanCache)
    assert len(list(cache)) == len(cache) and "x" not in cache
    cache.clear()
    s = stats()
    counts = s.plan_hits + s.plan_misses + s.plans + s.compiler_calls + s.disk_hits + s.launches
    return counts + s.peak_bytes


class Net(nn.Module):
    def __init__(self) -> None:
        self.embed = nn.Embedding(8, 4)
        self.body = nn.Sequential(nn.Linear(4, 8), Tensor.relu, nn.Linear(8, 3, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.body(self.embed(x))
        return result

    def extra_repr(self) -> str:
        return "a small one"


def train() -> float:
    Tensor.manual_seed(0)
    net = Net()
    assert_type(net.parameters(), List[Tensor])
    assert_type(net.named_parameters(), List[Tuple[str, Tensor]])
    assert_type(net.modules(), List[nn.Module])
    assert_type(nn.parameters([net, {"more": net}]), List[Tensor])
    assert_type(net.train(), Net)
    assert_type(net.eval(), Net)
    assert_type(net.train(False).training, bool)
    optimizers: List[Union[nn.SGD, nn.AdamW]] = [
        nn.SGD(net, lr=0.1, momentum=0.5),
        nn.AdamW(net.parameters(), lr=1e-2, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0),
    ]
    x, labels = Tensor([1, 2, 3]), Tensor([0, 1, 2])
    loss = Tensor(0.0)
    for opt in optimizers:
        loss = nn.cross_entropy(net(x), labels) + nn.mse(net(x), 0.0) + nn.mse_loss(net(x), 0.0)
        opt.zero_grad()
        net.zero_grad()
        loss.backward(opt.params)
        opt.step(loss)
        opt.step()
        opt.lr *= 0.5
        opt.load_state_dict(opt.state_dict())
    sgd, adam = nn.SGD([Tensor([1.0], requires_grad=True)]), nn.AdamW(net)
    assert_type((sgd.momentum, adam.betas, adam.eps, adam.weight_decay, adam.steps), Tuple[float, Tuple[float, float], float, float, int])
    state = net.state_dict()
    result = net.load_state_dict(state, strict=True)
    assert_type(result, nn.LoadResult)
    assert_type((result.missing, result.unexpected), Tuple[List[str], List[str]])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.safetensors")
        net.save(path)
        assert_type(net.load(path, strict=False), nn.LoadResult)
    first = nn.Linear(4, 8)
    assert_type((first.weight, first.bias), Tuple[Tensor, Optional[Tensor]])
    assert_type((first.in_features, first.out_features), Tuple[int, int])
    assert_type((net.embed.weight, net.embed.num_embeddings, net.embed.embedding_dim), Tuple[Tensor, int, int])
    assert len(net.body) == len(net.body.layers) == len(list(net.body)) and callable(net.body[0])
    assert "a small one" in repr(net)
    return float(loss)


def data_and_files() -> List[Tensor]:
    (x, y), (test_x, test_y) = uopc.data.digits()
    assert_type(x, Tensor)
    generator = uopc.Generator(0)
    made = [generator.uniform(2, low=-1.0, dtype="f64"), generator.randn(2, 3)]
    assert_type(generator.below(3), int)
    assert len(generator.permutation(5)) == 5
    try:
        uopc.data.idx("no-images", "no-labels")
    except OSError:
        pass
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.safetensors")
        uopc.io.save(path, {"x": made[0]})
        made += uopc.io.load(path).values()
        made += files(folder)
    made += batches(x, y)
    return [*made, x, y, test_x, test_y]


def files(folder: str) -> List[Tensor]:
    def at(name: str) -> str:
        return os.path.join(folder, name)

    uopc.io.save(at("a.weights"), {"x": Tensor([1.0])}, format="safetensors", metadata={"by": "hand"})
    file = uopc.io.open(at("a.weights"))
    assert_type(file, uopc.io.TensorFile)
    assert_type((file.format, file.metadata), Tuple[str, Dict[str, str]])
    assert_type(file.info("x"), Tuple[DType, Tuple[int, ...]])
    assert list(file) == file.keys() and "x" in file and len(file) == 1
    found = [file["x"], *file.values(), *(t for _, t in file.items())]
    uopc.io.save_npz(at("a.npz"), {"x": found[0]}, compress=True)
    uopc.io.save_sharded(at("shards"), {"x": found[0]}, max_shard_size=1 << 30, metadata={"a": "b"})
    uopc.io.save_npy(at("a.npy"), [1, 2])
    uopc.io.save_idx(at("a-idx.gz"), np.zeros(2, np.uint8))
    uopc.io.save_csv(at("a.csv"), [[1.0, 2.0]], ["a", "b"])
    table, columns = uopc.io.load_csv(at("a.csv"), header=True, delimiter=",", dtype="f64", missing=0.0)
    assert_type(columns, List[str])
    uopc.io.save_text(at("a.txt"), "text")
    alphabet = uopc.io.Alphabet(uopc.io.load_text(at("a.txt")))
    assert_type(alphabet.decode(alphabet.encode("ext")), str)
    assert alphabet.characters == "etx" and len(alphabet) == 3 and alphabet.decode([0]) == "e"
    found += [uopc.io.load_npy(at("a.npy")), uopc.io.load_idx(at("a-idx.gz")), table]
    return [*found, uopc.io.load_bytes(at("a.txt")), *uopc.io.load(at("shards")).values()]


def batches(x: Tensor, y: Tensor) -> List[Tensor]:
    def noisy(x: Tensor, y: Tensor, generator: uopc.Generator) -> Tuple[Tensor, Tensor]:
        return x + generator.randn(1), y

    loader = uopc.data.DataLoader(
        x, y, batch_size=500, shuffle=True, seed=1, drop_last=True, prefetch=1, transform=noisy, with_generator=True
    )
    assert_type(loader.state_dict(), Dict[str, int])
    loader.load_state_dict({"epoch": 1, "position": 1})
    assert_type(iter(loader), uopc.data.Batches)
    try:
        uopc.data.mnist("no-folder")
    except OSError:
        pass
    return [t for batch in loader for t in batch]


def layers() -> List[Tensor]:
    F = nn.functional

    sequences, images, volumes = Tensor.zeros(2, 4, 8), Tensor.zeros(2, 4, 8, 8), Tensor.zeros(1, 2, 4, 4, 4)
    found = [sequences.conv1d(Tensor.ones(6, 2, 3), groups=2), images.conv2d(Tensor.ones(6, 4, 3, 3), None, (1, 2), 1)]
    found += [volumes.conv3d(Tensor.ones(3, 2, 2, 2, 2)), sequences.conv_transpose1d(Tensor.ones(4, 2, 3), stride=2, output_padding=1)]
    found += [images.conv_transpose2d(Tensor.ones(4, 2, 2, 2)), volumes.conv_transpose3d(Tensor.ones(2, 2, 2, 2, 2))]
    found += [sequences.max_pool1d(2), images.max_pool2d((2, 2), ceil_mode=True), volumes.max_pool3d(2)]
    found += [sequences.avg_pool1d(2), images.avg_pool2d(2, count_include_pad=False), volumes.avg_pool3d(2)]
    found += [sequences.adaptive_avg_pool1d(3), images.adaptive_avg_pool2d((None, 3)), volumes.adaptive_avg_pool3d(1)]
    found += [sequences.adaptive_max_pool1d(3), images.adaptive_max_pool2d(3), volumes.adaptive_max_pool3d(1)]
    found += [images.interpolate(scale_factor=2.0, mode="bilinear", align_corners=True), images.interpolate((4, 4))]
    found += [sequences.scaled_dot_product_attention(sequences, sequences, is_causal=True, scale=0.5)]
    found += [sequences.layer_norm(8), sequences.rms_norm((8,), eps=1e-6), sequences.group_norm(2)]
    found += [sequences.batch_norm(training=True), sequences.dropout(0.5), sequences.pad([(0, 0), None, (1, 1)], mode="circular")]
    state = Tensor.random_state()
    assert_type(state, Tuple[int, int])
    Tensor.set_random_state(state)
    found += [F.linear(sequences, Tensor.ones(8, 2)), F.relu(sequences), F.conv1d(sequences, Tensor.ones(1, 4, 1))]
    p, t = Tensor([[0.25, 0.75]]), Tensor([[0.5, 0.5]])
    found += [nn.l1_loss(p, t), nn.huber_loss(p, t, delta=2.0), nn.smooth_l1_loss(p, t, beta=0.5)]
    found += [nn.binary_cross_entropy(p, t), nn.binary_cross_entropy_with_logits(p, t, reduction="sum")]
    found += [nn.kl_div(p.log(), t, log_target=False), nn.nll_loss(p.log(), [1]), nn.cross_entropy(p, t, label_smoothing=0.1)]
    convs = nn.Sequential(nn.Conv1d(4, 4, 3), nn.ConvTranspose1d(4, 4, 3), nn.BatchNorm1d(4), nn.MaxPool1d(2))
    convs = nn.Sequential(convs, nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(2), nn.GELU(), nn.SiLU(), nn.Tanh())
    nets = [nn.Conv2d(4, 4, 3), nn.ConvTranspose2d(4, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.AvgPool2d(2)]
    images_net = nn.Sequential(*nets, nn.AdaptiveAvgPool2d(2), nn.ReLU(), nn.GroupNorm(2, 4), nn.Sigmoid(), nn.Softplus())
    volumes_net = nn.Sequential(nn.Conv3d(2, 2, 2), nn.ConvTranspose3d(2, 2, 2), nn.Identity(), nn.Dropout(0.1))
    found += [convs(sequences), images_net(images), nn.Sequential(volumes_net, nn.Flatten())(volumes)]
    found += [nn.Sequential(nn.LayerNorm(8), nn.RMSNorm(8), nn.Softmax(), nn.LogSoftmax(-1))(sequences)]
    attention = nn.MultiheadAttention(8, 2, num_kv_heads=1)
    y, weights = attention(sequences, sequences, sequences)
    assert_type((y, weights), Tuple[Tensor, Optional[Tensor]])
    assert_type(attention.q_proj.of(Tensor([[1.0]])), nn.Linear)
    shapes = (attention.k_proj, attention.v_proj, attention.out_proj)
    conv = nn.Conv2d(1, 2, 3, padding="same")
    norm = nn.BatchNorm2d(2)
    kept: List[Optional[Tensor]] = [conv.weight, conv.bias, norm.running_mean, norm.running_var]
    return [*found, y, *(part.weight for part in shapes), *(t for t in kept if t is not None)]


def training() -> float:
    w = Tensor([[1.0, 2.0]], requires_grad=True)
    v = Tensor([1.0], requires_grad=True)
    rms = nn.RMSprop([w], alpha=0.9, momentum=0.5, centered=True)
    groups: List[Dict[str, Any]] = [{"params": [w]}, {"params": [v], "lr": 0.5}]
    sgd, adam, muon = nn.SGD(groups, nesterov=True), nn.Adam([w]), nn.Muon([w])
    assert_type((rms.alpha, rms.centered, sgd.nesterov, adam.betas), Tuple[float, bool, bool, Tuple[float, float]])
    assert_type(sgd.groups, List[List[Tensor]])
    sgd.lrs = [2 * lr for lr in sgd.lrs]
    parts = [nn.ConstantLR(muon), nn.StepLR(muon, 3), nn.MultiStepLR(muon, [3]), nn.ExponentialLR(muon, 0.9)]
    schedules: List[nn.LRScheduler] = [*parts, nn.CosineAnnealingLR(muon, 9), nn.OneCycleLR(muon, 1.0, 9)]
    schedules.append(nn.SequentialLR(muon, [nn.LinearLR(muon), parts[1]], [3]))
    for schedule in schedules:
        schedule.step()
        assert_type(schedule.get_last_lr(), List[float])
        schedule.load_state_dict(schedule.state_dict())
    (w * v).square().sum().backward([w, v])
    norm = nn.clip_grad_norm_([w, v], 1.0)
    nn.clip_grad_value_([w, v], 0.5)
    sgd.step(norm)
    ema = nn.EMA([w], decay=0.5)
    ema.update()
    with ema as same:
        assert_type(same.means, List[Tensor])
    ema.apply()
    ema.restore()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.safetensors")
        nn.save_checkpoint(path, optimizer=sgd, schedule=schedules[0], average=ema)
        nn.load_checkpoint(path, optimizer=sgd, schedule=schedules[0], average=ema)
    rate: float = schedules[0].optimizer.lr
    return float(norm.item()) + ema.decay + schedules[0].last_epoch + rate


def main() -> int:
    """Runs everything, and computes all of it; the number of tensors."""
    a = create()
    b = Tensor([[2.0, 1.0], [0.5, 3.0]], dtype="f64")
    i, j = Tensor([[5, -3], [7, 2]]), Tensor([[2, 2], [-3, 5]])
    describe(a)
    found = elementwise(a, b, i, j, a > b) + movement(a) + reductions(a, i) + parts(a)
    found += [in_place(b * 1, i * 1), *derivatives(), *transformed(), *data_and_files()]
    found += [*diagnosed(), *with_rules(), *layers()]
    assert training() > 0
    Tensor.realize_all(found)
    grad = gradients(a)
    assert grad is not None
    values(b)
    graphs()
    assert len(dtypes()) == 13 and uopc.__version__
    assert plans() > 0 and train() > 0
    return len(found)


if __name__ == "__main__":
    print(main())
