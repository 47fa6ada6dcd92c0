import os
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple, Union

from typing_extensions import TypeAlias, final

from .tensor import Tensor, _TensorLike

__all__ = ["Batches", "DataLoader", "digits", "idx", "mnist"]

_Pair: TypeAlias = Tuple[Tensor, Tensor]
_Path: TypeAlias = Union[str, "os.PathLike[str]"]

@final
class Batches:
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def __length_hint__(self) -> int: ...

@final
class DataLoader:
    def __new__(
        cls,
        *arrays: _TensorLike,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        prefetch: int = 2,
        transform: Optional[Callable[..., Any]] = None,
        with_generator: bool = False,
    ) -> DataLoader: ...
    def state_dict(self) -> Dict[str, int]: ...
    def load_state_dict(self, state: Mapping[str, int]) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Batches: ...

def digits() -> Tuple[_Pair, _Pair]: ...
def idx(images: _Path, labels: _Path) -> _Pair: ...
def mnist(folder: _Path) -> Tuple[_Pair, _Pair]: ...
