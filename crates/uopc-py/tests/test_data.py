"""Data sets, files of tensors, and generators of one's own."""

import numpy as np
import pytest

import uopc
from uopc import Tensor, nn


def test_the_digits_can_be_learnt():
    (x, y), (test_x, test_y) = uopc.data.digits()
    assert (x.shape, y.shape, test_x.shape, test_y.shape) == ((1437, 64), (1437,), (360, 64), (360,))
    assert x.dtype == "f32" and y.dtype == "i32" and set(y.tolist()) == set(range(10))
    assert 0.0 <= x.min().item() and x.max().item() <= 1.0
    layer = nn.Linear(64, 10)
    optimizer = nn.AdamW(layer, lr=0.05)
    for _ in range(60):
        loss = layer(x).cross_entropy(y)
        optimizer.zero_grad()
        loss.backward(optimizer.params)
        optimizer.step(loss)
    assert layer(test_x).accuracy(test_y).item() > 0.9


def test_mnist(shared):
    folder = shared / "data" / "mnist"
    images = sorted(folder.glob("t10k-images*"))
    labels = sorted(folder.glob("t10k-labels*"))
    x, y = uopc.data.idx(images[0], labels[0])
    assert x.shape == (10000, 784) and y.shape == (10000,)
    assert y.tolist()[:4] == [7, 2, 1, 0]


def test_files_of_tensors(tmp_path):
    path = tmp_path / "all.safetensors"
    arrays = {d: np.arange(6).reshape(2, 3).astype(d) for d in ("f4", "f8", "f2", "i1", "u8", "?")}
    uopc.io.save(path, {name: Tensor(a) for name, a in arrays.items()})
    loaded = uopc.io.load(str(path))
    assert sorted(loaded) == sorted(arrays)
    for name, array in arrays.items():
        back = loaded[name].numpy()
        assert back.dtype == array.dtype and np.array_equal(back, array)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(OSError):
        uopc.io.load(path)
    with pytest.raises(OSError):
        uopc.io.save(tmp_path / "no" / "folder", {})


def test_a_generator_is_its_seed():
    draws = [uopc.Generator(5) for _ in range(2)]
    for draw in draws:
        assert draw.permutation(0) == []
    first, second = ((d.randn(3, 2).tolist(), d.below(100), d.permutation(9)) for d in draws)
    assert first == second
    Tensor.manual_seed(5)
    assert uopc.Generator(5).uniform((4,)).tolist() == Tensor.rand(4).tolist()
    assert uopc.Generator(0).randn(2, dtype="f64").dtype == "f64"
    for call in (lambda g: g.below(0), lambda g: g.permutation(-1), lambda g: g.uniform(-1)):
        with pytest.raises(ValueError):
            call(uopc.Generator(0))
