"""Random numbers: the bits that Threefry gives, their distribution, seeds, streams and threads.

Every seed is fixed, so each statistical bound holds or fails for good; the bounds are those that a
good generator passes in all but one of about 10,000 draws.
"""

import math
import threading

import numpy as np
import pytest

import support
from support import FLOATS, NP, eps, near, run, same, wide
from uopc import Tensor, nn

# ---- bit by bit ----

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


def threefry(key, counter):
    """Threefry-2x32 with 20 rounds, as Salmon and others published it in 2011."""
    keys = [*key, key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)]
    with np.errstate(over="ignore"):
        a, b = (np.asarray(c, np.uint32) + k for c, k in zip(counter, keys))
        for i in range(20):
            a = a + b
            r = np.uint32(ROTATIONS[i % 8])
            b = ((b << r) | (b >> np.uint32(32 - r))) ^ a
            if i % 4 == 3:
                k = i // 4 + 1
                a = a + keys[k % 3]
                b = b + keys[(k + 1) % 3] + np.uint32(k)
    return a, b


def words(seed, call, n):
    """The two words of each element of one call under a seed."""
    halves = lambda number: [np.uint32(number & 0xFFFFFFFF), np.uint32(number >> 32)]
    key = threefry(halves(seed), halves(call))
    return threefry(key, (np.arange(n, dtype=np.uint32), np.zeros(n, np.uint32)))


def test_the_reference_gives_the_published_numbers():
    zero, ones = np.uint32(0), np.uint32(0xFFFFFFFF)
    assert threefry((zero, zero), (zero, zero)) == (0x6B200159, 0x99BA4EFE)
    assert threefry((ones, ones), (ones, ones)) == (0x1CB996FC, 0xBB002BE7)


BITS = {"f16": 11, "bf16": 8, "f32": 24}


@pytest.mark.parametrize("seed", [0, 7, 2**40 + 3])
def test_uniform_numbers_are_the_generators_bits(seed):
    Tensor.manual_seed(seed)
    drawn = [Tensor.rand(5, 3), Tensor.rand(1000), Tensor.rand(15, dtype="f64")]
    drawn += [Tensor.rand(15, dtype=d) for d in ("f16", "bf16")]
    got = run(*drawn)
    for call, (y, dtype) in enumerate(zip(got, ("f32", "f32", "f64", "f16", "bf16"))):
        first, second = words(seed, call, y.size)
        if dtype == "f64":
            whole = (first >> np.uint32(6)).astype(np.uint64) << np.uint64(27)
            expected = (whole | (second >> np.uint32(5)).astype(np.uint64)) * 2.0**-53
        else:
            bits = BITS[dtype]
            expected = (first >> np.uint32(32 - bits)).astype(np.float64) * 2.0**-bits
        same(y, expected.astype(NP[dtype]).reshape(y.shape), f"call {call}")


def test_normal_numbers_are_those_of_box_and_muller():
    Tensor.manual_seed(3)
    got = Tensor.randn(2000).numpy()
    first, second = (w.astype(wide) for w in words(3, 0, 2000))
    u = (first + 0.5) * wide(2) ** -32
    v = np.floor(second / 256) * wide(2) ** -24
    expected = np.sqrt(-2 * np.log(u)) * np.cos(2 * wide(np.pi) * v)
    # u, its logarithm, the root, the angle and the product are rounded. The angle's error, half an
    # ulp of up to 2 pi, counts in full where the cosine is near 0; u's where the logarithm is.
    radius = np.sqrt(-2 * np.log(u))
    slack = radius * 4 * np.pi * eps("f32") + eps("f32") / np.maximum(radius, 2**-12)
    near(got, expected, "f32", 4, slack=slack)


def test_a_longer_draw_begins_with_a_shorter_one():
    for draw in (Tensor.rand, Tensor.randn):
        Tensor.manual_seed(1)
        short = draw(10).numpy()
        Tensor.manual_seed(1)
        same(draw(4, 8).numpy().ravel()[:10], short)


