# SPDX-License-Identifier: Apache-2.0
"""Learning rate schedules of v2 (functions of samples n, or segments of samples or passes) and Fluid (of updates t).

The arguments of Fluid's schedules are text, `name:number,...`; a piecewise schedule has `boundary:rate,...` and ends
with `inf:rate`. Every schedule may be preceded by a linear warm-up: `lr_warmup_steps:n,start_lr:a,end_lr:b`.
`noam_decay` and `piecewise_decay` give the rate itself; all others start from the optimizer's rate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from paddle.errors import ConfigError
from paddle_node.contract.classes import NamedTuple

Formula: TypeAlias = Callable[[float, float, float, int], float]
"""(base rate, decay_a, decay_b, n) -> rate."""
StepRate: TypeAlias = Callable[[int], float]
_Arguments: TypeAlias = Mapping[str, float]
_Pairs: TypeAlias = Sequence[tuple[str, float]]

_WARM_UP = ("lr_warmup_steps", "start_lr", "end_lr")
_MORE_THAN_0 = frozenset(
    {"d_model", "warmup_steps", "decay_steps", "step_each_epoch", "epochs", "lr_warmup_steps"}
)
_PIECEWISE = "piecewise_decay"


def check_arguments(schedule: str, a: float, b: float) -> None:
    """Check the arguments of a schedule.

    Raises:
        ConfigError: the formula would divide by zero or yield a value that is not a real number.
    """
    if schedule in ("exp", "discexp") and b == 0:
        raise ConfigError(
            f"learning_rate_decay_b: schedule {schedule} divides by this value, so it must not be 0"
        )
    if schedule in ("caffe_poly", "exp", "discexp") and a <= 0:
        raise ConfigError(f"learning_rate_decay_a: schedule {schedule} expects more than 0, got {a:g}")
    if schedule == "poly" and a < 0:
        raise ConfigError(f"learning_rate_decay_a: schedule poly expects 0 or more, got {a:g}")
    if schedule == "caffe_poly" and b < 0:
        raise ConfigError(f"learning_rate_decay_b: schedule caffe_poly expects 0 or more, got {b:g}")
    if schedule == "linear" and b < 0:
        raise ConfigError(
            f"learning_rate_decay_b: the lower limit of schedule linear must not be negative, got {b:g}"
        )


FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {
        "constant": lambda lr, a, b, n: lr,
        "poly": lambda lr, a, b, n: lr * (1.0 + a * n) ** -b,
        "caffe_poly": lambda lr, a, b, n: lr * (1.0 - n / a) ** b if n <= a else 0.0,
        "exp": lambda lr, a, b, n: lr * a ** (n / b),
        "discexp": lambda lr, a, b, n: lr * a ** math.floor(n / b),
        "linear": lambda lr, a, b, n: max(lr - a * n, b),
    }
)
SAMPLE_SCHEDULES = (*FORMULAS, "manual", "pass_manual")
"""The names of all schedules; the last two are read by `read_segments`."""


_BY_A_AND_B = MappingProxyType(
    {
        "poly": "lr * (1 + a * n) ** -b",
        "caffe_poly": "lr * (1 - n / a) ** b",
        "exp": "lr * a ** (n / b)",
        "discexp": "lr * a ** floor(n / b)",
        "linear": "max(lr - a * n, b)",
    }
)
_STEM = 3


def unused_arguments(schedule: str, a: float, b: float, args: str) -> str:
    """Return why given arguments of a schedule do not change the learning rate, for a warning, or ""."""
    if schedule == "poly" and bool(a) != bool(b):
        name, other = ("learning_rate_decay_b", "a") if b else ("learning_rate_decay_a", "b")
        formula = _BY_A_AND_B[schedule]
        return f"{name} has no effect without learning_rate_decay_{other}: the learning rate is {formula}"
    reads_decays, reads_args = schedule in _BY_A_AND_B, schedule not in FORMULAS
    given = {
        "learning_rate_decay_a": bool(a) and not reads_decays,
        "learning_rate_decay_b": bool(b) and not reads_decays,
        "learning_rate_args": bool(args) and not reads_args,
    }
    names = " and ".join(name for name, is_unused in given.items() if is_unused)
    return f"learning_rate_schedule={schedule!r} does not use {names}" if names else ""


def similar_to(schedule: str, a: float, b: float) -> str:
    """Return the end of the message about a schedule that cannot be used: similar ones with the arguments given."""
    stem = schedule[:_STEM].lower()
    if not (a or b):
        near = [repr(name) for name in (*SAMPLE_SCHEDULES, *STEP_SCHEDULES) if stem and stem in name]
        return f"; did you mean {' or '.join(near)}?" if near else ""
    near = [name for name in _BY_A_AND_B if stem in name] or list(_BY_A_AND_B)
    listed = " or ".join(f"{name!r} ({_BY_A_AND_B[name]})" for name in near)
    return f"; with learning_rate_decay_a and learning_rate_decay_b, use {listed}, for n samples so far"


def read_segments(text: str) -> tuple[list[int], list[float]]:
    """Parse `s0:r0,s1:r1,...`: factor r_i applies up to and including position s_i; the last factor, also beyond.

    Raises:
        ConfigError: the text is malformed, or the positions do not ascend.
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
        raise ConfigError(f"learning_rate_args: expected finite, non-negative factors, got {text!r}")
    if bounds != sorted(bounds):
        raise ConfigError(f"learning_rate_args: expected ascending positions, got {text!r}")
    return bounds, factors


