# SPDX-License-Identifier: Apache-2.0
"""Specifications of optimizers and parameters: plain values that trainers also send to servers.

Both are immutable and validated when created. `from_json` accepts only what `to_json` returns: an unknown or missing
field, or a field of the wrong type, raises an error that names it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.optim.rules.rule import Rule
from paddle.optim.rules.table import HYPER_RANGES, OTHER_RANGE, RULES
from paddle.optim.schedule import SAMPLE_SCHEDULES, STEP_SCHEDULES, read_segments, similar_to
from paddle.signatures import explained
from paddle_node.contract.classes import NamedTuple, dataclass, field, fields, replace

_MAX_DISCARD_RATIO = 1e6
# Offsets in bytes must fit in 64 bits for elements of any size.
_MAX_SIZE = 1 << 60

SCHEDULES = (*SAMPLE_SCHEDULES, *STEP_SCHEDULES)


class RowGradient(NamedTuple):
    """The sparse gradient of a parameter: only rows that a batch used.

    Attributes:
        rows: (n,) int64, strictly ascending.
        values: (n, width) float32.
    """

    rows: npt.NDArray[np.int64]
    values: npt.NDArray[np.float32]


@explained
@dataclass(frozen=True, slots=True)
class OptimizerSpec:
    """The specification of an optimizer: update rule, learning rate, schedule, and synchronous or asynchronous updates.

    Attributes:
        rule: a key of `rules.table.RULES`.
        hyper: the rule's hyperparameters; missing ones get their defaults.
        schedule: one of `SCHEDULES`; decay_a, decay_b and schedule_args are its arguments.
        discard_ratio: asynchronous only: the maximum lag of a gradient, in updates, as a multiple of the number of
            trainers.
    """

    rule: str = "momentum"
    hyper: Mapping[str, float] = field(default_factory=dict)
    learning_rate: float = 1e-3
    schedule: str = "constant"
    decay_a: float = 0.0
    decay_b: float = 0.0
    schedule_args: str = ""
    is_async: bool = False
    discard_ratio: float = 1.5

    def __post_init__(self) -> None:
        _require(self.rule in RULES, "optimizer rule", f"one of {', '.join(RULES)}", self.rule)
        defaults: Mapping[str, float] = RULES[self.rule].defaults()
        for name, value in self.hyper.items():
            _require(name in defaults, f"hyperparameter of {self.rule}", f"one of {sorted(defaults)}", name)
            _require(_is_finite(value), f"{self.rule} {name}", "a finite number", value)
            expected, holds = HYPER_RANGES.get(name, OTHER_RANGE)
            _require(holds(value), f"{self.rule} {name}", expected, value)
        hyper = {**defaults, **{name: float(value) for name, value in self.hyper.items()}}
        object.__setattr__(self, "hyper", MappingProxyType(hyper))
        lacks_arguments = self.schedule in STEP_SCHEDULES and not self.schedule_args
        if self.schedule not in SCHEDULES or (lacks_arguments and (self.decay_a or self.decay_b)):
            problem = f"expected one of {', '.join(SCHEDULES)}, got {self.schedule!r}"
            if lacks_arguments:
                problem = f"{self.schedule!r} needs learning_rate_args"
            similar = similar_to(str(self.schedule), self.decay_a, self.decay_b)
            raise ConfigError(f"learning rate schedule: {problem}{similar}")
        _numbers(self, "learning_rate", "decay_a", "decay_b", "discard_ratio")
        _require(self.learning_rate >= 0, "learning_rate", "0 or more", self.learning_rate)
        _require(
            0 <= self.discard_ratio <= _MAX_DISCARD_RATIO,
            "discard_ratio",
            f"0 to {_MAX_DISCARD_RATIO:.0f}",
            self.discard_ratio,
        )
        _require(isinstance(self.schedule_args, str), "schedule_args", "text", self.schedule_args)
        _require(isinstance(self.is_async, bool), "is_async", "true or false", self.is_async)

    def after_passes(self, passes: int) -> Self:
        """Return this optimizer for training that continues after the given number of passes."""
        if not passes or self.schedule != "pass_manual":
            return self
        pairs = zip(*read_segments(self.schedule_args), strict=True)
        return replace(
            self, schedule_args=",".join(f"{bound - passes}:{factor!r}" for bound, factor in pairs)
        )

    def to_json(self) -> dict[str, Any]:
        """Convert the spec to a dictionary of JSON values."""
        return {item.name: getattr(self, item.name) for item in fields(self)} | {"hyper": dict(self.hyper)}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Convert a dictionary from `to_json` back to the spec.

        Raises:
            ConfigError: `data` has unexpected fields, types or values.
        """
        content = exact_fields(cls, data)
        _require(isinstance(content["hyper"], dict), "hyper", "an object", content["hyper"])
        return cls(**content)


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """The optimizer settings of one parameter.

    Attributes:
        learning_rate: a factor on the optimizer's rate.
        l1: the rate of L1 decay.
        l2: the rate of L2 decay.
        clip: the bound on each element of the summed gradient; 0 means none.
        sparse: whether gradients are rows; the shape is then (height, width).
        static: whether it is never updated and never sent.
        optimizer: its own rule, rate and schedule; None means the job's. Only the job's optimizer decides whether
            gradients are applied on arrival.
    """

    name: str
    shape: tuple[int, ...]
    learning_rate: float = 1.0
    momentum: float = 0.0
    l1: float = 0.0
    l2: float = 0.0
    clip: float = 0.0
    sparse: bool = False
    static: bool = False
    optimizer: OptimizerSpec | None = None

    def __post_init__(self) -> None:
        _require(
            isinstance(self.name, str) and 0 < len(self.name.encode(errors="replace")) < 256,
            "parameter name",
            "1 to 255 bytes of UTF-8",
            self.name,
        )
        _require(self.name.isprintable(), "parameter name", "printable characters", self.name)
        object.__setattr__(self, "shape", tuple(self.shape))
        what = f"parameter {self.name}"
        _require(
            all(type(n) is int and n > 0 for n in self.shape),
            f"{what}: shape",
            "whole numbers > 0",
            self.shape,
        )
        _require(self.size <= _MAX_SIZE, f"{what}: shape", f"at most {_MAX_SIZE} elements", self.shape)
        _require(len(self.shape) > 0, f"{what}: shape", "at least one dimension", self.shape)
        _numbers(self, "learning_rate", "momentum", "l1", "l2", "clip", what=f"{what}: ")
        for name in ("momentum", "l1", "l2", "clip"):
            _require(getattr(self, name) >= 0, f"{what}: {name}", "0 or more", getattr(self, name))
        _require(isinstance(self.sparse, bool), f"{what}: sparse", "true or false", self.sparse)
        _require(isinstance(self.static, bool), f"{what}: static", "true or false", self.static)
        _require(
            not self.sparse or len(self.shape) == 2,
            f"{what}: shape of a sparse parameter",
            "(height, width)",
            self.shape,
        )
        if self.optimizer is not None:
            is_spec = isinstance(self.optimizer, OptimizerSpec)
            _require(is_spec, f"{what}: optimizer", "an OptimizerSpec", self.optimizer)
            _require(
                not self.optimizer.is_async,
                f"{what}: is_async of its own optimizer",
                "false, because only the job's optimizer sets it",
                True,
            )
        _require(not (self.l1 and self.momentum), f"{what}: momentum", "0 with L1 decay", self.momentum)

    @property
    def size(self) -> int:
        """Return the number of elements of the parameter."""
        return math.prod(self.shape)

    def to_json(self) -> dict[str, Any]:
        """Convert the spec to a dictionary of JSON values."""
        content = {item.name: getattr(self, item.name) for item in fields(self)} | {"shape": list(self.shape)}
        # Without an optimizer of its own, the format is that of earlier versions, which can read it.
        own = content.pop("optimizer")
        return content if own is None else content | {"optimizer": own.to_json()}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Convert a dictionary from `to_json` back to the spec.

        Raises:
            ConfigError: `data` has unexpected fields, types or values.
        """
        if isinstance(data, dict):
            data = {"optimizer": None, **data}
        content = exact_fields(cls, data)
        if content["optimizer"] is not None:
            content["optimizer"] = OptimizerSpec.from_json(content["optimizer"])
        _require(isinstance(content["shape"], list), "shape", "a list", content["shape"])
        return cls(**content)


def optimizer_of(parameter: ParameterSpec, job: OptimizerSpec) -> OptimizerSpec:
    """Return the optimizer of a parameter: its own, or the job's."""
    return job if parameter.optimizer is None else parameter.optimizer