# ---- seeds and streams ----


def draw_some():
    return run(Tensor.rand(4), Tensor.randn(4), Tensor.uniform(4, low=-1, high=2), Tensor.rand(4))


def test_a_seed_gives_the_same_numbers_again_and_another_one_others():
    seeds = [0, 1, 2, 2**32, 2**63, 2**64 - 1, -5]
    found = []
    for seed in seeds:
        Tensor.manual_seed(seed)
        once = draw_some()
        Tensor.manual_seed(seed)
        for a, b in zip(once, draw_some()):
            same(a, b)
        found.append(tuple(once[0]))
    assert len(set(found)) == len(seeds)
    for wrong in (2**64, -(2**63) - 1):
        with pytest.raises((ValueError, OverflowError)):
            Tensor.manual_seed(wrong)
    for wrong in (1.5, "a", None):
        with pytest.raises(TypeError):
            Tensor.manual_seed(wrong)


def test_calls_differ_and_reading_twice_does_not():
    Tensor.manual_seed(0)
    draws = [Tensor.rand(1000) for _ in range(20)]
    arrays = run(*draws)
    for t, a in zip(draws, arrays):
        same(t.numpy(), a)
    assert len({a.tobytes() for a in arrays}) == 20
    # Two streams agree in one of 2^24 places by chance, and are not correlated.
    a, b = arrays[0].astype(np.float64), arrays[1].astype(np.float64)
    assert (a == b).sum() <= 1
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / math.sqrt(1000)
    assert abs(np.corrcoef(a[:-1], a[1:])[0, 1]) < 4 / math.sqrt(999)


def test_the_order_of_calls_counts_and_the_order_of_reads_does_not():
    Tensor.manual_seed(9)
    a, b = Tensor.rand(5), Tensor.rand(5)
    late, early = b.numpy(), a.numpy()
    Tensor.manual_seed(9)
    same(Tensor.rand(5).numpy(), early)
    same(Tensor.rand(5).numpy(), late)


def test_layers_begin_with_the_seeds_numbers():
    def weights(seed):
        Tensor.manual_seed(seed)
        return nn.Linear(4, 3).weight.numpy()

    same(weights(5), weights(5))
    assert (weights(5) != weights(6)).any()


# ---- distribution ----

N = 200_000


def moments(a):
    a = a.astype(np.float64)
    return a.mean(), a.var()


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_numbers_are_even(dtype):
    Tensor.manual_seed(2)
    a = Tensor.rand(N, dtype=dtype).numpy()
    assert a.dtype == NP[dtype]
    a = a.astype(np.float64)
    # A grid of 2^-bits begins at 0, so that the mean is half a step low.
    step = 2.0 ** -BITS.get(dtype, 53)
    assert a.min() >= 0 and a.max() < 1
    mean, var = moments(a)
    assert abs(mean + step / 2 - 0.5) < 4 * math.sqrt(1 / 12 / N)
    assert abs(var - 1 / 12) < 4 * math.sqrt(1 / 180 / N) + step
    # Chi squared over 64 equal cells: mean 63, deviation sqrt(126).
    cells = np.bincount((a * 64).astype(int), minlength=64)
    chi = ((cells - N / 64) ** 2 / (N / 64)).sum()
    assert abs(chi - 63) < 4 * math.sqrt(126)


