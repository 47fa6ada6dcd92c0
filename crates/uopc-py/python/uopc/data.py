"""Data sets, and batches of arrays: the handwritten digits that come with the package, files in
MNIST's format, and ``DataLoader``."""

from ._uopc import Batches, DataLoader, digits, idx, mnist

__all__ = ["Batches", "DataLoader", "digits", "idx", "mnist"]
