"""Schedules of learning rates. Rates are data of a step's plan: changing them compiles nothing."""

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from ..tensor import Tensor
from ._native import (
    Schedule,
    constant_schedule,
    cosine_schedule,
    exponential_schedule,
    linear_schedule,
    multi_step_schedule,
    one_cycle_schedule,
    sequence_schedule,
    step_schedule,
)

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LinearLR",
    "MultiStepLR",
    "OneCycleLR",
    "SequentialLR",
    "StepLR",
]


class LRScheduler:
    """A schedule at work: it sets an optimiser's learning rates, one for each group, and counts
    steps. The rates that the optimiser has when the schedule is made are the base rates.

    This is what all schedules have in common; one of them is made, not this.
    """

    optimizer: Any
    """The optimiser whose rates are set."""

    def _begin(self, optimizer: Any, schedule: Schedule) -> None:
        self.optimizer = optimizer
        self._schedule = schedule
        self.base_lrs: List[float] = list(optimizer.lrs)
        self.last_epoch = 0
        self._set()

    def _set(self) -> None:
        self.optimizer.lrs = self.get_last_lr()

    def step(self) -> None:
        """Counts a step, and gives the optimiser the rates of the next one.

        >>> opt = uopc.nn.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> schedule = uopc.nn.ExponentialLR(opt, gamma=0.5)
        >>> schedule.step()
        >>> opt.lr
        0.5
        """
        self.last_epoch += 1
        self._set()

    def get_last_lr(self) -> List[float]:
        """The rate of each group now.

        >>> opt = uopc.nn.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> uopc.nn.ConstantLR(opt, factor=0.5, total_iters=3).get_last_lr()
        [0.5]
        """
        return [self._schedule.rate(base, self.last_epoch) for base in self.base_lrs]

    def state_dict(self) -> Dict[str, Tensor]:
        """The number of steps and the base rates, by name.

        >>> opt = uopc.nn.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> sorted(uopc.nn.StepLR(opt, 3).state_dict())
        ['base', 'steps']
        """
        steps = Tensor(np.array(self.last_epoch, np.uint64))
        return {"steps": steps, "base": Tensor(np.array(self.base_lrs, np.float64))}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave, and sets the optimiser's rates.

        Raises ValueError if an entry is missing or does not fit. Then nothing has changed.

        >>> opt = uopc.nn.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> schedule = uopc.nn.StepLR(opt, 3)
        >>> schedule.load_state_dict(schedule.state_dict())
        """
        for name in ("steps", "base"):
            if name not in state:
                raise ValueError(f"load_state_dict: the state has no entry {name}")
        steps, base = np.asarray(state["steps"]), np.asarray(state["base"])
        if steps.size != 1 or steps.dtype.kind not in "iu" or base.shape != (len(self.base_lrs),):
            raise ValueError(
                f"load_state_dict: one number of steps and {len(self.base_lrs)} base rates are "
                f"needed, not {steps.dtype} {steps.shape} and {base.shape}"
            )
        self.last_epoch = int(steps.item())
        self.base_lrs = [float(rate) for rate in base]
        self._set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(step={self.last_epoch}, lr={self.get_last_lr()})"


class ConstantLR(LRScheduler):
    """The base rate times ``factor`` for the first ``total_iters`` steps, then the base rate.

    >>> opt = uopc.nn.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> uopc.nn.ConstantLR(opt, factor=0.5, total_iters=3)
    ConstantLR(step=0, lr=[0.5])
    """

    def __init__(self, optimizer: Any, factor: float = 1.0 / 3, total_iters: int = 5) -> None:
        self._begin(optimizer, constant_schedule(factor, total_iters))


class StepLR(LRScheduler):
    """The base rate times ``gamma`` once for each ``step_size`` steps.

    >>> opt = uopc.nn.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> uopc.nn.StepLR(opt, step_size=30)
    StepLR(step=0, lr=[1.0])
    """

    def __init__(self, optimizer: Any, step_size: int, gamma: float = 0.1) -> None:
        self._begin(optimizer, step_schedule(step_size, gamma))


class MultiStepLR(LRScheduler):
    """The base rate times ``gamma`` once for each of ``milestones`` that was reached.

    >>> opt = uopc.nn.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> uopc.nn.MultiStepLR(opt, milestones=[30, 80])
    MultiStepLR(step=0, lr=[1.0])
    """

    def __init__(self, optimizer: Any, milestones: Sequence[int], gamma: float = 0.1) -> None:
        self._begin(optimizer, multi_step_schedule(sorted(milestones), gamma))


class ExponentialLR(LRScheduler):
    """The base rate times ``gamma`` to the number of steps.

    >>> opt = uopc.nn.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> uopc.nn.ExponentialLR(opt, gamma=0.9)
    ExponentialLR(step=0, lr=[1.0])
    """

    def __init__(self, optimizer: Any, gamma: float) -> None:
        self._begin(optimizer, exponential_schedule(gamma))


class CosineAnnealingLR(LRScheduler):
    """Down from the base rate to ``eta_min`` along half a period of a cosine in ``T_max`` steps.

    >>> opt = uopc.nn.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> uopc.nn.CosineAnnealingLR(opt, T_max=100)
    CosineAnnealingLR(step=0, lr=[1.0])
    """

    def __init__(self, optimizer: Any, T_max: int, eta_min: float = 0.0) -> None:
        self._begin(optimizer, cosine_schedule(T_max, eta_min))


class LinearLR(LRScheduler):
    """The base rate times a factor that goes from ``start_factor`` to ``end_factor`` in a straight
    line over ``total_iters`` steps: a warm-up.

    >>> opt = uopc.nn.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> uopc.nn.LinearLR(opt, start_factor=0.25, total_iters=3)
    LinearLR(step=0, lr=[0.25])
    """

    def __init__(
        self,
        optimizer: Any,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
    ) -> None:
        self._begin(optimizer, linear_schedule(start_factor, end_factor, total_iters))


class OneCycleLR(LRScheduler):
    """Up from max_lr / div_factor to ``max_lr`` in the first share ``pct_start`` of the steps, then
    down to max_lr / div_factor / final_div_factor, along cosines or, with ``anneal_strategy``
    "linear", lines. Momentum stays as it is.

    >>> opt = uopc.nn.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> uopc.nn.OneCycleLR(opt, max_lr=5.0, total_steps=100)
    OneCycleLR(step=0, lr=[0.2])
    """

    def __init__(
        self,
        optimizer: Any,
        max_lr: float,
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f'OneCycleLR: anneal_strategy is "cos" or "linear", not {anneal_strategy!r}'
            )
        linear = anneal_strategy == "linear"
        self._begin(
            optimizer,
            one_cycle_schedule(max_lr, total_steps, pct_start, linear, div_factor, final_div_factor),
        )


class SequentialLR(LRScheduler):
    """Schedules of one optimiser one after the other: each begins anew at its milestone.

    >>> opt = uopc.nn.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> warm_up = uopc.nn.LinearLR(opt, start_factor=0.1, total_iters=10)
    >>> cosine = uopc.nn.CosineAnnealingLR(opt, T_max=90)
    >>> uopc.nn.SequentialLR(opt, [warm_up, cosine], milestones=[10])
    SequentialLR(step=0, lr=[0.1])
    """

    def __init__(
        self, optimizer: Any, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ) -> None:
        parts: Tuple[LRScheduler, ...] = tuple(schedulers)
        for part in parts:
            if part.optimizer is not optimizer:
                raise ValueError("SequentialLR: a schedule belongs to another optimiser")
        schedule = sequence_schedule([part._schedule for part in parts], list(milestones))
        if parts:
            # The optimiser's rates are those of the last schedule by now.
            optimizer.lrs = parts[0].base_lrs
        self._begin(optimizer, schedule)
