"""Layers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Callable, List, Optional

from ..tensor import Tensor
from ._native import embedding, embedding_parameters, linear, linear_parameters
from .module import Module

__all__ = ["Embedding", "Linear", "Sequential"]


class Linear(Module):
    """``x @ weight + bias`` on the last axis: (..., in_features) gives (..., out_features).

    ``weight`` has shape (in_features, out_features), ``bias`` shape (out_features,), or it is None.
    Both start evenly distributed over ±1/sqrt(in_features), drawn from the thread's generator,
    weight first. Raises ValueError for an input with another number of features.

    >>> layer = uopc.nn.Linear(3, 2)
    >>> layer(Tensor.zeros(5, 3)).shape
    (5, 2)
    """

    weight: Tensor
    """Of shape (in_features, out_features)."""
    bias: Optional[Tensor]
    """Of shape (out_features,), or None."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.weight, self.bias = linear_parameters(in_features, out_features, bias)

    @classmethod
    def of(cls, weight: Tensor, bias: Optional[Tensor] = None) -> "Linear":
        """A layer of a weight and a bias that are there.

        >>> uopc.nn.Linear.of(Tensor([[2.0]]))(Tensor([3.0])).tolist()
        [6.0]
        """
        layer = cls.__new__(cls)
        layer.weight, layer.bias = weight, bias
        return layer

    def forward(self, x: Tensor) -> Tensor:
        """The layer applied to the last axis of x."""
        return linear(x, self.weight, self.bias)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...

    @property
    def in_features(self) -> int:
        """The extent of the last axis of its input."""
        return self.weight.shape[0]

    @property
    def out_features(self) -> int:
        """The extent of the last axis of its output."""
        return self.weight.shape[1]

    def extra_repr(self) -> str:
        """What the repr shows."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"


class Embedding(Module):
    """A row of a table for each integer: integers of shape S give S + (embedding_dim,).

    ``weight`` has shape (num_embeddings, embedding_dim) and starts as 0.02 times normal numbers.
    Negative integers count from the end, and one that is no row gives zeros. The gradient by the
    table adds up the rows that are read. Raises TypeError for indices that are no integers.

    >>> table = uopc.nn.Embedding(10, 4)
    >>> table(Tensor([1, 5, 1])).shape
    (3, 4)
    """

    weight: Tensor
    """Of shape (num_embeddings, embedding_dim)."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        self.weight = embedding_parameters(num_embeddings, embedding_dim)

    def forward(self, indices: Tensor) -> Tensor:
        """The rows at the indices."""
        return embedding(indices, self.weight)

    if TYPE_CHECKING:

        def __call__(self, indices: Tensor) -> Tensor: ...

    @property
    def num_embeddings(self) -> int:
        """How many rows there are."""
        return self.weight.shape[0]

    @property
    def embedding_dim(self) -> int:
        """How long a row is."""
        return self.weight.shape[1]

    def extra_repr(self) -> str:
        """What the repr shows."""
        return f"{self.num_embeddings}, {self.embedding_dim}"


class Sequential(Module):
    """Layers one after the other; anything that can be called will do.

    >>> from uopc import nn
    >>> net = nn.Sequential(nn.Linear(8, 16), Tensor.relu, nn.Linear(16, 2))
    >>> net(Tensor.zeros(4, 8)).shape, len(net)
    ((4, 2), 3)
    """

    layers: List[Callable[..., Any]]
    """The layers, in order."""

    def __init__(self, *layers: Callable[..., Any]) -> None:
        for k, layer in enumerate(layers):
            if not callable(layer):
                name = type(layer).__name__
                raise TypeError(f"Sequential: layer {k} is a {name}, which can't be called")
        self.layers = list(layers)

    def forward(self, x: Any) -> Any:
        """The last layer's output."""
        for layer in self.layers:
            x = layer(x)
        return x

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: int) -> Callable[..., Any]:
        return self.layers[index]

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(self.layers)