def _noam(lr: float, t: int, a: _Arguments) -> float:
    n = t + 1  # Vaswani et al., 2017, count from 1
    return float(a["d_model"] ** -0.5 * min(n**-0.5, n * a["warmup_steps"] ** -1.5))


def _polynomial(lr: float, t: int, a: _Arguments) -> float:
    steps, end = a["decay_steps"], a["end_learning_rate"]
    if a["cycle"]:
        steps *= max(math.ceil(t / steps), 1)
    return float((lr - end) * (1.0 - min(t, steps) / steps) ** a["power"] + end)


def _cosine(lr: float, t: int, a: _Arguments) -> float:
    epoch = math.floor(t / a["step_each_epoch"])
    return lr / 2.0 * (math.cos(epoch * math.pi / a["epochs"]) + 1.0)


class _Schedule(NamedTuple):
    """A schedule's formula, its required arguments, and its optional arguments with their defaults."""

    formula: Callable[[float, int, _Arguments], float]
    required: tuple[str, ...]
    defaults: Mapping[str, float] = MappingProxyType({})


def _decaying(formula: Callable[[float, float, float], float]) -> _Schedule:
    """Return the schedule (base rate, decay_rate, n) -> rate; n: periods so far, rounded down for a staircase."""

    def at(lr: float, t: int, a: _Arguments) -> float:
        periods = t / a["decay_steps"]
        return float(formula(lr, a["decay_rate"], math.floor(periods) if a["staircase"] else periods))

    return _Schedule(at, ("decay_steps", "decay_rate"), MappingProxyType({"staircase": 0.0}))


_SCHEDULES: Mapping[str, _Schedule] = MappingProxyType(
    {
        "noam_decay": _Schedule(_noam, ("d_model", "warmup_steps")),
        "exponential_decay": _decaying(lambda lr, rate, n: lr * rate**n),
        "natural_exp_decay": _decaying(lambda lr, rate, n: lr * math.exp(-rate * n)),
        "inverse_time_decay": _decaying(lambda lr, rate, n: lr / (1.0 + rate * n)),
        "polynomial_decay": _Schedule(
            _polynomial,
            ("decay_steps",),
            MappingProxyType({"end_learning_rate": 1e-4, "power": 1.0, "cycle": 0.0}),
        ),
        "cosine_decay": _Schedule(_cosine, ("step_each_epoch", "epochs")),
        "linear_lr_warmup": _Schedule(lambda lr, t, a: lr, _WARM_UP),
    }
)
STEP_SCHEDULES = (*_SCHEDULES, _PIECEWISE)
"""The names of the schedules that depend on updates."""


def read_step_schedule(name: str, learning_rate: float, text: str) -> StepRate:
    """Return the rate as a function of the updates made so far.

    Raises:
        ConfigError: an argument is unknown, missing, repeated or out of range.
    """
    pairs = _read_pairs(name, text)
    warm_up = {key: value for key, value in pairs if key in _WARM_UP}
    if name == _PIECEWISE:
        rate = _piecewise([(key, value) for key, value in pairs if key not in _WARM_UP])
    else:
        schedule = _SCHEDULES[name]
        known = {*schedule.required, *schedule.defaults, *_WARM_UP}
        for key, _ in pairs:
            if key not in known:
                raise ConfigError(f"learning_rate_args: {name} takes {', '.join(sorted(known))}, got {key!r}")
        arguments = {**schedule.defaults, **dict(pairs)}
        _require_all(name, schedule.required, arguments)
        rate = lambda t: schedule.formula(learning_rate, t, arguments)  # noqa: E731 - a closure either way
    if not warm_up:
        return rate
    _require_all(name, _WARM_UP, warm_up)
    steps, start, end = (warm_up[key] for key in _WARM_UP)
    return lambda t: start + (end - start) * t / steps if t < steps else rate(t)


def _piecewise(pairs: _Pairs) -> StepRate:
    """Read `boundary:rate,...,inf:rate`: rate i holds for t < boundary i."""
    try:
        bounds = [float(key) for key, _ in pairs]
    except ValueError:
        bounds = []
    ascending = all(a < b for a, b in itertools.pairwise(bounds))
    if not bounds or bounds[-1] != math.inf or not ascending or any(value < 0 for _, value in pairs):
        got = ",".join(f"{key}:{value:g}" for key, value in pairs)
        raise ConfigError(
            "learning_rate_args: piecewise_decay expects '<boundary>:<rate>,...,inf:<rate>' with ascending "
            f"boundaries and rates of 0 or more, got {got!r}"
        )
    return lambda t: next(value for bound, (_, value) in zip(bounds, pairs, strict=True) if t < bound)


def _read_pairs(name: str, text: str) -> list[tuple[str, float]]:
    pairs: list[tuple[str, float]] = []
    for part in filter(None, text.split(",")):
        key, _, number = part.partition(":")
        key = key.strip()
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ConfigError(f"learning_rate_args: expected '<name>:<number>,...', got {part!r} in {text!r}")
        if key in dict(pairs):
            raise ConfigError(f"learning_rate_args: {name}: {key} is given twice in {text!r}")
        if value < 0 or (key in _MORE_THAN_0 and not value):
            least = "more than 0" if key in _MORE_THAN_0 else "0 or more"
            raise ConfigError(f"learning_rate_args: {name}: {key}: expected {least}, got {value:g}")
        pairs.append((key, value))
    return pairs


def _require_all(name: str, required: Sequence[str], arguments: Mapping[str, float]) -> None:
    missing = [key for key in required if key not in arguments]
    if missing:
        raise ConfigError(f"learning_rate_args: {name} needs {', '.join(missing)}, as '<name>:<number>,...'")
