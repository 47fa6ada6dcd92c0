"""What goes along one long row: sorting it, and its running sums."""

import os

import numpy as np

# name: how many numbers
ROWS = {"sort_1m": 1_000_000, "cumsum_10m": 10_000_000}

NAMES = list(ROWS)


def inputs(name):
    """The row."""
    generator = np.random.default_rng(400 + NAMES.index(name))
    return {"a": generator.standard_normal(ROWS[name], dtype=np.float32)}


def gigabytes(name):
    """What must be read and written at least."""
    return 8e-9 * ROWS[name]


def maker(framework, name):
    """The framework's version, and what begins, awaits and hands out a step."""
    sorts = name.startswith("sort")
    if framework == "numpy":
        return np.__version__, lambda a: lambda: np.sort(a) if sorts else np.cumsum(a), *PLAIN
    if framework.startswith("torch"):
        import torch

        def function(a):
            return torch.sort(a).values if sorts else torch.cumsum(a, 0)

        if framework == "torch_compile":
            function = torch.compile(function, dynamic=False)

        def begin(a):
            tensor = torch.from_numpy(a)
            return lambda: function(tensor)

        return torch.__version__, begin, PLAIN[0], lambda y: y.numpy()
    if framework == "jax":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax
        import jax.numpy as jnp

        function = jax.jit(jnp.sort if sorts else jnp.cumsum)

        def begin(a):
            array = jnp.asarray(a)
            return lambda: function(array)

        return jax.__version__, begin, jax.block_until_ready, np.asarray
    os.environ.setdefault("DEV", "CPU")
    from importlib.metadata import version

    from tinygrad import Device, Tensor, TinyJit

    function = TinyJit(lambda a: (a.sort()[0] if sorts else a.cumsum()).realize())

    def begin(a):
        tensor = Tensor(a).realize()
        return lambda: function(tensor)

    device = Device[Device.DEFAULT]
    return version("tinygrad"), begin, lambda y: device.synchronize(), lambda y: y.numpy()


# Nothing to wait for, and an array already.
PLAIN = (lambda y: None, lambda y: y)
