"""Batches of arrays: their order, the helper thread, and how an epoch ends."""

import gc
import os
import signal
import sys
import threading

import numpy as np
import pytest

import uopc
from uopc import Tensor
from uopc.data import DataLoader

N = 23
X = np.arange(N * 2, dtype=np.float32).reshape(N, 2)
Y = np.arange(N, dtype=np.int64)


def rows(loader):
    """The rows of each batch."""
    found = []
    for x, y in loader:
        rows = y.tolist()
        assert np.array_equal(x.numpy(), X[rows]) and (x.dtype, y.dtype) == ("f32", "i64")
        found.append(rows)
    return found


def helpers():
    """How many threads this process has, those of Python or not."""
    return len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_epochs(prefetch):
    plain = DataLoader(X, Y, batch_size=5, prefetch=prefetch)
    assert len(plain) == 5 and rows(plain) == rows(plain) == [list(range(k, min(k + 5, N))) for k in range(0, N, 5)]
    assert len(DataLoader(X, Y, batch_size=5, drop_last=True)) == 4
    a, b = (DataLoader(X, Tensor(Y), batch_size=5, shuffle=True, seed=7, prefetch=p) for p in (prefetch, 0))
    epochs = [rows(a) for _ in range(3)]
    assert epochs == [rows(b) for _ in range(3)]
    assert all(sorted(sum(e, [])) == list(range(N)) for e in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    other = DataLoader(X, Y, batch_size=5, shuffle=True, seed=8)
    assert rows(other) != epochs[0]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_going_on(prefetch):
    def loader():
        return DataLoader(X, Y, batch_size=5, shuffle=True, seed=1, prefetch=prefetch)

    whole = loader()
    epochs = [rows(whole) for _ in range(3)]
    for stop in range(1, 5):
        first = loader()
        assert rows(first) == epochs[0]
        begun = []
        for x, y in first:
            begun.append(y.tolist())
            if len(begun) == stop:
                break
        state = first.state_dict()
        assert state == {"epoch": 1, "position": stop}
        second = loader()
        second.load_state_dict(state)
        assert begun + rows(second) == epochs[1] and rows(second) == epochs[2]
        # Without a state, the next loop is the next epoch.
        assert rows(first) == epochs[2]
    with pytest.raises(ValueError, match="batch 6 of an epoch of 5 batches"):
        loader().load_state_dict({"epoch": 0, "position": 6})
    with pytest.raises(KeyError):
        loader().load_state_dict({"epoch": 0})


def test_one_array_and_odd_arguments():
    assert [b.tolist() for b in DataLoader(Tensor.arange(3), batch_size=2)] == [[0, 1], [2]]
    assert list(DataLoader(np.zeros((0, 2)))) == []
    for call in (
        lambda: DataLoader(),
        lambda: DataLoader(1.0),
        lambda: DataLoader(X, Y[:3]),
        lambda: DataLoader(X, batch_size=0),
        lambda: DataLoader(X, batch_size=-1),
        lambda: DataLoader(X, prefetch=-1),
    ):
        with pytest.raises(ValueError, match="DataLoader"):
            call()
    with pytest.raises(TypeError):
        DataLoader(X, transform=3)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_transforms(prefetch):
    here, threads = threading.get_ident(), set()

    def transform(x, y, generator):
        threads.add(threading.get_ident())
        return {"x": x * 2, "noise": generator.uniform(len(y)), "rows": y.tolist()}

    def loader():
        return DataLoader(X, Y, batch_size=5, prefetch=prefetch, transform=transform, with_generator=True)

    found = list(loader())
    assert (threads == {here}) == (prefetch == 0)
    for batch in found:
        assert np.array_equal(batch["x"].numpy(), 2 * X[batch["rows"]])
    later = loader()
    later.load_state_dict({"epoch": 0, "position": 3})
    again = [batch["noise"].tolist() for batch in later]
    assert again == [batch["noise"].tolist() for batch in found[3:]]
    assert again[0] != found[0]["noise"].tolist()


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_errors_come_out_as_they_are(prefetch):
    class Own(Exception):
        pass

    def transform(x, y):
        if 10 in y.tolist():
            raise Own("the third batch")
        return y

    loader = DataLoader(X, Y, batch_size=5, prefetch=prefetch, transform=transform)
    found = []
    with pytest.raises(Own, match="the third batch") as caught:
        for y in loader:
            found.append(y.tolist())
    assert len(found) == 2 and loader.state_dict()["epoch"] == 0
    assert any(entry.name == "transform" for entry in caught.traceback)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
def test_no_thread_is_left():
    list(DataLoader(X, Y, transform=lambda x, y: x + 1))
    gc.collect()
    before = helpers()
    for _ in range(20):
        for _ in DataLoader(X, Y, transform=lambda x, y: x + 1):
            break
        iterator = iter(DataLoader(X, Y))
        next(iterator)
        del iterator
        iter(DataLoader(X, Y))
    gc.collect()
    assert helpers() <= before


def test_ctrl_c_ends_a_wait():
    """The helper makes a batch that never comes; the signal arrives while the loop waits for it."""
    go, waiting = threading.Event(), threading.Event()

    def transform(x):
        waiting.set()
        go.wait()
        return x

    def interrupt():
        waiting.wait()
        os.kill(os.getpid(), signal.SIGINT)

    batches = iter(DataLoader(X, batch_size=5, transform=transform, prefetch=1))
    sender = threading.Thread(target=interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            # The signal may come as early as this.
            sender.start()
            next(batches)
        sender.join()
    finally:
        go.set()
    # Nothing was lost.
    assert [b.shape[0] for b in batches] == [5, 5, 5, 5, 3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_goes_on():
    batches = iter(DataLoader(Tensor.arange(40), batch_size=4, shuffle=True, seed=3))
    first = next(batches).tolist()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            rest = [b.tolist() for b in batches]
            os.write(write, repr(rest).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    ours = [b.tolist() for b in batches]
    assert theirs == repr(ours) and sorted(sum(ours, first)) == list(range(40))


def test_mnist(shared):
    (x, y), (test_x, test_y) = uopc.data.mnist(shared / "data" / "mnist")
    assert (x.shape, y.shape, test_x.shape, test_y.shape) == ((60000, 784), (60000,), (10000, 784), (10000,))
    assert test_y.tolist()[:4] == [7, 2, 1, 0] and 0 <= test_x.min().item() <= test_x.max().item() == 1
