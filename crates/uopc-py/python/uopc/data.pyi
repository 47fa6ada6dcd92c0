import os
from typing import Tuple, Union

from typing_extensions import TypeAlias

from .tensor import Tensor

__all__ = ["digits", "idx"]

_Pair: TypeAlias = Tuple[Tensor, Tensor]
_Path: TypeAlias = Union[str, "os.PathLike[str]"]

def digits() -> Tuple[_Pair, _Pair]: ...
def idx(images: _Path, labels: _Path) -> _Pair: ...
