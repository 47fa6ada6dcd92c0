"""Trains a small network to tell two spirals apart, saves it and reads it back.

    python train.py

It ends with a line like this:

    the copy agrees with the network on all points
"""

import pathlib
import tempfile

import numpy as np

from uopc import Tensor, nn


class Net(nn.Module):
    """Two hidden layers."""

    def __init__(self, width: int) -> None:
        self.first = nn.Linear(2, width)
        self.second = nn.Linear(width, width)
        self.out = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.second(self.first(x).tanh()).tanh())


def spirals(n: int) -> "tuple[np.ndarray, np.ndarray]":
    """n points on each of two spirals, and which one each is on."""
    along = np.linspace(0.3, 2.5, n)
    arms = [along * sign for sign in (1, -1)]
    points = [np.stack([arm * np.cos(3 * along), arm * np.sin(3 * along)], 1) for arm in arms]
    return np.concatenate(points).astype(np.float32), np.repeat([0, 1], n).astype(np.int32)


def main() -> None:
    Tensor.manual_seed(0)
    points, labels = spirals(100)
    x, y = Tensor(points), Tensor(labels)
    net = Net(32)
    opt = nn.AdamW(net, lr=1e-2)
    for step in range(301):
        loss = net(x).cross_entropy(y)
        opt.zero_grad()
        loss.backward(opt.params)
        opt.step(loss)
        if step % 100 == 0:
            print(f"step {step:3}: loss {loss.item():.4f}")
    right = (net(x).numpy().argmax(1) == labels).mean()
    print(f"right on {right:.0%} of the points")

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "net.safetensors"
        net.save(path)
        copy = Net(32)
        copy.load(path)
    assert (copy(x).numpy() == net(x).numpy()).all()
    print("the copy agrees with the network on all points")


if __name__ == "__main__":
    main()
