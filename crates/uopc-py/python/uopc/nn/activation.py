"""Functions of each element as layers, and layers that change shapes."""

from typing import Any

from ..tensor import Tensor
from .module import Module

__all__ = [
    "Flatten",
    "GELU",
    "Identity",
    "LogSoftmax",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
]


class Identity(Module):
    """What it is given.

    >>> uopc.nn.Identity()(Tensor([1.0])).tolist()
    [1.0]
    """

    def forward(self, x: Any) -> Any:
        """x itself."""
        return x


class Flatten(Module):
    """The axes from ``start_dim`` to ``end_dim`` joined into one, by default all but the first.

    >>> uopc.nn.Flatten()(Tensor.zeros(2, 3, 4)).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """x with axes joined."""
        return x.flatten(self.start_dim, self.end_dim)


class ReLU(Module):
    """``Tensor.relu`` as a layer.

    >>> uopc.nn.ReLU()(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """The function of x."""
        return x.relu()


class GELU(Module):
    """``Tensor.gelu`` as a layer.

    >>> uopc.nn.GELU()(Tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """The function of x."""
        return x.gelu()


class SiLU(Module):
    """``Tensor.silu`` as a layer.

    >>> uopc.nn.SiLU()(Tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """The function of x."""
        return x.silu()


class Sigmoid(Module):
    """``Tensor.sigmoid`` as a layer.

    >>> uopc.nn.Sigmoid()(Tensor([0.0])).tolist()
    [0.5]
    """

    def forward(self, x: Tensor) -> Tensor:
        """The function of x."""
        return x.sigmoid()


class Tanh(Module):
    """``Tensor.tanh`` as a layer.

    >>> uopc.nn.Tanh()(Tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """The function of x."""
        return x.tanh()


class Softplus(Module):
    """``Tensor.softplus`` as a layer.

    >>> uopc.nn.Softplus()(Tensor([200.0])).tolist()
    [200.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """The function of x."""
        return x.softplus()


class Softmax(Module):
    """``Tensor.softmax`` along an axis, by default the last one, as a layer.

    >>> [round(p, 4) for p in uopc.nn.Softmax()(Tensor([1.0, 1.0])).tolist()]
    [0.5, 0.5]
    """

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """The function of x."""
        return x.softmax(self.dim)


class LogSoftmax(Module):
    """``Tensor.log_softmax`` along an axis, by default the last one, as a layer.

    >>> [round(p, 4) for p in uopc.nn.LogSoftmax()(Tensor([1.0, 1.0])).tolist()]
    [-0.6931, -0.6931]
    """

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """The function of x."""
        return x.log_softmax(self.dim)
