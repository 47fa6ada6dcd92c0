"""Kernels: how graphs are split, what is stored in between, and the plans that are remembered."""

from typing import NamedTuple

from ._uopc import Kernel, Plan, PlanBuffer, PlanCache, listing, make_plan, plan_key
from ._uopc import plans as _plans
from ._uopc import stats as _stats

__all__ = [
    "Kernel",
    "Plan",
    "PlanBuffer",
    "PlanCache",
    "Stats",
    "listing",
    "make_plan",
    "plan_key",
    "stats",
]


class Stats(NamedTuple):
    """What has been done in this process so far."""

    plan_hits: int
    """Realisations whose plan was known."""
    plan_misses: int
    """Realisations that had to make a plan."""
    plans: int
    """Plans that are remembered now."""
    compiler_calls: int
    """Translation units handed to the C compiler."""
    disk_hits: int
    """Translation units found in the disk cache."""
    launches: int
    """Kernels run."""
    peak_bytes: int
    """The most bytes that a run took at once, inputs apart, as planned."""


def stats() -> Stats:
    """What has been done in this process so far.

    >>> before = uopc.kernelize.stats().launches
    >>> total = Tensor([1.0, 2.0]).sum().item()
    >>> uopc.kernelize.stats().launches - before
    1
    """
    return Stats(**_stats())
