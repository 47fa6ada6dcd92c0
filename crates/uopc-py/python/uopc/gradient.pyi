from collections.abc import Iterable
from typing import List

from .uop import UOp

__all__ = ["GradientWarning", "gradient"]

class GradientWarning(UserWarning): ...

def gradient(root: UOp, targets: Iterable[UOp], strict: bool = False) -> List[UOp]: ...
