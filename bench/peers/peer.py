"""Times one workload in one framework and prints a JSON line.

    python peer.py numpy|torch|torch_compile|jax|tinygrad WORKLOAD [--threads N] [--budget SECONDS]
"""

import argparse
import json
import math
import os
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=["numpy", "torch", "torch_compile", "jax", "tinygrad"])
    parser.add_argument("workload")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--budget", type=float, default=3.0)
    return parser.parse_args()


def limit_threads(n):
    """Keeps this process on n processors; the libraries look at that when they are imported."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n])
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(n)


def with_numpy(name, layout):
    import numpy as np

    if layout is None:
        raise SystemExit("numpy has no attention")

    def begin(a, b):
        left = a.T if layout == "tn" else a
        right = b.T if layout == "nt" else b
        return lambda: left @ right

    return np.__version__, begin, lambda y: None, lambda y: y


def with_torch(name, layout, gradients, compiled):
    import torch
    import torch.nn.functional as F

    def product(a, b):
        return (a.mT if layout == "tn" else a) @ (b.mT if layout == "nt" else b)

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    function = product if layout else attention
    if compiled:
        function = torch.compile(function, dynamic=False)

    def begin(*arrays):
        tensors = [torch.from_numpy(a) for a in arrays]
        if not gradients:
            inputs = tensors[: 2 if layout else 3]

            def forward():
                with torch.no_grad():
                    return function(*inputs)

            return forward
        by = [t.requires_grad_() for t in tensors[:3]]
        return lambda: torch.autograd.grad((function(*by) * tensors[3]).sum(), by)[0]

    return torch.__version__, begin, lambda y: None, lambda y: y.detach().numpy()


def with_jax(name, layout, gradients):
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import jax.numpy as jnp
    import numpy as np

    def product(a, b):
        left = jnp.swapaxes(a, -1, -2) if layout == "tn" else a
        right = jnp.swapaxes(b, -1, -2) if layout == "nt" else b
        return left @ right

    def attention(q, k, v):
        length, size = q.shape[-2:]
        seen = np.tril(np.ones((length, length), bool))
        scores = q @ jnp.swapaxes(k, -1, -2) / math.sqrt(size)
        return jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1) @ v

    def loss(q, k, v, c):
        return (attention(q, k, v) * c).sum()

    def begin(*arrays):
        inputs = [jnp.asarray(a) for a in arrays]
        if gradients:
            function = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
            return lambda: function(*inputs)
        function = jax.jit(product if layout else attention)
        return lambda: function(*inputs[: 2 if layout else 3])

    first = (lambda y: y[0]) if gradients else (lambda y: y)
    return jax.__version__, begin, jax.block_until_ready, lambda y: np.asarray(first(y))


def with_tinygrad(name, layout, gradients):
    os.environ.setdefault("DEV", "CPU")
    from importlib.metadata import version

    from tinygrad import Device, Tensor, TinyJit

    def product(a, b):
        left = a.transpose(-1, -2) if layout == "tn" else a
        right = b.transpose(-1, -2) if layout == "nt" else b
        return left @ right

    def attention(q, k, v):
        return q.scaled_dot_product_attention(k, v, is_causal=True)

    def begin(*arrays):
        inputs = [Tensor(a).realize() for a in arrays]

        @TinyJit
        def step(*inputs):
            if not gradients:
                return (product if layout else attention)(*inputs[: 2 if layout else 3]).realize()
            loss = (attention(*inputs[:3]) * inputs[3]).sum()
            results = loss.gradient(*inputs[:3])
            Tensor.realize(*results)
            return results[0]

        return lambda: step(*inputs)

    device = Device[Device.DEFAULT]
    return version("tinygrad"), begin, lambda y: device.synchronize(), lambda y: y.numpy()


def times(name, options):
    """The framework's version, and the times of a workload with what tells about its result."""
    import numpy as np

    import rows
    import timing
    import workloads

    layout = workloads.PRODUCTS[name][4] if name in workloads.PRODUCTS else None
    gradients = name in workloads.ATTENTION and workloads.ATTENTION[name][4]
    makers = {
        "numpy": lambda: with_numpy(name, layout),
        "torch": lambda: with_torch(name, layout, gradients, False),
        "torch_compile": lambda: with_torch(name, layout, gradients, True),
        "jax": lambda: with_jax(name, layout, gradients),
        "tinygrad": lambda: with_tinygrad(name, layout, gradients),
    }
    if name in rows.NAMES:
        version, begin, wait, to_numpy = rows.maker(options.framework, name)
    else:
        version, begin, wait, to_numpy = makers[options.framework]()
    arrays = list(workloads.named(name).values())
    last = [None]
    begun, others = time.perf_counter(), timing.Others()
    call = begin(*arrays)

    def step():
        last[0] = call()

    step()
    wait(last[0])
    cold, cold_others = time.perf_counter() - begun, others.cores()
    check = float(np.abs(to_numpy(last[0])).mean(dtype=np.float64))
    result = timing.measure(step, lambda: wait(last[0]), options.budget)
    unit, amount = workloads.work(name)
    return version, result | {
        unit: round(amount / result["median_s"] / 1e9, 2),
        "cold_s": round(cold, 4),
        "cold_others": round(cold_others, 2),
        "check": check,
    }


def main():
    options = arguments()
    if options.threads:
        limit_threads(options.threads)
    import ratios
    import timing
    import workloads

    name = options.workload
    if name not in workloads.NAMES:
        raise SystemExit(f"there is no workload {name}; these are: {', '.join(workloads.NAMES)}")
    if name in ratios.NAMES:
        parts = ratios.framework(options.framework)
        version = parts.version
        result = ratios.measure(name, workloads.named(name), parts, timing, options.budget)
    else:
        version, result = times(name, options)
    peer, _, variant = options.framework.partition("_")
    result |= {
        "peer": peer,
        "variant": variant or "default",
        "version": version,
        "workload": name,
        "cpus": len(os.sched_getaffinity(0)),
        "check": float(f"{result['check']:.6g}"),
        "load1": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(result), flush=True)


main()
