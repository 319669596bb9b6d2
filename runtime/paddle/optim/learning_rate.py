# SPDX-License-Identifier: Apache-2.0
"""The learning rate as a function of the samples, passes or updates so far.

Formulas are in `schedule`. Some rules ignore schedules and use the base rate (AdaGrad, Adamax).
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping

from paddle.errors import ConfigError
from paddle.optim.schedule import (
    FORMULAS,
    STEP_SCHEDULES,
    check_arguments,
    read_segments,
    read_step_schedule,
)
from paddle.optim.spec import OptimizerSpec, ParameterSpec
from paddle_node.contract.classes import NamedTuple

_log = logging.getLogger(__name__)
_MOST = 100.0


def unusual(rate: float) -> str:
    """Return what is unusual about the learning rate of an optimizer, for a warning, or ""."""
    if not rate:
        return "with learning_rate=0, the parameters do not change"
    return f"learning_rate={rate:g} is far too large; common values are 1e-5 to 1" if rate > _MOST else ""


class LearningRate:
    """The learning rate of one optimizer. Not thread-safe: it records the segment that was logged last."""

    def __init__(self, optimizer: OptimizerSpec) -> None:
        """Read the schedule.

        Raises:
            ConfigError: the schedule's arguments cannot be used.
        """
        self._spec = optimizer
        self._step_rate = (
            read_step_schedule(optimizer.schedule, optimizer.learning_rate, optimizer.schedule_args)
            if optimizer.schedule in STEP_SCHEDULES
            else None
        )
        self._formula = FORMULAS.get(optimizer.schedule)
        check_arguments(optimizer.schedule, optimizer.decay_a, optimizer.decay_b)
        by_segments = self._formula is None and self._step_rate is None
        self._segments = read_segments(optimizer.schedule_args) if by_segments else ([], [])
        self._segment: int | None = None

    def at(self, num_samples: int, pass_id: int, num_updates: int | None = None) -> float:
        """Return the learning rate after `num_samples` samples and `num_updates` updates, in pass `pass_id` (from 0).

        num_samples includes the current batch in local and synchronous training, but not in asynchronous training.
        num_updates never includes it, and is needed only by Fluid's schedules.

        Raises:
            ConfigError: the schedule overflowed, or needs a number of updates that was not given.
        """
        spec = self._spec
        if self._step_rate is not None and num_updates is None:
            raise ConfigError(f"learning rate schedule {spec.schedule} counts updates: pass num_updates")
        try:
            if self._formula is not None:
                rate = self._formula(spec.learning_rate, spec.decay_a, spec.decay_b, num_samples)
            elif self._step_rate is not None and num_updates is not None:
                rate = self._step_rate(num_updates)
            else:
                rate = self._by_segment(num_samples, pass_id)
        except OverflowError:
            rate = math.inf
        if not math.isfinite(rate):
            arguments = spec.schedule_args or f"a={spec.decay_a:g}, b={spec.decay_b:g}"
            after = f"{num_samples} samples" if self._step_rate is None else f"{num_updates} updates"
            raise ConfigError(
                f"learning rate schedule {spec.schedule} with {arguments}: expected a finite rate, got {rate} "
                f"after {after}. Change the arguments"
            )
        return rate

    def _by_segment(self, num_samples: int, pass_id: int) -> float:
        bounds, factors = self._segments
        position = pass_id if self._spec.schedule == "pass_manual" else num_samples
        segment = min(bisect_left(bounds, position), len(factors) - 1)
        rate = self._spec.learning_rate * factors[segment]
        if self._segment is not None and segment != self._segment:
            _log.info(" learning_rate changes to %g", rate)
        self._segment = segment
        return rate


class StepRates(NamedTuple):
    """The learning rates of one step: the job's rate, and the rates of parameters with their own optimizer, by name."""

    job: float
    own: Mapping[str, float]

    def of(self, name: str) -> float:
        """Return the learning rate of the parameter with this name, in this step."""
        return self.own.get(name, self.job)


class JobRates:
    """The learning rates of a job's optimizer and of the separate optimizers of parameters. Not thread-safe."""

    def __init__(self, optimizer: OptimizerSpec, parameters: Iterable[ParameterSpec]) -> None:
        """Read the schedules. Raises ConfigError as in `LearningRate`."""
        self._job = LearningRate(optimizer)
        self._own = {each.name: LearningRate(each.optimizer) for each in parameters if each.optimizer}

    def at(self, num_samples: int, pass_id: int, num_updates: int) -> StepRates:
        """Return the learning rates of all parameters after the given samples, passes and updates."""
        at = num_samples, pass_id, num_updates
        own = {name: rate.at(*at) for name, rate in self._own.items()} if self._own else {}
        return StepRates(self._job.at(*at), own)
