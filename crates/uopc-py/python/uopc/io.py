"""Tensors in files: safetensors, which other libraries read and write as well."""

import os
from typing import Dict, Mapping, Union

from . import _uopc
from .tensor import Tensor

__all__ = ["load", "save"]

_Path = Union[str, "os.PathLike[str]"]


def save(path: _Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes tensors of any dtype and shape to a safetensors file, whole or not at all.

    Raises OSError if the file can't be written.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "two.safetensors")
    ...     uopc.io.save(path, {"a": Tensor([1.0]), "b": Tensor([[2, 3]])})
    ...     sorted(uopc.io.load(path))
    ['a', 'b']
    """
    _uopc.save_tensors(path, list(tensors.items()))


def load(path: _Path) -> Dict[str, Tensor]:
    """The tensors of a safetensors file by name.

    Raises OSError if the file can't be read or is damaged.

    >>> uopc.io.load("no-such-file")
    Traceback (most recent call last):
    OSError: no-such-file: ...
    """
    loaded: Dict[str, Tensor] = _uopc.load_tensors(path)
    return loaded
