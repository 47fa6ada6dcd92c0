import os
from typing import Any, Dict, List, Optional, Tuple, Union, final

from ..tensor import Tensor

__all__ = [
    "Schedule",
    "assign_all",
    "attention_parameters",
    "constant_schedule",
    "conv_parameters",
    "cosine_schedule",
    "embedding",
    "embedding_parameters",
    "exponential_schedule",
    "is_interior",
    "linear",
    "linear_parameters",
    "linear_schedule",
    "load_into",
    "load_tensors",
    "multi_step_schedule",
    "multihead_attention",
    "one_cycle_schedule",
    "parameter_id",
    "save_tensors",
    "sequence_schedule",
    "snapshot",
    "step_schedule",
]

def assign_all(updates: List[Tuple[Tensor, Tensor]]) -> None: ...
def embedding(indices: Any, weight: Tensor) -> Tensor: ...
def embedding_parameters(count: int, size: int) -> Tensor: ...
def is_interior(tensor: Tensor) -> bool: ...
def linear(x: Any, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor: ...
def linear_parameters(
    in_features: int, out_features: int, bias: bool
) -> Tuple[Tensor, Optional[Tensor]]: ...
def load_into(
    path: Union[str, "os.PathLike[str]"], tensors: List[Tuple[str, Tensor]]
) -> None: ...
def load_tensors(path: Union[str, "os.PathLike[str]"]) -> Dict[str, Tensor]: ...
def parameter_id(ob: Any) -> Optional[int]: ...
def save_tensors(
    path: Union[str, "os.PathLike[str]"], tensors: List[Tuple[str, Tensor]]
) -> None: ...
def snapshot(tensor: Tensor) -> Tensor: ...

@final
class Schedule:
    def rate(self, base: float, step: int) -> float: ...

def attention_parameters(
    size: int, heads: int, kv_heads: int, bias: bool
) -> List[Tuple[Tensor, Optional[Tensor]]]: ...
def conv_parameters(
    inputs: int,
    outputs: int,
    kernel: Tuple[int, ...],
    groups: int,
    transposed: bool,
    bias: bool,
) -> Tuple[Tensor, Optional[Tensor]]: ...
def constant_schedule(factor: float, total_iters: int) -> Schedule: ...
def cosine_schedule(t_max: int, eta_min: float) -> Schedule: ...
def exponential_schedule(gamma: float) -> Schedule: ...
def linear_schedule(start: float, end: float, total_iters: int) -> Schedule: ...
def multi_step_schedule(milestones: List[int], gamma: float) -> Schedule: ...
def multihead_attention(
    inputs: Any,
    weights: Any,
    biases: Any,
    heads: int,
    kv_heads: int,
    mask: Any,
    is_causal: bool,
    dropout: float,
) -> Tuple[Tensor, Tensor]: ...
def one_cycle_schedule(
    max_lr: float,
    total_steps: int,
    pct_start: float,
    linear: bool,
    div_factor: float,
    final_div_factor: float,
) -> Schedule: ...
def sequence_schedule(parts: List[Schedule], milestones: List[int]) -> Schedule: ...
def step_schedule(step_size: int, gamma: float) -> Schedule: ...
