"""Inputs of the workloads that are timed here, as NumPy makes them from fixed seeds.

Every framework starts from these numbers, so the `check` of two results can be compared.
"""

import numpy as np

import ratios
import rows

# name: (batch, m, k, n, how the factors lie in memory)
PRODUCTS = {
    "matmul_1000x777x333": (1, 1000, 777, 333, "plain"),
    "matmul_64x4096x64": (1, 64, 4096, 64, "plain"),
    "matmul_4096x64x64": (1, 4096, 64, 64, "plain"),
    "matmul_1x4096x4096": (1, 1, 4096, 4096, "plain"),
    "matmul_batched_96x64x64x32": (96, 64, 64, 32, "plain"),
    "matmul_tn_1024": (1, 1024, 1024, 1024, "tn"),
    "matmul_nt_1024": (1, 1024, 1024, 1024, "nt"),
}

# name: (batch, heads, length, size of a head, whether gradients are taken)
ATTENTION = {
    "attention_nano": (12, 4, 64, 32, False),
    "attention_small": (4, 6, 256, 64, False),
    "attention_2048": (1, 8, 2048, 64, False),
    "attention_2048_fwd_bwd": (1, 8, 2048, 64, True),
}

NAMES = [*PRODUCTS, *ATTENTION, *rows.NAMES, *ratios.NAMES]


def normal(seed, *shapes):
    """Arrays of float32 normal numbers, one for each shape, from one generator."""
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape, dtype=np.float32) for shape in shapes]


def product(name):
    """The factors of a product, as they lie in memory."""
    batch, m, k, n, layout = PRODUCTS[name]
    front = () if batch == 1 else (batch,)
    a = (k, m) if layout == "tn" else (m, k)
    b = (n, k) if layout == "nt" else (k, n)
    return normal(100 + list(PRODUCTS).index(name), front + a, front + b)


def attention(name):
    """Queries, keys, values, and the weights of the sum whose gradient is taken."""
    shape = ATTENTION[name][:4]
    return normal(200 + shape[2], *[shape] * 4)


def folder(name):
    """The folder in which `uopc bench --inputs` looks for a workload's inputs."""
    if name not in ATTENTION:
        return name
    return "attention_" + "x".join(str(n) for n in ATTENTION[name][:4])


def named(name):
    """The inputs by the names of their files."""
    if name in ratios.NAMES:
        return ratios.inputs(name)
    if name in rows.NAMES:
        return rows.inputs(name)
    arrays = product(name) if name in PRODUCTS else attention(name)
    return dict(zip("ab" if name in PRODUCTS else "qkvc", arrays))


def work(name):
    """What a result's time is turned into: a name, and the amount of work in a step."""
    if name in PRODUCTS:
        batch, m, k, n, _ = PRODUCTS[name]
        if m == 1:
            return "gb_s", 4.0 * batch * (m * k + k * n + m * n)
        return "gflops", 2.0 * batch * m * k * n
    if name in rows.NAMES:
        return "gb_s", 1e9 * rows.gigabytes(name)
    batch, heads, length, size, gradients = ATTENTION[name]
    return "gflops", (7 if gradients else 2) * batch * heads * length * length * size
