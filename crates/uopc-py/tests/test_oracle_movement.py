"""What moves elements and computes nothing, and matrix products, against NumPy.

Movement is exact: every bit arrives, and nothing else. Products of integers are exact, too; those
of floats err by at most k * eps * (the sum of the sizes of the products), for k products, in the
dtype in which they are added up, and are rounded once.
"""

import itertools
import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import support
from support import DTYPES, FLOATS, NP
from support import eps, moderate, near, promoted, run, same, values, widened
from uopc import Tensor

SHAPES = [(), (1,), (5,), (2, 3), (1, 4), (3, 1, 2), (2, 3, 4), (0,), (2, 0, 3)]


def numbered(shape, dtype="i32"):
    """An array whose elements all differ, so that each is seen to be at its place."""
    return np.arange(1, math.prod(shape) + 1).reshape(shape).astype(NP[dtype])


def compare(cases):
    """Pairs of a tensor and what it must be."""
    for k, (got, (_, expected)) in enumerate(zip(run(*(t for t, _ in cases)), cases)):
        same(got, np.asarray(expected), f"case {k}")


# ---- one function at a time, in all ways ----


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_axes_in_every_order(shape):
    x = numbered(shape)
    t = Tensor(x)
    rank = len(shape)
    cases = [(t.T, x.T), (t.transpose(None), x.transpose(None))]
    for order in itertools.permutations(range(rank)):
        cases.append((t.permute(order), x.transpose(order)))
        negative = [a - rank for a in order]
        cases.append((t.permute(*negative) if rank else t.permute(()), x.transpose(negative)))
    for a, b in itertools.product(range(-rank, rank), repeat=2):
        cases.append((t.swapaxes(a, b), x.swapaxes(a, b)))
        cases.append((t.transpose(a, b), x.swapaxes(a, b)))
    if rank >= 2:
        cases.append((t.transpose(), x.swapaxes(-1, -2)))
        cases.append((t.mT, x.swapaxes(-1, -2)))
    if rank == 3:
        cases.append((t.transpose((2, 0, 1)), x.transpose(2, 0, 1)))
        cases.append((t.transpose(2, 0, 1), x.transpose(2, 0, 1)))
    compare(cases)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_set_of_axes_reversed(shape):
    x = numbered(shape)
    t = Tensor(x)
    cases = [(t.flip(), np.flip(x)), (t.flip(None), np.flip(x)), (t.flip(()), x)]
    for k in range(len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), k):
            cases.append((t.flip(axes), np.flip(x, axes)))
            cases.append((t.flip([a - len(shape) for a in axes]), np.flip(x, axes)))
            if k > 1:
                cases.append((t.flip(*axes), np.flip(x, axes)))
    compare(cases)


@pytest.mark.parametrize("shape", [s for s in SHAPES if len(s) < 3], ids=str)
def test_axes_that_come_and_go(shape):
    x = numbered(shape)
    t = Tensor(x)
    cases = [(t.squeeze(), x.squeeze())]
    for axis in range(-len(shape) - 1, len(shape) + 1):
        longer = np.expand_dims(x, axis)
        cases.append((t.unsqueeze(axis), longer))
        cases.append((t.unsqueeze(dim=axis), longer))
        cases.append((Tensor(longer).squeeze(axis), x))
        cases.append((Tensor(longer).squeeze(dim=axis), x))
        cases.append((Tensor(longer).squeeze((axis,)), x))
    compare(cases)


def test_squeeze_takes_only_axes_of_extent_1():
    x = numbered((1, 3, 1))
    compare([(Tensor(x).squeeze((0, -1)), x.squeeze((0, -1))), (Tensor(x).squeeze(()), x)])
    for axes in (1, (0, 1), 3, (0, 0), -4):
        with pytest.raises(ValueError):
            Tensor(x).squeeze(axes)
    with pytest.raises(ValueError):
        Tensor(x).unsqueeze(4)
    with pytest.raises(TypeError):
        Tensor(x).unsqueeze()