def rule_of(optimizer: OptimizerSpec) -> Rule:
    """Return an optimizer's update rule, with its hyperparameters."""
    rule: Rule = RULES[optimizer.rule](**optimizer.hyper)
    return rule


def rate_of(rule: Rule, optimizer: OptimizerSpec, parameter: ParameterSpec, learning_rate: float) -> float:
    """Return η of one parameter: `learning_rate`, or the base rate if the rule ignores schedules."""
    return (learning_rate if rule.follows_schedule else optimizer.learning_rate) * parameter.learning_rate


def exact_fields(cls: type[Any], data: object) -> dict[str, Any]:
    """Return the fields of a dataclass from a JSON object; a missing or unknown field raises an error."""
    expected = {item.name for item in fields(cls)}
    if not isinstance(data, dict) or set(data) != expected:
        got = sorted(map(str, data)) if isinstance(data, dict) else type(data).__name__
        raise ConfigError(f"{cls.__name__}: expected the fields {sorted(expected)}, got {got}")
    return dict(data)


def _numbers(spec: object, *names: str, what: str = "") -> None:
    for name in names:
        value = getattr(spec, name)
        _require(_is_finite(value), f"{what}{name}", "a finite number", value)
        object.__setattr__(spec, name, float(value))


def _is_finite(value: object) -> bool:
    if not isinstance(value, (int, float, np.number)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except (OverflowError, TypeError):  # an int beyond every float, a complex number
        return False


def _require(holds: bool, what: str, expected: str, got: object) -> None:
    if not holds:
        raise ConfigError(f"{what}: expected {expected}, got {got!r}")
