"""Files of tensors, tables and text.

- named tensors, in one of four formats: ``save``, ``load`` and ``open``; ``save_npz`` compresses,
  ``save_sharded`` makes a folder of files
- one array: ``save_npy`` and ``load_npy`` (NumPy), ``save_idx`` and ``load_idx`` (MNIST's format)
- tables of numbers: ``save_csv`` and ``load_csv``
- text: ``save_text``, ``load_text``, ``load_bytes``, and ``Alphabet`` for its characters as numbers

What is saved replaces an old file when it is complete. What a file claims about itself is checked
against its bytes before anything is made of it.
"""

import os
from typing import Dict, Mapping, Optional, Union

from . import _uopc
from ._uopc import Alphabet, TensorFile, load_bytes, load_csv, load_idx, load_npy, load_text
from ._uopc import open, save_csv, save_idx, save_npy
from .tensor import Tensor

__all__ = [
    "Alphabet",
    "TensorFile",
    "load",
    "load_bytes",
    "load_csv",
    "load_idx",
    "load_npy",
    "load_text",
    "open",
    "save",
    "save_csv",
    "save_idx",
    "save_npy",
    "save_npz",
    "save_sharded",
    "save_text",
]

_Path = Union[str, "os.PathLike[str]"]


def save(
    path: _Path,
    tensors: Mapping[str, Tensor],
    *,
    format: Optional[str] = None,
    metadata: Optional[Mapping[str, str]] = None,
) -> None:
    """Writes tensors of any dtype and shape by name, whole or not at all.

    The format is "safetensors", "npz", "npy" (one tensor) or "sharded" (a folder); without it that
    which the path says by its end, and safetensors if it says none. ``metadata`` are texts beside the
    tensors, for which NumPy's formats have no place.

    Raises OSError if the file can't be written, ValueError for a format that is none.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "two.safetensors")
    ...     uopc.io.save(path, {"a": Tensor([1.0]), "b": Tensor([[2, 3]])})
    ...     sorted(uopc.io.load(path))
    ['a', 'b']
    """
    _uopc.save_named(path, list(tensors.items()), format, list((metadata or {}).items()))


def save_npz(path: _Path, tensors: Mapping[str, Tensor], *, compress: bool = False) -> None:
    """Writes tensors by name to an npz file, whole or not at all: what ``numpy.load`` reads.

    Raises OSError if the file can't be written.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "one.npz")
    ...     uopc.io.save_npz(path, {"a": Tensor([1.0])}, compress=True)
    ...     np.load(path)["a"]
    array([1.], dtype=float32)
    """
    _uopc.save_arrays(path, list(tensors.items()), compress)


def save_sharded(
    path: _Path,
    tensors: Mapping[str, Tensor],
    *,
    max_shard_size: int = _uopc.SHARD,
    metadata: Optional[Mapping[str, str]] = None,
) -> None:
    """Writes tensors by name into a folder, which must be new or empty: safetensors files with at most
    so many bytes of elements each, and the index ``model.safetensors.index.json``.

    Raises OSError if the folder holds something, or a file can't be written.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model")
    ...     uopc.io.save_sharded(path, {"a": Tensor([1.0]), "b": Tensor([2.0])}, max_shard_size=4)
    ...     sorted(os.listdir(path))[0], uopc.io.open(path)["b"].tolist()
    ('model-00001-of-00002.safetensors', [2.0])
    """
    _uopc.save_shards(path, list(tensors.items()), max_shard_size, list((metadata or {}).items()))


def load(path: _Path) -> Dict[str, Tensor]:
    """The tensors of a file of any format by name, in memory of their own; ``open`` reads them when
    they are asked for. The array of an npy file has the name of the file.

    Raises OSError if the file can't be read or is damaged.

    >>> uopc.io.load("no-such-file")
    Traceback (most recent call last):
    OSError: no-such-file: ...
    """
    loaded: Dict[str, Tensor] = _uopc.load_named(path)
    return loaded


def save_text(path: _Path, text: str) -> None:
    """Writes a text as UTF-8, whole or not at all.

    Raises OSError if the file can't be written.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.txt")
    ...     uopc.io.save_text(path, "hello")
    ...     uopc.io.load_text(path), uopc.io.load_bytes(path).shape
    ('hello', (5,))
    """
    _uopc.save_text(path, text)
