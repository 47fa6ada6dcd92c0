"""Layers that normalise, and dropout."""

from typing import TYPE_CHECKING, List, Optional, Tuple, Union

from ..tensor import Tensor
from .module import Module

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "Dropout",
    "GroupNorm",
    "LayerNorm",
    "RMSNorm",
]

_Shape = Union[int, Tuple[int, ...], List[int]]


def _ones(shape: _Shape) -> Tensor:
    return Tensor.ones(shape).requires_grad_()


def _zeros(shape: _Shape) -> Tensor:
    return Tensor.zeros(shape).requires_grad_()


class _Norm(Module):
    """What layers that normalise have."""

    weight: Optional[Tensor]
    """What is multiplied, 1 at first; or None."""
    bias: Optional[Tensor]
    """What is added, 0 at first; or None."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...


class LayerNorm(_Norm):
    """The last axes with mean 0 and variance 1, times ``weight`` plus ``bias``, see
    ``Tensor.layer_norm``. Raises ValueError for an input that does not end in the shape.

    >>> layer = uopc.nn.LayerNorm(2)
    >>> [[round(v, 3) for v in row] for row in layer(Tensor([[1.0, 3.0], [10.0, 30.0]])).tolist()]
    [[-1.0, 1.0], [-1.0, 1.0]]
    """

    def __init__(
        self,
        normalized_shape: _Shape,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        self.normalized_shape, self.eps = normalized_shape, eps
        self.weight = _ones(normalized_shape) if elementwise_affine else None
        self.bias = _zeros(normalized_shape) if elementwise_affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        """The normalised x."""
        return x.layer_norm(self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """What the repr shows."""
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(_Norm):
    """The last axes divided by the root of their mean square, times ``weight``, see
    ``Tensor.rms_norm``. Without ``eps`` it is the epsilon of the input's dtype. Raises ValueError for
    an input that does not end in the shape.

    >>> [round(v, 4) for v in uopc.nn.RMSNorm(2)(Tensor([3.0, 4.0])).tolist()]
    [0.8485, 1.1314]
    """

    def __init__(
        self,
        normalized_shape: _Shape,
        eps: Optional[float] = None,
        elementwise_affine: bool = True,
    ) -> None:
        self.normalized_shape, self.eps = normalized_shape, eps
        self.weight = _ones(normalized_shape) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        """The normalised x."""
        return x.rms_norm(self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """What the repr shows."""
        return f"{self.normalized_shape}, eps={self.eps}"


class GroupNorm(_Norm):
    """Channels of (N, C, ...) normalised in groups, times ``weight`` plus ``bias``, see
    ``Tensor.group_norm``. Raises ValueError if groups do not divide the channels.

    >>> uopc.nn.GroupNorm(2, 4)(Tensor.zeros(3, 4, 5)).shape
    (3, 4, 5)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(
                f"GroupNorm: {num_groups} groups do not divide {num_channels} channels"
            )
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = _ones(num_channels) if affine else None
        self.bias = _zeros(num_channels) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        """The normalised x."""
        return x.group_norm(self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """What the repr shows."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}"


class _BatchNorm(_Norm):
    """What both kinds have."""

    running_mean: Optional[Tensor]
    """The running mean, 0 at first, or None."""
    running_var: Optional[Tensor]
    """The running variance, 1 at first, or None."""

    _ranks: Tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = _ones(num_features) if affine else None
        self.bias = _zeros(num_features) if affine else None
        self.running_mean = Tensor.zeros(num_features).realize() if track_running_stats else None
        self.running_var = Tensor.ones(num_features).realize() if track_running_stats else None

    def forward(self, x: Tensor) -> Tensor:
        """The normalised x: by the statistics of the batch in training, else by the running ones."""
        if x.ndim not in self._ranks:
            name, ranks = type(self).__name__, " or ".join(map(str, self._ranks))
            raise ValueError(f"{name}: an input with {ranks} axes is needed, not shape {x.shape}")
        training = self.training or self.running_mean is None
        return x.batch_norm(
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training,
            self.momentum,
            self.eps,
        )

    def extra_repr(self) -> str:
        """What the repr shows."""
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


class BatchNorm1d(_BatchNorm):
    """Channels of (N, C) or (N, C, L) normalised over the batch, times ``weight`` plus ``bias``, see
    ``Tensor.batch_norm``.

    In training the statistics are those of the batch, and running ones move towards them by
    ``momentum``, in the plan of the step; after ``eval()`` the running ones are used. They are part of
    the state and no parameters. Raises ValueError for other shapes, and in training for a batch with
    one element a channel.

    >>> layer = uopc.nn.BatchNorm1d(2)
    >>> layer(Tensor([[1.0, 10.0], [3.0, 30.0]])).shape
    (2, 2)
    >>> [round(m, 4) for m in layer.running_mean.tolist()]
    [0.2, 2.0]
    """

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Channels of (N, C, H, W) normalised over the batch and all positions; see ``BatchNorm1d``.

    >>> layer = uopc.nn.BatchNorm2d(3)
    >>> layer(Tensor.zeros(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    _ranks = (4,)


class Dropout(Module):
    """Elements set to 0 with probability p in training, see ``Tensor.dropout``; after ``eval()``
    nothing happens. Each call draws another mask, without a new plan. Raises ValueError if p is not
    from 0 to 1.

    >>> layer = uopc.nn.Dropout(0.5).eval()
    >>> layer(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: p is {p}; a probability, from 0 to 1, is needed")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x with elements dropped."""
        return x.dropout(self.p, self.training)

    def extra_repr(self) -> str:
        """What the repr shows."""
        return f"p={self.p}"
