# SPDX-License-Identifier: Apache-2.0
"""v2's learning rate schedules: functions of samples processed (n), or segments of samples or passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from paddle.errors import ConfigError

Formula: TypeAlias = Callable[[float, float, float, int], float]
"""(base rate, decay_a, decay_b, n) -> rate."""


def check_arguments(schedule: str, a: float, b: float) -> None:
    """Refuse arguments for which a formula divides by zero or leaves the real numbers.

    Raises:
        ConfigError: they are such.
    """
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


FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {
        "constant": _constant,
        "poly": _poly,
        "caffe_poly": _caffe_poly,
        "exp": _exp,
        "discexp": _discexp,
        "linear": _linear,
    }
)
SAMPLE_SCHEDULES = (*FORMULAS, "manual", "pass_manual")
"""Their names; the last two are read by `read_segments`."""


def read_segments(text: str) -> tuple[list[int], list[float]]:
    """Read `s0:r0,s1:r1,...`: factor r_i holds up to and including position s_i, the last one ever after.

    Raises:
        ConfigError: the text has another form, or the positions do not ascend.
    """
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