def factorisations(n):
    """Shapes with n elements."""
    found = [(n,), (1, n), (n, 1)]
    for a in range(2, n):
        if n % a == 0:
            found += [(a, n // a), (1, a, 1, n // a)]
            found += [(b, a // b, n // a) for b in range(2, a) if a % b == 0]
    return found


@pytest.mark.parametrize("shape", [(12,), (3, 4), (2, 3, 2)], ids=str)
def test_reshaped_to_every_shape_of_as_many_elements(shape):
    x = numbered(shape)
    t = Tensor(x)
    cases = []
    for other in factorisations(12):
        cases.append((t.reshape(other), x.reshape(other)))
        for k in range(len(other)):
            open_one = other[:k] + (-1,) + other[k + 1 :]
            cases.append((t.reshape(*open_one), x.reshape(open_one)))
    # After a change of order a reshape has to move elements.
    turned, other_way = t.permute(*reversed(range(len(shape)))), x.T
    cases += [(turned.reshape(s), other_way.reshape(s)) for s in factorisations(12)]
    cases += [(t.view(4, 3), x.reshape(4, 3)), (t.ravel(), x.ravel()), (t.flatten(), x.ravel())]
    compare(cases)


def test_axes_joined():
    x = numbered((2, 3, 1, 4))
    t = Tensor(x)
    cases = [(t.flatten(1), x.reshape(2, 12)), (t.flatten(0, 1), x.reshape(6, 1, 4))]
    cases += [(t.flatten(1, -1), x.reshape(2, 12)), (t.flatten(-2), x.reshape(2, 3, 4))]
    cases += [(t.flatten(2, 2), x), (Tensor(numbered(())).flatten(), np.array([1], np.int32))]
    compare(cases)
    for axes in ((4,), (0, 4), (2, 1), (-5,)):
        with pytest.raises(ValueError):
            t.flatten(*axes)


def test_shapes_of_another_size_are_refused():
    t = Tensor.zeros(2, 3)
    for shape in ((7,), (4, -1), (-1, -1), (2, 3, 0), (-2, 3), (0, -1), (2**62, 4), (2**40, 2**40)):
        with pytest.raises(ValueError):
            t.reshape(shape)
    for shape in ((2.0, 3), ("6",), (True, 6)):
        with pytest.raises(TypeError):
            t.reshape(*shape)
    with pytest.raises(NotImplementedError):
        t.reshape(6, order="F")
    assert Tensor.zeros(0, 3).reshape(3, 0).shape == (3, 0)
    for shape in ((0, -1), (-1, 0)):
        with pytest.raises(ValueError):
            Tensor.zeros(0, 3).reshape(shape)


EXPANSIONS = [
    ((), (), ()),
    ((), (3,), (3,)),
    ((), (2, 3), (2, 3)),
    ((1,), (4,), (4,)),
    ((3,), (2, 3), (2, 3)),
    ((3, 1), (3, 4), (3, 4)),
    ((1, 3), (2, -1), (2, 3)),
    ((3, 1), (2, -1, 2), (2, 3, 2)),
    ((1, 3, 1), (2, 2, 3, 2), (2, 2, 3, 2)),
    ((1,), (0,), (0,)),
    ((3, 1), (3, 0), (3, 0)),
]


def test_axes_of_extent_1_repeated():
    cases = []
    for shape, given, full in EXPANSIONS:
        x = numbered(shape)
        expected = np.broadcast_to(x, full)
        cases.append((Tensor(x).expand(given), expected))
        cases.append((Tensor(x).broadcast_to(*given), expected))
        cases.append((Tensor(x).expand(given) + 1, expected + 1))
    compare(cases)
    for shape, wrong in [((3,), (4,)), ((2, 3), (3,)), ((2,), (2, 3)), ((3,), (-1, 3)), ((2,), (0,))]:
        with pytest.raises(ValueError):
            Tensor.zeros(shape).expand(wrong)


def test_zeros_around():
    cases = []
    for dtype in DTYPES:
        x = values(dtype, n=6).reshape(2, 3)
        for around in [((0, 0), (0, 0)), ((1, 0), (0, 2)), ((0, 3), (2, 1)), ((2, 2), (0, 0))]:
            cases.append((Tensor(x).pad(around), np.pad(x, around)))
    x = numbered((2, 3))
    cases.append((Tensor(x).pad((None, (1, 2))), np.pad(x, ((0, 0), (1, 2)))))
    cases.append((Tensor(numbered(())).pad(()), numbered(())))
    cases.append((Tensor(numbered((0, 2))).pad(((1, 1), (0, 0))), np.zeros((2, 2), np.int32)))
    cases.append((Tensor(x).pad([[1, 0], [0, 1]]).T.pad(((1, 1), (0, 1))),
                  np.pad(np.pad(x, ((1, 0), (0, 1))).T, ((1, 1), (0, 1)))))
    compare(cases)
    for around in [((1, 0),), ((1, 0), (0, 0), (0, 0)), ((-1, 0), (0, 0))]:
        with pytest.raises(ValueError):
            Tensor(x).pad(around)
    for around in [1, (1, 0), ((1,), (0, 0)), ((1, 2, 3), (0, 0)), "ab", ((1.5, 0), (0, 0))]:
        with pytest.raises(TypeError):
            Tensor(x).pad(around)


def test_windows():
    x = numbered((3, 4))
    t = Tensor(x)
    cases = []
    for a, b in itertools.combinations_with_replacement(range(4), 2):
        cases.append((t.shrink(((a, b), (1, 3))), x[a:b, 1:3]))
        cases.append((t.shrink((None, (a, b))), x[:, a:b]))
    compare(cases)
    for bounds in [((0, 4), None), ((2, 1), None), ((0, 3),), ((0, 3), (0, 5)), ((-1, 3), None)]:
        with pytest.raises(ValueError):
            t.shrink(bounds)


# ---- joining ----


def test_joined_along_every_axis():
    cases = []
    for axis in (0, 1, 2, -1, -2, -3):
        shapes = [[2, 3, 2] for _ in range(3)]
        for n, shape in zip((1, 3, 2), shapes):
            shape[axis] = n
        arrays = [numbered(tuple(s)) * 10**k for k, s in enumerate(shapes)]
        tensors = [Tensor(a) for a in arrays]
        for joined in (Tensor.cat(tensors, axis), Tensor.cat(tensors, dim=axis)):
            cases.append((joined, np.concatenate(arrays, axis)))
    equal = [numbered((2, 3)) * 10**k for k in range(3)]
    for axis in (0, 1, 2, -1, -2, -3):
        tensors = [Tensor(a) for a in equal]
        cases.append((Tensor.stack(tensors, axis), np.stack(equal, axis)))
        cases.append((Tensor.stack(tensors, dim=axis), np.stack(equal, axis)))
    cases.append((Tensor.cat([Tensor(equal[0])]), equal[0]))
    cases.append((Tensor.concatenate([Tensor(equal[0]), equal[1]]), np.concatenate(equal[:2])))
    cases.append((Tensor.stack([Tensor(1), Tensor(2)]), np.array([1, 2], np.int32)))
    cases.append((Tensor(equal[0]).stack_with(Tensor(equal[1])), np.stack(equal[:2])))
    empty = np.zeros((0, 3), np.int32)
    cases.append((Tensor.cat([Tensor(empty), Tensor(equal[0])]), equal[0]))
    cases.append((Tensor.cat([Tensor(empty), Tensor(empty)]), empty))
    compare(cases)


def test_joining_promotes_dtypes():
    for a, b in [("i32", "f32"), ("u8", "i8"), ("bool", "i64"), ("f16", "bf16"), ("f32", "f64")]:
        x, y = values(a, n=8), values(b, n=8)
        common = NP[promoted(a, b)]
        with np.errstate(over="ignore"):
            expected = [x.astype(common), y.astype(common)]
        compare(
            [
                (Tensor.cat([Tensor(x), Tensor(y)]), np.concatenate(expected)),
                (Tensor.stack([Tensor(x), Tensor(y)]), np.stack(expected)),
            ]
        )


def test_what_can_not_be_joined():
    a = Tensor.zeros(2, 3)
    for wrong in ([], [a, Tensor.zeros(2, 4)], [a, Tensor.zeros(2)]):
        with pytest.raises(ValueError):
            Tensor.cat(wrong)
        with pytest.raises(ValueError):
            Tensor.stack(wrong)
    for axis in (2, -3):
        with pytest.raises(ValueError):
            Tensor.cat([a, a], axis)
    with pytest.raises(ValueError):
        Tensor.cat([Tensor(1), Tensor(2)])
    with pytest.raises(TypeError):
        Tensor.cat(3)
    assert Tensor.concat == Tensor.concatenate == Tensor.cat


# ---- several in a row ----


def steps(draw, x, t, n):
    """Applies movement that hypothesis draws, to an array and a tensor alike."""
    for _ in range(n):
        rank = x.ndim
        kind = draw(st.sampled_from(["permute", "flip", "pad", "shrink", "reshape", "expand", "cat"]))
        if kind == "permute":
            order = draw(st.permutations(range(rank)))
            x, t = x.transpose(order), t.permute(tuple(order))
        elif kind == "flip" and rank:
            axis = draw(st.integers(-rank, rank - 1))
            x, t = np.flip(x, axis), t.flip(axis)
        elif kind == "pad":
            around = [(draw(st.integers(0, 1)), draw(st.integers(0, 1))) for _ in range(rank)]
            x, t = np.pad(x, around) if rank else x, t.pad(around)
        elif kind == "shrink":
            bounds = []
            for extent in x.shape:
                begin = draw(st.integers(0, extent))
                bounds.append((begin, draw(st.integers(begin, extent))))
            x, t = x[tuple(slice(*b) for b in bounds)], t.shrink(bounds)
        elif kind == "reshape" and 1 < x.size < 30:
            shape = draw(st.sampled_from(factorisations(x.size)))
            x, t = x.reshape(shape), t.reshape(shape)
        elif kind == "expand" and 1 in x.shape and x.size < 40:
            shape = [2 if n == 1 else n for n in x.shape]
            x, t = np.broadcast_to(x, shape), t.expand(shape)
        elif kind == "cat" and rank and x.size < 40:
            axis = draw(st.integers(0, rank - 1))
            x, t = np.concatenate([x, np.flip(x, axis)], axis), Tensor.cat([t, t.flip(axis)], axis)
    return x, t


@support.examples(40)
@hypothesis.given(st.data())
def test_chains_of_movement(data):
    shape = data.draw(st.sampled_from([(6,), (2, 3), (3, 1, 2), (2, 2, 3)]))
    dtype = data.draw(st.sampled_from(["i32", "u8", "f64", "f16", "bool"]))
    x = numbered(shape, dtype)
    t = Tensor(x)
    x, t = steps(data.draw, x, t, data.draw(st.integers(2, 6)))
    assert t.shape == x.shape
    assert t.realize().tolist() == x.tolist()
    same(t.numpy(), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_bit_of_every_dtype_arrives(dtype):
    x = values(dtype, n=60).reshape(3, 4, 5)
    t = Tensor(x)
    compare(
        [
            (t.permute(2, 0, 1).flip(0), np.flip(x.transpose(2, 0, 1), 0)),
            (t.reshape(5, 12).shrink(((1, 4), (2, 11))).T, x.reshape(5, 12)[1:4, 2:11].T),
            (Tensor.cat([t, t.flip(1)], 1), np.concatenate([x, np.flip(x, 1)], 1)),
        ]
    )


# ---- matrix products ----


def check_matmul(got, a, b, dtype, what=""):
    common = NP[dtype]
    if dtype not in FLOATS:
        return same(got, np.asarray(np.matmul(a.astype(common), b.astype(common))), what)
    a, b = widened(a.astype(common)), widened(b.astype(common))
    inner = a.shape[-1]
    step = "f32" if dtype in ("f16", "bf16") else dtype
    slack = np.matmul(np.abs(a), np.abs(b)) * (inner + 1) * eps(step)
    near(got, np.asarray(np.matmul(a, b)), dtype, 0.5 + 2**-10, what, slack=slack)


# Batches that broadcast in both directions, axes that one side lacks, and empty ones.
LEFT = [(4,), (3, 4), (2, 3, 4), (1, 3, 4), (5, 1, 3, 4), (0, 4), (2, 0, 4), (0, 3, 4)]
RIGHT = [(4,), (4, 2), (2, 4, 2), (1, 4, 2), (2, 4, 1), (1, 2, 4, 2), (4, 0), (5, 2, 4, 2)]


@pytest.mark.parametrize("left", LEFT, ids=str)
def test_products_of_all_ranks(left):
    a = moderate("f32", left)
    products = []
    for right in RIGHT:
        b = moderate("f32", right, seed=1)
        try:
            np.matmul(a, b)
        except ValueError:
            with pytest.raises(ValueError):
                Tensor(a) @ Tensor(b)
        else:
            products.append((b, Tensor(a) @ Tensor(b)))
    for (b, _), got in zip(products, run(*(t for _, t in products))):
        check_matmul(got, a, b, "f32", f"{left} @ {b.shape}")


def test_products_over_nothing_are_zeros():
    for left, right in [((3, 0), (0, 2)), ((0,), (0,)), ((2, 3, 0), (0,)), ((0,), (2, 0, 3))]:
        a, b = np.zeros(left, np.float32), np.zeros(right, np.float32)
        same((Tensor(a) @ Tensor(b)).numpy(), np.asarray(a @ b))


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_in_every_dtype(dtype):
    a, b = moderate(dtype, (3, 5)), moderate(dtype, (5, 4), seed=1)
    got = run(Tensor(a) @ Tensor(b), Tensor(a).matmul(b), Tensor(a) @ b, a @ Tensor(b))
    for y in got:
        check_matmul(y, a, b, dtype, dtype)
    if dtype not in FLOATS:
        a, b = (values(dtype, seed, 15) for seed in (1, 2))
        a, b = a.reshape(3, 5), b.reshape(5, 3)
        check_matmul((Tensor(a) @ Tensor(b)).numpy(), a, b, dtype, f"extreme {dtype}")


def test_products_of_two_dtypes_are_promoted():
    for a, b in [("i32", "f32"), ("u8", "i8"), ("f16", "bf16"), ("i64", "f64"), ("bool", "f32")]:
        x, y = moderate(a, (2, 3)), moderate(b, (3, 2), seed=1)
        check_matmul((Tensor(x) @ Tensor(y)).numpy(), x, y, promoted(a, b))


@pytest.mark.parametrize("dtype", FLOATS)
def test_larger_products_and_turned_operands(dtype):
    a, b = moderate(dtype, (33, 70)), moderate(dtype, (70, 17), seed=1)
    x, y = Tensor(a), Tensor(b)
    got = run(x @ y, Tensor(np.ascontiguousarray(a.T)).T @ y, y.T @ x.T, (x * 2) @ y, x @ y[:, 0])
    check_matmul(got[0], a, b, dtype)
    same(got[1], got[0])
    check_matmul(got[2], b.T, a.T, dtype)
    check_matmul(got[3], a + a, b, dtype)
    check_matmul(got[4], a, b[:, 0], dtype)


def test_inner_products_longer_than_a_block():
    a, b = moderate("f32", (2, 9000)), moderate("f32", (9000, 3), seed=1)
    check_matmul((Tensor(a) @ Tensor(b)).numpy(), a, b, "f32")


@pytest.mark.parametrize("dtype", FLOATS)
def test_products_with_nan_and_infinities(dtype):
    a = np.array([[np.nan, 1.0], [np.inf, 1.0], [np.inf, -np.inf], [0.0, 2.0]]).astype(NP[dtype])
    b = np.array([[1.0, 0.0, np.inf], [1.0, 1.0, np.nan]]).astype(NP[dtype])
    with np.errstate(invalid="ignore"):
        expected = (a.astype(np.float64) @ b.astype(np.float64)).astype(NP[dtype])
    same((Tensor(a) @ Tensor(b)).numpy(), expected, zeros=False)


def test_products_that_are_refused():
    t = Tensor.zeros(2, 3)
    for other in (Tensor.zeros(2), Tensor.zeros(2, 3), Tensor.zeros(2, 4, 2)):
        with pytest.raises(ValueError, match=r"\(2, 3\)"):
            t @ other
    for number in (2, 2.0, Tensor(2.0)):
        with pytest.raises(ValueError):
            t @ number
        with pytest.raises(ValueError):
            number @ t
    with pytest.raises(TypeError):
        t @ "a"
