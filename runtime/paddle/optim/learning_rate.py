# SPDX-License-Identifier: Apache-2.0
"""The learning rate over the course of training, as a function of samples processed (n) and pass (p).

Fluid's schedules, functions of updates, are in `schedule.by_updates`. Some rules keep the base rate and ignore
schedules (AdaGrad, Adamax); that is said by the rule, not here.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from paddle.errors import ConfigError
from paddle.optim.schedule.by_updates import STEP_SCHEDULES, read_step_schedule
from paddle.optim.spec import OptimizerSpec

_log = logging.getLogger(__name__)

_Formula: TypeAlias = Callable[[float, float, float, int], float]


class LearningRate:
    """The rate of one optimizer. Not thread-safe: it remembers which segment it told last."""

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
        self._formula = _FORMULAS.get(optimizer.schedule)
        _check_arguments(optimizer)
        by_segments = self._formula is None and self._step_rate is None
        self._segments = _read_segments(optimizer.schedule_args) if by_segments else ([], [])
        self._segment: int | None = None

    def at(self, num_samples: int, pass_id: int, num_updates: int | None = None) -> float:
        """Return the rate after `num_samples` samples and `num_updates` updates, in pass `pass_id` (from 0).

        Locally and in synchronous training num_samples includes the current batch, in asynchronous it does
        not. num_updates never includes it; only Fluid's schedules need it.

        Raises:
            ConfigError: the schedule grew beyond every number, or needs a number of updates that is not given.
        """
        if self._step_rate is not None:
            if num_updates is None:
                raise ConfigError(
                    f"learning rate schedule {self._spec.schedule} counts updates: give their number"
                )
            try:
                rate = self._step_rate(num_updates)
            except OverflowError:
                rate = math.inf
            return self._finite(rate, f"{num_updates} updates")
        if self._formula is not None:
            return self._computed(self._formula, num_samples)
        bounds, factors = self._segments
        position = pass_id if self._spec.schedule == "pass_manual" else num_samples
        segment = min(bisect_left(bounds, position), len(factors) - 1)
        rate = self._spec.learning_rate * factors[segment]
        if self._segment is not None and segment != self._segment:
            _log.info(" learning_rate changes to %g", rate)
        self._segment = segment
        return rate

    def _computed(self, formula: _Formula, num_samples: int) -> float:
        spec = self._spec
        try:
            rate = formula(spec.learning_rate, spec.decay_a, spec.decay_b, num_samples)
        except OverflowError:
            rate = math.inf
        return self._finite(rate, f"{num_samples} samples")

    def _finite(self, rate: float, after: str) -> float:
        spec = self._spec
        if not math.isfinite(rate):
            arguments = spec.schedule_args or f"a={spec.decay_a:g}, b={spec.decay_b:g}"
            raise ConfigError(
                f"learning rate schedule {spec.schedule} with {arguments}: expected a finite rate, got {rate} "
                f"after {after}"
            )
        return rate


def _check_arguments(optimizer: OptimizerSpec) -> None:
    """Refuse arguments for which a formula divides by zero or leaves the real numbers."""
    schedule, a, b = optimizer.schedule, optimizer.decay_a, optimizer.decay_b
    if schedule in ("exp", "discexp") and b == 0:
        raise ConfigError(f"learning_rate_decay_b: schedule {schedule} divides by it, got 0")
    if schedule in ("caffe_poly", "exp", "discexp") and a <= 0:
        raise ConfigError(f"learning_rate_decay_a: schedule {schedule} expects more than 0, got {a:g}")
    if schedule == "poly" and a < 0:
        raise ConfigError(f"learning_rate_decay_a: schedule poly expects 0 or more, got {a:g}")
    if schedule == "caffe_poly" and b < 0:
        raise ConfigError(f"learning_rate_decay_b: schedule caffe_poly expects 0 or more, got {b:g}")
    if schedule == "linear" and b < 0:
        raise ConfigError(f"learning_rate_decay_b: schedule linear ends at it, expected 0 or more, got {b:g}")


def _constant(lr: float, a: float, b: float, n: int) -> float:
    return lr


def _poly(lr: float, a: float, b: float, n: int) -> float:
    return float(lr * (1.0 + a * n) ** -b)


def _caffe_poly(lr: float, a: float, b: float, n: int) -> float:
    return float(lr * (1.0 - n / a) ** b) if n <= a else 0.0


def _exp(lr: float, a: float, b: float, n: int) -> float:
    return float(lr * a ** (n / b))


def _discexp(lr: float, a: float, b: float, n: int) -> float:
    return float(lr * a ** math.floor(n / b))


def _linear(lr: float, a: float, b: float, n: int) -> float:
    return max(lr - a * n, b)


_FORMULAS: Mapping[str, _Formula] = MappingProxyType(
    {
        "constant": _constant,
        "poly": _poly,
        "caffe_poly": _caffe_poly,
        "exp": _exp,
        "discexp": _discexp,
        "linear": _linear,
    }
)


def _read_segments(text: str) -> tuple[list[int], list[float]]:
    """Read `s0:r0,s1:r1,...`: factor r_i holds up to and including position s_i, the last one ever after."""
    bounds: list[int] = []
    factors: list[float] = []
    for part in text.split(","):
        bound, _, factor = part.partition(":")
        try:
            bounds.append(int(bound))
            factors.append(float(factor))
        except ValueError:
            raise ConfigError(
                f"learning_rate_args: expected '<position>:<factor>,...', got {part!r} in {text!r}"
            ) from None
    if not all(0 <= factor < math.inf for factor in factors):
        raise ConfigError(f"learning_rate_args: expected finite factors of 0 or more, got {text!r}")
    if bounds != sorted(bounds):
        raise ConfigError(f"learning_rate_args: expected ascending positions, got {text!r}")
    return bounds, factors
