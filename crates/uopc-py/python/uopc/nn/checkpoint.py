"""A training run in one file: model, optimiser, schedule, averages and random numbers together."""

import os
from typing import Any, Dict, List, Tuple, Union

import numpy as np

from ..tensor import Tensor
from ._native import load_tensors, save_tensors

__all__ = ["load_checkpoint", "save_checkpoint"]

_Path = Union[str, "os.PathLike[str]"]


def save_checkpoint(path: _Path, **parts: Any) -> None:
    """Writes the parts of a training run to one safetensors file, each under its name, and with them
    the state of the random generator.

    Parts are modules, optimisers, schedules, averages: whatever has ``state_dict`` and
    ``load_state_dict`` whose values are tensors. A run that goes on from the file computes the same
    bits as one that was not interrupted, if its data come in the same order. Raises OSError when
    the file can't be written, TypeError for a part without a state.

    >>> import os, tempfile
    >>> layer = uopc.nn.Linear(2, 3)
    >>> opt = uopc.nn.AdamW(layer)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "run.safetensors")
    ...     uopc.nn.save_checkpoint(path, model=layer, optimizer=opt)
    ...     uopc.nn.load_checkpoint(path, model=layer, optimizer=opt)
    """
    _check(parts)
    tensors: List[Tuple[str, Tensor]] = []
    for part, stateful in parts.items():
        state = stateful.state_dict().items()
        tensors += [(f"{part}.{name}", Tensor(t)) for name, t in state]
    generator = np.array(Tensor.random_state(), np.uint64)
    tensors.append((_RANDOM, Tensor(generator)))
    save_tensors(path, tensors)


def load_checkpoint(path: _Path, **parts: Any) -> None:
    """Continues the parts of a training run, and the random generator, from a file that
    ``save_checkpoint`` wrote, see there.

    Raises OSError when the file can't be read, ValueError or TypeError when a part is not in it or
    does not fit. Then nothing has changed.
    """
    _check(parts)
    tensors = load_tensors(path)
    if _RANDOM not in tensors:
        raise ValueError(f"load_checkpoint: {os.fspath(path)} is none; it has no {_RANDOM}")
    seed, calls = tensors[_RANDOM].tolist()
    done: List[Tuple[Any, Dict[str, Any]]] = []
    try:
        for part, stateful in parts.items():
            before = stateful.state_dict()
            own = {
                name[len(part) + 1 :]: t
                for name, t in tensors.items()
                if name.startswith(f"{part}.")
            }
            stateful.load_state_dict(own)
            done.append((stateful, before))
    except BaseException:
        for stateful, before in done:
            stateful.load_state_dict(before)
        raise
    Tensor.set_random_state((seed, calls))


_RANDOM = "random.generator"


def _check(parts: Dict[str, Any]) -> None:
    for name, part in parts.items():
        if name == "random":
            raise ValueError("checkpoint: random is the name of the generator's state")
        if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
            kind = type(part).__name__
            raise TypeError(f"checkpoint: {name} is a {kind}, which has no state_dict")
