"""Parts of tensors, read and replaced, against NumPy. All of it is exact.

Where NumPy raises IndexError or ValueError, the library raises the same, and nowhere else. For a mask
alone and a value of several axes NumPy has a TypeError even if the value broadcasts; the library
treats it as all others, so that is no part of this.
"""

import itertools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import support
from support import DTYPES, FLOATS, INTS, NP, SIGNED
from support import run, same, values
from uopc import Tensor

SHAPES = [(), (5,), (3, 4), (2, 3, 4), (4, 1, 3), (0, 3), (1,)]


def numbered(shape, dtype="i32"):
    return np.arange(1, np.prod(shape, dtype=int) + 1).reshape(shape).astype(NP[dtype])


def attempt(function, *arguments):
    """What a function gives or raises."""
    try:
        return function(*arguments)
    except (IndexError, ValueError, TypeError) as error:
        return type(error)


def read_all(x, t, keys):
    """Reads parts of an array and of a tensor, which must give and refuse the same."""
    parts = []
    for key in keys:
        expected, got = attempt(x.__getitem__, key), attempt(t.__getitem__, key)
        if isinstance(expected, type):
            assert got is expected, f"{key} of {x.shape}: {got}, NumPy has {expected}"
        else:
            assert not isinstance(got, type), f"{key} of {x.shape}: {got}"
            parts.append((key, got, np.asarray(expected)))
    for (key, _, expected), got in zip(parts, run(*(p for _, p, _ in parts))):
        same(got, expected, f"{key} of {x.shape}")


# ---- reading ----


