from typing import Any

from ..tensor import Tensor

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
]

def binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean"
) -> Tensor: ...
def binary_cross_entropy_with_logits(
    input: Any,
    target: Any,
    weight: Any = None,
    reduction: str = "mean",
    pos_weight: Any = None,
) -> Tensor: ...
def cross_entropy(
    logits: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    dim: int = -1,
) -> Tensor: ...
def huber_loss(
    input: Any, target: Any, reduction: str = "mean", delta: float = 1.0
) -> Tensor: ...
def kl_div(
    input: Any, target: Any, reduction: str = "mean", log_target: bool = False
) -> Tensor: ...
def l1_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor: ...
def mse(prediction: Any, target: Any, reduction: str = "mean") -> Tensor: ...
def mse_loss(prediction: Any, target: Any, reduction: str = "mean") -> Tensor: ...
def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    dim: int = -1,
) -> Tensor: ...
def smooth_l1_loss(
    input: Any, target: Any, reduction: str = "mean", beta: float = 1.0
) -> Tensor: ...
