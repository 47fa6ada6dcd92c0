"""Data sets: the handwritten digits that come with the package, and files in MNIST's format."""

from ._uopc import digits, idx

__all__ = ["digits", "idx"]
