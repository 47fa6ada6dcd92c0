"""Layers that convolve and pool."""

from typing import TYPE_CHECKING, List, Optional, Tuple, Union

from ..tensor import Tensor
from ._native import conv_parameters
from .module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "MaxPool1d",
    "MaxPool2d",
]

_Sizes = Union[int, Tuple[int, ...], List[int]]


def _each(sizes: _Sizes, n: int) -> Tuple[int, ...]:
    """A number for each axis."""
    return (sizes,) * n if isinstance(sizes, int) else tuple(sizes)


class _Conv(Module):
    """What all layers that convolve have."""

    weight: Tensor
    """The kernels."""
    bias: Optional[Tensor]
    """Of shape (out_channels,), or None."""

    _axes = 0
    _transposed = False

    def _begin(
        self, in_channels: int, out_channels: int, kernel_size: _Sizes, groups: int, bias: bool
    ) -> None:
        kernel = _each(kernel_size, self._axes)
        if len(kernel) != self._axes:
            name = type(self).__name__
            raise ValueError(f"{name}: kernel_size {kernel} has not {self._axes} numbers")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel
        self.groups = groups
        self.weight, self.bias = conv_parameters(
            in_channels, out_channels, kernel, groups, self._transposed, bias
        )

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...

    def _described(self, names: str) -> str:
        shown = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"]
        shown += [f"{name}={getattr(self, name)}" for name in names.split()]
        return ", ".join([*shown, f"bias={self.bias is not None}"])