@pytest.mark.parametrize("n", [0, 1, 4, 5])
def test_every_slice_of_one_axis(n):
    x = numbered((n,))
    ends = [None, *range(-n - 2, n + 3)]
    steps = [None, 1, 2, 3, -1, -2, -3, n + 1, -n - 1]
    keys = [slice(*parts) for parts in itertools.product(ends, ends, steps)]
    t = Tensor(x)
    # Slices that mean the same positions are the same graph; each is computed once.
    groups = {}
    for key in keys:
        assert t[key].shape == x[key].shape, key
        groups.setdefault(tuple(x[key]), []).append(key)
    chosen = [group[k] for group in groups.values() for k in (0, len(group) // 2, -1)]
    read_all(x, t, chosen)
    read_all(x, t, [slice(None, None, 0), slice(1, 2, 0)])
    for far in (2**31, 2**63 - 1, 2**63, 10**30):
        read_all(x, t, [slice(far), slice(-far, None), slice(None, None, -far), slice(far, -far, -1)])


def test_every_position_of_one_axis():
    x = numbered((4, 2))
    read_all(x, Tensor(x), [*range(-6, 7), np.int8(2), np.uint64(3), np.array(1)])
    # NumPy has an OverflowError for some of these.
    for far in (2**63, -(2**63), -(2**70)):
        with pytest.raises(IndexError):
            Tensor(x)[far]


def entries(n):
    """An integer, mostly a position that an axis of that extent has, or any slice."""
    ends = st.none() | st.integers(-n - 2, n + 2)
    steps = st.none() | st.sampled_from([1, 2, 3, -1, -2, -3])
    inside = st.integers(-n, n - 1) if n else st.nothing()
    return inside | st.builds(slice, ends, ends, steps) | st.integers(-n - 1, n)


@st.composite
def keys_of(draw, shape):
    """An index of anything that may stand in one, in any order, mostly a valid one."""
    named = draw(st.integers(0, len(shape)))
    key = [draw(entries(n)) for n in shape[:named]]
    if draw(st.booleans()):
        # The axes behind an ellipsis are the last ones.
        place = draw(st.integers(0, named))
        key[place:] = [draw(entries(n)) for n in shape[len(shape) - (named - place) :]]
        key.insert(place, Ellipsis)
    for _ in range(draw(st.integers(0, 2))):
        key.insert(draw(st.integers(0, len(key))), None)
    if draw(st.integers(0, 9)) == 0:
        key.append(draw(st.sampled_from([Ellipsis, 0, slice(None)])))
    if len(key) == 1 and draw(st.booleans()):
        return key[0]
    return tuple(key)


@st.composite
def positions_of(draw, n, shape):
    """Positions of an axis: an array of any integers, a list, or a tensor, whose positions exist."""
    dtype = draw(st.sampled_from(SIGNED))
    size = int(np.prod(shape))
    inside = st.integers(-n, n - 1) if n else st.integers(-1, 0)
    numbers = draw(st.lists(inside, min_size=size, max_size=size))
    if size and draw(st.integers(0, 19)) == 0:
        numbers[0] = draw(st.sampled_from([n, -n - 1]))
    array = np.array(numbers, NP[dtype]).reshape(shape)
    kind = draw(st.sampled_from(["array", "list", "tensor"]))
    if kind == "tensor" and all(-n <= p < n for p in numbers):
        return Tensor(array)
    return array.tolist() if kind == "list" and array.ndim else array


@st.composite
def any_keys_of(draw, shape):
    """An index of integers, slices, positions and masks, in any order, mostly a valid one."""
    common = draw(st.sampled_from([(2,), (3,), (2, 3), (), (0,)]))
    broadcast = st.sampled_from([common, common, common[1:], (1,), (), (4,)])
    key, axis = [], 0
    named = draw(st.integers(0, len(shape)))
    while axis < named:
        # NumPy does not look at the extents of a mask that is empty.
        kinds = ["entry", "positions", "positions"] + ["mask"] * (0 not in shape)
        kind = draw(st.sampled_from(kinds))
        if kind == "entry":
            key.append(draw(entries(shape[axis])))
        elif kind == "positions":
            key.append(draw(positions_of(shape[axis], draw(broadcast))))
        else:
            extents = shape[axis : draw(st.integers(axis + 1, named))]
            size = int(np.prod(extents))
            flags = draw(st.lists(st.booleans(), min_size=size, max_size=size))
            mask = np.array(flags, bool).reshape(extents)
            key.append(mask if draw(st.booleans()) else Tensor(mask))
            axis += len(extents) - 1
        axis += 1
    if draw(st.booleans()):
        key.insert(draw(st.integers(0, len(key))), Ellipsis)
    for extra in draw(st.lists(st.sampled_from([None, None, True, False, np.True_]), max_size=2)):
        key.insert(draw(st.integers(0, len(key))), extra)
    if len(key) == 1 and draw(st.booleans()):
        return key[0]
    return tuple(key)


def for_numpy(key):
    one = lambda k: k.numpy() if isinstance(k, Tensor) else k
    return tuple(map(one, key)) if isinstance(key, tuple) else one(key)


@support.examples(40)
@hypothesis.given(st.data())
def test_positions_and_masks_read_and_replaced(data):
    shape = data.draw(st.sampled_from([*SHAPES, (2, 3, 2, 3)]))
    x = numbered(shape)
    found = []
    for _ in range(4):
        key = data.draw(any_keys_of(shape))
        plain, what = for_numpy(key), f"{key} of {shape}"
        part, got = attempt(x.__getitem__, plain), attempt(Tensor(x).__getitem__, key)
        if isinstance(part, type):
            assert got is part, f"{what}: {got}, NumPy has {part}"
            assert attempt(Tensor(x).__setitem__, key, 1) is part, what
            continue
        assert not isinstance(got, type), f"{what}: {got}, NumPy gives {part}"
        found.append((what, got, np.asarray(part)))
        value = data.draw(values_for(np.shape(part)))
        y, t = x.copy(), Tensor(x)
        expected = attempt(y.__setitem__, as_part(plain, part), value)
        got = attempt(t.__setitem__, key, value if isinstance(value, int) else Tensor(value))
        if expected is TypeError:
            continue
        assert got is expected, f"{what} = {np.shape(value)}: {got}, NumPy has {expected}"
        found.append((what, t, x if isinstance(expected, type) else y))
    for (what, _, expected), got in zip(found, run(*(t for _, t, _ in found))):
        same(got, expected, what)


@support.examples(30)
@hypothesis.given(st.data())
def test_parts_with_any_index(data):
    shape = data.draw(st.sampled_from(SHAPES))
    x = numbered(shape)
    read_all(x, Tensor(x), [data.draw(keys_of(shape)) for _ in range(4)])


@support.examples(25)
@hypothesis.given(st.data())
def test_parts_of_parts_and_of_results(data):
    shape = data.draw(st.sampled_from([(5,), (3, 4), (2, 3, 4)]))
    x = numbered(shape)
    # A leaf, a result that is not computed yet, and one whose order of axes has changed.
    y, t = data.draw(
        st.sampled_from([(x, Tensor(x)), (x * x, Tensor(x) * Tensor(x)), (x.T, Tensor(x).T)])
    )
    for _ in range(data.draw(st.integers(2, 3))):
        key = data.draw(keys_of(y.shape))
        part = attempt(y.__getitem__, key)
        if isinstance(part, type):
            assert attempt(t.__getitem__, key) is part
            return
        y, t = np.asarray(part), t[key]
    same((t + 1).numpy(), y + 1)
    same(t.numpy(), y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_have_every_bit_of_every_dtype(dtype):
    x = values(dtype, n=60).reshape(3, 4, 5)
    keys = [1, (slice(None, None, -1), 2), (..., slice(4, 0, -2)), (0, None, 3), (2, 1, 4)]
    read_all(x, Tensor(x), keys)


def test_entries_of_the_first_axis():
    x = numbered((4, 3))
    t = Tensor(x)
    assert len(t) == 4
    for got, expected in zip(run(*t), x):
        same(got, expected)
    assert [float(e) for e in Tensor([1.0, 2.5])] == [1.0, 2.5]
    assert list(Tensor.zeros(0, 3)) == [] and len(Tensor.zeros(0, 3)) == 0
    a, b = Tensor([1, 2])
    assert (a.item(), b.item()) == (1, 2)
    assert [e.item() for e in reversed(Tensor([1, 2, 3]))] == [3, 2, 1]
    for use in (len, iter, list, reversed):
        with pytest.raises(TypeError):
            use(Tensor(1.0))


def test_whether_an_element_is_there():
    x = np.array([[1.0, np.nan], [3.0, -0.0]])
    for value in (1.0, 1, 0.0, 2.0, np.nan, True, np.float32(3)):
        assert (value in Tensor(x)) is (value in x), value
    assert Tensor([[3.0, 0.0], [3.0, 9.0]]) in Tensor(x) and Tensor([5.0, 1.0]) not in Tensor(x)
    assert 1 not in Tensor.zeros(0)


# ---- replacing ----


@st.composite
def values_for(draw, shape):
    """A value for a part of that shape: mostly one that broadcasts to it."""
    kind = draw(st.sampled_from(["number", "full", "broadcast", "longer", "wrong"]))
    if kind == "number":
        return draw(st.integers(-50, 50))
    shape = list(shape)
    if kind == "broadcast":
        shape = [1 if draw(st.booleans()) else n for n in shape]
        shape = shape[draw(st.integers(0, len(shape))) :]
    elif kind == "longer":
        shape = [1] * draw(st.integers(1, 2)) + shape
    elif kind == "wrong":
        shape = shape + [draw(st.integers(2, 3))]
    return -numbered(tuple(shape))


def as_part(key, part):
    """The index with an ellipsis if it names a single element. NumPy sets an element to arrays of
    one element in some releases and not in others; a part without axes follows the rule of all."""
    key = key if isinstance(key, tuple) else (key,)
    return key if np.ndim(part) or Ellipsis in key else (*key, Ellipsis)


@support.examples(40)
@hypothesis.given(st.data())
def test_parts_replaced_one_after_the_other(data):
    shape = data.draw(st.sampled_from([(5,), (3, 4), (2, 3, 4), (), (4, 1, 3)]))
    x = numbered(shape)
    t = Tensor(x)
    before, old, other_name = x.copy(), t + 0, t
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(keys_of(shape))
        part = attempt(x.__getitem__, key)
        if isinstance(part, type):
            assert attempt(t.__setitem__, key, 0) is part, key
            continue
        value = data.draw(values_for(np.shape(part)))
        given = value if isinstance(value, int) or data.draw(st.booleans()) else Tensor(value)
        expected = attempt(x.__setitem__, as_part(key, part), value)
        got = attempt(t.__setitem__, key, given)
        assert got is expected, f"{key} of {shape} = {np.shape(value)}: {got}, NumPy has {expected}"
    got, kept = run(other_name, old)
    same(got, x)
    same(kept, before, "what was computed before")


@support.examples(15)
@hypothesis.given(st.data())
def test_a_copy_with_a_part_replaced(data):
    shape = data.draw(st.sampled_from([(5,), (3, 4), (2, 3, 4)]))
    x = numbered(shape)
    key = data.draw(keys_of(shape))
    y = x.copy()
    if isinstance(attempt(y.__setitem__, key, -1), type):
        with pytest.raises((IndexError, ValueError)):
            Tensor(x).with_slice(key, -1)
        return
    t = Tensor(x)
    got, same_as_before = run(t.with_slice(key, -1), t)
    same(got, y)
    same(same_as_before, x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_replaced_parts_have_every_bit_of_every_dtype(dtype):
    x, y = values(dtype, n=24).reshape(4, 6), values(dtype, seed=1, n=24)[::-1].reshape(4, 6)
    a, t = x.copy(), Tensor(x)
    for key in ((slice(1, 3),), (slice(None), slice(None, None, -2)), (3, 4)):
        a[key], t[key] = y[key], Tensor(y)[key]
    same(t.numpy(), a)


def takes(dtype, other):
    """Whether a part of a dtype takes values of another one, by the documented rule: no kind of
    number is lost, where bools are fewer than integers, and those fewer than floats."""
    kind = lambda d: 0 if d == "bool" else 2 if d in FLOATS else 1
    return kind(other) <= kind(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_value_takes_the_dtype_if_no_kind_of_number_is_lost(dtype):
    x = np.ones(3, NP[dtype])
    results = []
    for other in DTYPES:
        t = Tensor(x)
        value = np.array([1, 0], NP[other])
        if takes(dtype, other):
            t[1:] = Tensor(value)
            results.append((t, [1, 1, 0]))
        else:
            with pytest.raises(TypeError):
                t[1:] = Tensor(value)
            results.append((t, [1, 1, 1]))
    for got, (_, expected) in zip(run(*(t for t, _ in results)), results):
        same(got, np.array(expected, NP[dtype]))


def test_numbers_that_do_not_fit_are_refused():
    t = Tensor([1, 2])
    for value in (1.5, 2**31, [1.5, 2.5]):
        with pytest.raises((TypeError, OverflowError, ValueError)):
            t[0:2] = value
    with pytest.raises(TypeError):
        Tensor([True])[0] = 2
    for value in ("a", None, object()):
        with pytest.raises((TypeError, ValueError)):
            t[0] = value
    assert t.tolist() == [1, 2]


def test_a_part_is_a_value_and_no_view():
    x = numbered((2, 3))
    t = Tensor(x)
    row = t[0]
    row[1] = 100
    row += 1
    same(t.numpy(), x)
    same(row.numpy(), np.array([2, 101, 4], np.int32))
    t[0] = 0
    same(row.numpy(), np.array([2, 101, 4], np.int32))


def test_parts_changed_in_place():
    x = numbered((3, 4))
    t = Tensor(x)
    t[1] += 10
    x[1] += 10
    t[:, ::2] *= 2
    x[:, ::2] *= 2
    t[-1, 1:] -= t[0, 1:]
    x[-1, 1:] -= x[0, 1:]
    # Each side is read before it is written.
    t[:, ::-1] = t
    x[:, ::-1] = x.copy()
    t[1:] = t[:-1]
    x[1:] = x[:-1].copy()
    same(t.numpy(), x)


def test_a_loop_of_assignments_fills_a_tensor():
    t = Tensor.zeros(12, 2)
    for k in range(12):
        t[k] = Tensor([float(k), -1.0])
    same(t.numpy(), np.stack([np.arange(12), np.full(12, -1)], 1).astype(np.float32))


def test_deleting_a_part_is_refused():
    with pytest.raises(TypeError):
        del Tensor([1, 2])[0]


# ---- positions in tensors ----


@pytest.mark.parametrize("dtype", INTS)
def test_entries_at_positions(dtype):
    x = numbered((5, 3), "f32")
    low = -5 if dtype in SIGNED else 0
    for shape in [(), (4,), (2, 3), (0,)]:
        p = np.random.default_rng(1).integers(low, 5, shape).astype(NP[dtype])
        got = run(Tensor(x).take(Tensor(p)), Tensor(x).take(p, axis=None))
        same(got[0], np.take(x, p, axis=0))
        same(got[1], np.asarray(np.take(x, p)))


def test_positions_out_of_range_read_zeros():
    x = numbered((3, 2))
    got = Tensor(x).take([2, 3, -3, -4, 10**6]).numpy()
    same(got, np.array([[5, 6], [0, 0], [1, 2], [0, 0], [0, 0]], np.int32))
    with pytest.raises(TypeError):
        Tensor(x).take(Tensor([0.0]))
    same(Tensor(x).take([0, 5], axis=1).numpy(), np.stack([x[:, 0], 0 * x[:, 0]], 1))
    with pytest.raises(ValueError):
        Tensor(x).take([0], axis=2)
    with pytest.raises(ValueError):
        Tensor(1).take([0])


def test_single_entries_and_ranges():
    x = numbered((3, 4, 2))
    t = Tensor(x)
    cases = [(t.get(k), x[k]) for k in range(-3, 3)]
    for axis in range(-3, 3):
        for start, length in [(0, 2), (1, 1), (0, 0), (2, 0), (-2, 2), (-1, 1), (-2, 1)]:
            first = start + x.shape[axis] if start < 0 else start
            expected = np.take(x, range(first, first + length), axis)
            cases.append((t.narrow(axis, start, length), expected))
    for (_, expected), got in zip(cases, run(*(p for p, _ in cases))):
        same(got, expected)
    for k in (3, -4, 2**63):
        with pytest.raises((IndexError, ValueError)):
            t.get(k)
    for wrong in [(3, 0, 1), (0, 0, 4), (0, 2, 2), (0, -4, 1), (0, 0, -1), (-4, 0, 1), (0, -1, 2)]:
        with pytest.raises((IndexError, ValueError)):
            t.narrow(*wrong)


@pytest.mark.parametrize("dtype", INTS)
def test_ones_at_classes(dtype):
    labels = np.array([[0, 2], [1, 3]], NP[dtype])
    same(Tensor(labels).one_hot(4).numpy(), np.eye(4, dtype=np.float32)[labels.astype(int)])
    same(Tensor(labels).one_hot(2).numpy()[0, 1], np.zeros(2, np.float32))
    assert Tensor(labels).one_hot(0).shape == (2, 2, 0)
    with pytest.raises(TypeError):
        Tensor([0.0]).one_hot(2)
    with pytest.raises((ValueError, OverflowError)):
        Tensor(labels).one_hot(-1)
