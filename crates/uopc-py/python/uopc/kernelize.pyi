from collections.abc import Iterator
from typing import List, NamedTuple, Optional, Tuple, Union, final

from typing_extensions import Literal, TypeAlias

from . import DType
from .tensor import Tensor
from .uop import UOp

__all__ = [
    "Kernel",
    "Plan",
    "PlanBuffer",
    "PlanCache",
    "Stats",
    "listing",
    "make_plan",
    "plan_key",
    "stats",
]

_Roots: TypeAlias = Union[
    UOp,
    Tensor,
    List[UOp],
    List[Tensor],
    List[Union[UOp, Tensor]],
    Tuple[Union[UOp, Tensor], ...],
]

@final
class Plan:
    @property
    def kernels(self) -> List[Kernel]: ...
    @property
    def buffers(self) -> List[PlanBuffer]: ...
    @property
    def outputs(self) -> Tuple[int, ...]: ...
    def to_uir(self) -> str: ...
    def explain(self) -> str: ...

@final
class Kernel:
    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> Tuple[Tuple[int, int], ...]: ...
    @property
    def outputs(self) -> Tuple[Tuple[int, int], ...]: ...
    @property
    def flops(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def source(self) -> str: ...
    def to_uir(self) -> str: ...

@final
class PlanBuffer:
    @property
    def dtype(self) -> DType: ...
    @property
    def n(self) -> int: ...
    @property
    def role(self) -> Literal["input", "output", "temporary"]: ...
    @property
    def slot(self) -> Optional[int]: ...
    @property
    def reason(self) -> str: ...

@final
class PlanCache:
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def __contains__(self, key: object, /) -> bool: ...
    def clear(self) -> None: ...

class Stats(NamedTuple):
    plan_hits: int
    plan_misses: int
    plans: int
    compiler_calls: int
    disk_hits: int
    launches: int
    peak_bytes: int

_plans: PlanCache

def make_plan(roots: _Roots) -> Tuple[Plan, List[UOp]]: ...
def plan_key(roots: _Roots) -> str: ...
def listing(
    roots: _Roots,
    name: Optional[str] = None,
    schedule: Literal["default", "plain"] = "default",
) -> str: ...
def stats() -> Stats: ...