class Conv1d(_Conv):
    """Convolution along one axis, (N, C, L) with or without the batch, see ``Tensor.conv1d``.

    ``weight`` has shape (out_channels, in_channels / groups, *kernel_size), ``bias`` shape
    (out_channels,), or it is None. Both start evenly distributed over ±1/sqrt(inputs of an output),
    drawn from the thread's generator, weight first. Raises ValueError if groups do not divide the
    channels.

    >>> layer = uopc.nn.Conv1d(3, 4, 3)
    >>> layer(Tensor.zeros(1, 3, 8)).shape
    (1, 4, 6)
    """

    _axes = 1

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _Sizes,
        stride: _Sizes = 1,
        padding: Union[_Sizes, str] = 0,
        dilation: _Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self._begin(in_channels, out_channels, kernel_size, groups, bias)
        self.stride, self.padding, self.dilation = stride, padding, dilation

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of x."""
        return x.conv1d(
            self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def extra_repr(self) -> str:
        """What the repr shows."""
        return self._described("stride padding dilation groups")


class Conv2d(_Conv):
    """Convolution of images, (N, C, H, W) with or without the batch, see ``Tensor.conv2d``.

    ``weight`` has shape (out_channels, in_channels / groups, *kernel_size), ``bias`` shape
    (out_channels,), or it is None. Both start evenly distributed over ±1/sqrt(inputs of an output),
    drawn from the thread's generator, weight first. Raises ValueError if groups do not divide the
    channels.

    >>> layer = uopc.nn.Conv2d(3, 4, 3)
    >>> layer(Tensor.zeros(1, 3, 8, 8)).shape
    (1, 4, 6, 6)
    """

    _axes = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _Sizes,
        stride: _Sizes = 1,
        padding: Union[_Sizes, str] = 0,
        dilation: _Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self._begin(in_channels, out_channels, kernel_size, groups, bias)
        self.stride, self.padding, self.dilation = stride, padding, dilation

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of x."""
        return x.conv2d(
            self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def extra_repr(self) -> str:
        """What the repr shows."""
        return self._described("stride padding dilation groups")


class Conv3d(_Conv):
    """Convolution of volumes, (N, C, D, H, W) with or without the batch, see ``Tensor.conv3d``.

    ``weight`` has shape (out_channels, in_channels / groups, *kernel_size), ``bias`` shape
    (out_channels,), or it is None. Both start evenly distributed over ±1/sqrt(inputs of an output),
    drawn from the thread's generator, weight first. Raises ValueError if groups do not divide the
    channels.

    >>> layer = uopc.nn.Conv3d(3, 4, 3)
    >>> layer(Tensor.zeros(1, 3, 4, 4, 4)).shape
    (1, 4, 2, 2, 2)
    """

    _axes = 3

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _Sizes,
        stride: _Sizes = 1,
        padding: Union[_Sizes, str] = 0,
        dilation: _Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self._begin(in_channels, out_channels, kernel_size, groups, bias)
        self.stride, self.padding, self.dilation = stride, padding, dilation

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of x."""
        return x.conv3d(
            self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def extra_repr(self) -> str:
        """What the repr shows."""
        return self._described("stride padding dilation groups")


class ConvTranspose1d(_Conv):
    """Transposed convolution along one axis, (N, C, L) with or without the batch, see
    ``Tensor.conv_transpose1d``.

    ``weight`` has shape (in_channels, out_channels / groups, *kernel_size), ``bias`` shape
    (out_channels,), or it is None. Both start as those of ``Conv1d``. Raises ValueError if groups
    do not divide the channels.

    >>> layer = uopc.nn.ConvTranspose1d(3, 4, 3)
    >>> layer(Tensor.zeros(1, 3, 8)).shape
    (1, 4, 10)
    """

    _axes = 1
    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _Sizes,
        stride: _Sizes = 1,
        padding: _Sizes = 0,
        output_padding: _Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: _Sizes = 1,
    ) -> None:
        self._begin(in_channels, out_channels, kernel_size, groups, bias)
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.output_padding = output_padding

    def forward(self, x: Tensor) -> Tensor:
        """The transposed convolution of x."""
        return x.conv_transpose1d(
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.groups,
            self.dilation,
        )

    def extra_repr(self) -> str:
        """What the repr shows."""
        return self._described("stride padding output_padding dilation groups")


class ConvTranspose2d(_Conv):
    """Transposed convolution of images, (N, C, H, W) with or without the batch, see
    ``Tensor.conv_transpose2d``.

    ``weight`` has shape (in_channels, out_channels / groups, *kernel_size), ``bias`` shape
    (out_channels,), or it is None. Both start as those of ``Conv2d``. Raises ValueError if groups
    do not divide the channels.

    >>> layer = uopc.nn.ConvTranspose2d(3, 4, 3)
    >>> layer(Tensor.zeros(1, 3, 8, 8)).shape
    (1, 4, 10, 10)
    """

    _axes = 2
    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _Sizes,
        stride: _Sizes = 1,
        padding: _Sizes = 0,
        output_padding: _Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: _Sizes = 1,
    ) -> None:
        self._begin(in_channels, out_channels, kernel_size, groups, bias)
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.output_padding = output_padding

    def forward(self, x: Tensor) -> Tensor:
        """The transposed convolution of x."""
        return x.conv_transpose2d(
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.groups,
            self.dilation,
        )

    def extra_repr(self) -> str:
        """What the repr shows."""
        return self._described("stride padding output_padding dilation groups")


class ConvTranspose3d(_Conv):
    """Transposed convolution of volumes, (N, C, D, H, W) with or without the batch, see
    ``Tensor.conv_transpose3d``.

    ``weight`` has shape (in_channels, out_channels / groups, *kernel_size), ``bias`` shape
    (out_channels,), or it is None. Both start as those of ``Conv3d``. Raises ValueError if groups
    do not divide the channels.

    >>> layer = uopc.nn.ConvTranspose3d(3, 4, 3)
    >>> layer(Tensor.zeros(1, 3, 4, 4, 4)).shape
    (1, 4, 6, 6, 6)
    """

    _axes = 3
    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _Sizes,
        stride: _Sizes = 1,
        padding: _Sizes = 0,
        output_padding: _Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: _Sizes = 1,
    ) -> None:
        self._begin(in_channels, out_channels, kernel_size, groups, bias)
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.output_padding = output_padding

    def forward(self, x: Tensor) -> Tensor:
        """The transposed convolution of x."""
        return x.conv_transpose3d(
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.groups,
            self.dilation,
        )

    def extra_repr(self) -> str:
        """What the repr shows."""
        return self._described("stride padding output_padding dilation groups")


class MaxPool1d(Module):
    """The largest element of each window, see ``Tensor.max_pool1d``.

    >>> uopc.nn.MaxPool1d(2)(Tensor.zeros(1, 3, 8)).shape
    (1, 3, 4)
    """

    def __init__(
        self,
        kernel_size: _Sizes,
        stride: Optional[_Sizes] = None,
        padding: _Sizes = 0,
        dilation: _Sizes = 1,
        ceil_mode: bool = False,
    ) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.ceil_mode = dilation, ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        """The windows' largest elements."""
        return x.max_pool1d(
            self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode
        )

    def extra_repr(self) -> str:
        """What the repr shows."""
        return f"{self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(Module):
    """The mean of each window, see ``Tensor.avg_pool1d``.

    >>> uopc.nn.AvgPool1d(2)(Tensor.zeros(1, 3, 8)).shape
    (1, 3, 4)
    """

    def __init__(
        self,
        kernel_size: _Sizes,
        stride: Optional[_Sizes] = None,
        padding: _Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        """The windows' means."""
        return x.avg_pool1d(
            self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )

    def extra_repr(self) -> str:
        """What the repr shows."""
        return f"{self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool1d(Module):
    """Means of windows such that that many come out, see ``Tensor.adaptive_avg_pool1d``.

    >>> uopc.nn.AdaptiveAvgPool1d(4)(Tensor.zeros(1, 3, 8)).shape
    (1, 3, 4)
    """

    def __init__(self, output_size: Union[int, Tuple[Optional[int], ...]]) -> None:
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """The windows' means."""
        return x.adaptive_avg_pool1d(self.output_size)

    def extra_repr(self) -> str:
        """What the repr shows."""
        return f"{self.output_size}"


class MaxPool2d(Module):
    """The largest element of each window, see ``Tensor.max_pool2d``.

    >>> uopc.nn.MaxPool2d(2)(Tensor.zeros(1, 3, 8, 8)).shape
    (1, 3, 4, 4)
    """

    def __init__(
        self,
        kernel_size: _Sizes,
        stride: Optional[_Sizes] = None,
        padding: _Sizes = 0,
        dilation: _Sizes = 1,
        ceil_mode: bool = False,
    ) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.ceil_mode = dilation, ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        """The windows' largest elements."""
        return x.max_pool2d(
            self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode
        )

    def extra_repr(self) -> str:
        """What the repr shows."""
        return f"{self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
    """The mean of each window, see ``Tensor.avg_pool2d``.

    >>> uopc.nn.AvgPool2d(2)(Tensor.zeros(1, 3, 8, 8)).shape
    (1, 3, 4, 4)
    """

    def __init__(
        self,
        kernel_size: _Sizes,
        stride: Optional[_Sizes] = None,
        padding: _Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        """The windows' means."""
        return x.avg_pool2d(
            self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )

    def extra_repr(self) -> str:
        """What the repr shows."""
        return f"{self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """Means of windows such that that many come out, see ``Tensor.adaptive_avg_pool2d``.

    >>> uopc.nn.AdaptiveAvgPool2d(4)(Tensor.zeros(1, 3, 8, 8)).shape
    (1, 3, 4, 4)
    """

    def __init__(self, output_size: Union[int, Tuple[Optional[int], ...]]) -> None:
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """The windows' means."""
        return x.adaptive_avg_pool2d(self.output_size)

    def extra_repr(self) -> str:
        """What the repr shows."""
        return f"{self.output_size}"
