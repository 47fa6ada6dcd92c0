"""What modules ask of the library."""

from .._uopc import (
    assign_all,
    embedding,
    embedding_parameters,
    is_interior,
    linear,
    linear_parameters,
    load_into,
    load_tensors,
    parameter_id,
    save_tensors,
    snapshot,
)

__all__ = [
    "assign_all",
    "embedding",
    "embedding_parameters",
    "is_interior",
    "linear",
    "linear_parameters",
    "load_into",
    "load_tensors",
    "parameter_id",
    "save_tensors",
    "snapshot",
]
