from typing import Any, Callable, Optional, Tuple

from . import Tensor

__all__ = [
    "Custom",
    "clip_gradient",
    "custom",
    "gradient_hook",
    "scale_gradient",
    "straight_through",
]

class Custom:
    def __init__(
        self,
        f: Callable[..., Tensor],
        vjp: Optional[Callable[..., Any]],
        jvp: Optional[Callable[..., Tensor]],
        name: str,
    ) -> None: ...
    def __call__(self, *args: Any) -> Tensor: ...
    def check(self, *args: Any, tolerance: float = 1e-4) -> Tuple[float, float]: ...

def custom(
    f: Callable[..., Tensor],
    vjp: Optional[Callable[..., Any]] = None,
    jvp: Optional[Callable[..., Tensor]] = None,
    name: Optional[str] = None,
) -> Custom: ...
def straight_through(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]: ...
def gradient_hook(x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor: ...
def scale_gradient(x: Tensor, factor: float) -> Tensor: ...
def clip_gradient(x: Tensor, low: float, high: float) -> Tensor: ...