@pytest.mark.parametrize("low, high", [(-1.0, 1.0), (2.0, 5.0), (-3.0, -2.5), (0.0, 1e-3), (5, 3)])
def test_uniform_numbers_stay_within_their_bounds(low, high):
    Tensor.manual_seed(4)
    a = Tensor.uniform(N // 10, low=low, high=high).numpy().astype(np.float64)
    width = abs(high - low)
    # Rounding may reach the end, and the ends themselves are rounded to f32.
    assert min(low, high) - 1e-6 * width <= a.min() and a.max() <= max(low, high) + 1e-6 * width
    mean, var = moments(a)
    assert abs(mean - (low + high) / 2) < 4 * width * math.sqrt(1 / 12 / a.size) + 1e-6
    assert abs(var - width**2 / 12) < 4 * width**2 * math.sqrt(1 / 180 / a.size) + 1e-9


def test_uniform_is_rand_moved():
    Tensor.manual_seed(6)
    unit = Tensor.rand(100).numpy()
    Tensor.manual_seed(6)
    moved = Tensor.uniform((10, 10), low=-2, high=3).numpy()
    same(moved, (unit * np.float32(5) + np.float32(-2)).reshape(10, 10))


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_numbers_are_normal(dtype):
    Tensor.manual_seed(8)
    a = Tensor.randn(N // 2, 2, dtype=dtype).numpy()
    assert a.dtype == NP[dtype] and a.shape == (N // 2, 2)
    a = a.astype(np.float64).ravel()
    assert np.isfinite(a).all()
    mean, var = moments(a)
    rounding = eps(dtype) ** 2
    assert abs(mean) < 4 / math.sqrt(N)
    assert abs(var - 1) < 4 * math.sqrt(2 / N) + rounding
    assert abs((a**3).mean()) < 4 * math.sqrt(15 / N)
    assert abs((a**4).mean() - 3) < 4 * math.sqrt(96 / N) + 20 * rounding
    # The parts beyond 1, 2, 3 and 4 deviations, in both directions.
    for k in (1, 2, 3, 4):
        part = math.erfc(k / math.sqrt(2)) / 2
        bound = 4 * math.sqrt(part * (1 - part) / N) + part * eps(dtype) * k**2
        assert abs((a > k).mean() - part) < bound and abs((a < -k).mean() - part) < bound
    assert 4 < np.abs(a).max() < 7


# ---- shapes, dtypes, errors ----


def test_shapes_are_given_in_two_ways_and_may_be_empty():
    for draw in (Tensor.rand, Tensor.randn, Tensor.uniform):
        assert draw(2, 3).shape == draw((2, 3)).shape == draw([2, 3]).shape == (2, 3)
        assert draw().shape == draw(()).shape == ()
        assert draw(0, 3).numpy().size == 0
        assert draw(3).dtype == "f32" and not draw(3).requires_grad
        assert draw(2, requires_grad=True).is_leaf and draw(2, requires_grad=True).requires_grad
        for dtype in ("i32", "bool", "u8"):
            with pytest.raises(TypeError):
                draw(3, dtype=dtype)
        with pytest.raises(ValueError):
            draw(-1)
        with pytest.raises(TypeError):
            draw(1.5)
    for low, high in [(np.nan, 1), (0, np.inf), (-1e39, 1)]:
        with pytest.raises(TypeError):
            Tensor.uniform(3, low=low, high=high)


# ---- threads ----


def in_thread(function):
    """What a function gives on a thread of its own."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_a_seed_is_its_threads_own():
    Tensor.manual_seed(1)
    first = Tensor.rand(6).numpy()

    def seeded():
        Tensor.manual_seed(1)
        return Tensor.rand(6).numpy()

    same(in_thread(seeded), first)
    # What the other thread drew has taken nothing from this one.
    second = Tensor.rand(6).numpy()
    Tensor.manual_seed(1)
    same(run(Tensor.rand(6), Tensor.rand(6))[1], second)


def test_threads_without_a_seed_share_a_stream_and_never_a_number():
    draw = lambda: [Tensor.rand(50).numpy().tobytes() for _ in range(5)]
    results = []
    barrier = threading.Barrier(6)

    def work():
        barrier.wait()
        results.append(draw())

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drawn = [a for result in results for a in result]
    assert len(set(drawn)) == len(drawn) == 30
