"""What a call costs from Python: small ops and a tiny training step, beside PyTorch eager.

    python crates/uopc-py/bench/overhead.py [--repeats 30]

Both run in turns in this one process, on one thread; a line gives the medians and their ratio.
Without PyTorch only uopc's own times are printed.
"""

import argparse
import statistics
import time

import numpy as np

import uopc
from uopc import Tensor, nn

try:
    import torch
except ImportError:
    torch = None


def once(work, calls):
    """Seconds of one call, from many in a row."""
    start = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - start) / calls


def compare(name, ours, theirs, calls, repeats):
    """Prints microseconds of both, taken in turns, and by how much ours is longer."""
    for work in filter(None, (ours, theirs)):
        once(work, max(calls // 4, 3))
    mine, others = [], []
    for _ in range(repeats):
        mine.append(once(ours, calls))
        if theirs:
            others.append(once(theirs, calls))
    line = f"{name:<28} uopc {1e6 * statistics.median(mine):8.2f} us"
    if theirs:
        ratio = statistics.median(a / b for a, b in zip(mine, others))
        line += f"   torch {1e6 * statistics.median(others):8.2f} us   ratio {ratio:5.2f}"
    print(line)


def small_ops(n):
    """Pairs of the same op, of one or two arrays of n floats that are in memory."""
    x, y = (np.random.default_rng(k).standard_normal(n, np.float32) for k in range(2))
    a, b = Tensor(x).realize(), Tensor(y).realize()
    p, q = (torch.tensor(x), torch.tensor(y)) if torch else (None, None)
    yield f"a + b, {n}", lambda: (a + b).realize(), lambda: p + q
    yield f"a * 2, {n}", lambda: (a * 2.0).realize(), lambda: p * 2.0
    yield f"a.exp(), {n}", lambda: a.exp().realize(), lambda: p.exp()
    yield f"a.relu(), {n}", lambda: a.relu().realize(), lambda: p.relu()
    yield f"a.sum(), {n}", lambda: a.sum().realize(), lambda: p.sum()


DATA = np.random.default_rng(0)
X = DATA.standard_normal((64, 8)).astype(np.float32)
Y = (X.sum(1) > 0).astype(np.int64)


def our_step():
    """A step of 8-16-2 with AdamW on a batch of 64."""
    Tensor.manual_seed(1)
    first, second = nn.Linear(8, 16), nn.Linear(16, 2)
    optimizer = nn.AdamW(nn.parameters([first, second]), lr=1e-2)
    x, y = Tensor(X), Tensor(Y.astype(np.int32))

    def step():
        loss = second(first(x).relu()).cross_entropy(y)
        optimizer.zero_grad()
        loss.backward(optimizer.params)
        optimizer.step(loss)

    return step


def their_step():
    """The same in PyTorch."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = torch.tensor(X), torch.tensor(Y)

    def step():
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    repeats = parser.parse_args().repeats
    print(f"uopc {uopc.__version__}, torch {torch.__version__ if torch else 'not installed'}")
    if torch:
        torch.set_num_threads(1)
    for n in (16, 1024):
        for name, ours, theirs in small_ops(n):
            compare(name, ours, theirs if torch else None, 2000, repeats)
    theirs = their_step() if torch else None
    compare("training step, 8-16-2, AdamW", our_step(), theirs, 100, repeats)


if __name__ == "__main__":
    main()
