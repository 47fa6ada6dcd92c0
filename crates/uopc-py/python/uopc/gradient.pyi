from collections.abc import Iterable
from typing import List, NamedTuple, Tuple

from .uop import UOp

__all__ = ["Batched", "GradientWarning", "gradient", "jvp", "vmap"]

class GradientWarning(UserWarning): ...

class Batched(NamedTuple):
    node: UOp
    batched: bool

def gradient(root: UOp, targets: Iterable[UOp], strict: bool = False) -> List[UOp]: ...
def jvp(root: UOp, targets: Iterable[UOp], tangents: Iterable[UOp]) -> UOp: ...
def vmap(roots: Iterable[UOp], inputs: Iterable[Tuple[UOp, UOp]]) -> List[Batched]: ...
