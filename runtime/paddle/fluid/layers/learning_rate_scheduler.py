# SPDX-License-Identifier: Apache-2.0
"""Learning rate schedules. t is the number of earlier runs: 0 in the first run (for noam_decay, counted from 1).

The operators have the role LRSched, so that a transpiler recognizes them and moves them to the servers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from paddle.fluid.errors import FluidError, answering
from paddle.fluid.layer_helper import append_LARS
from paddle.fluid.layers.blocks import Switch
from paddle.fluid.layers.nn.elements import autoincreased_step_counter, elementwise_max, elementwise_min
from paddle.fluid.layers.ops import ceil, cos, exp, floor
from paddle.fluid.layers.tensor import assign, cast, create_global_var, fill_constant
from paddle.fluid.program.program import default_main_program
from paddle.fluid.program.variable import Variable
from paddle.graph.operator import warn_script
from paddle.signatures import function

__all__ = [
    "append_LARS", "cosine_decay", "exponential_decay", "inverse_time_decay", "linear_lr_warmup", "natural_exp_decay",
    "noam_decay", "piecewise_decay", "polynomial_decay",
]  # fmt: skip


def noam_decay(d_model: float, warmup_steps: float) -> Variable:
    """Return the Transformer's learning rate, d^-0.5 · min(t^-0.5, t · warmup^-1.5), where d is `d_model`.

    Source: Vaswani et al., 2017.
    """
    with default_main_program()._lr_schedule_guard():
        step = lr_step_counter(1)
        first = step**-0.5
        second = (warmup_steps**-1.5) * step
        rate: Variable = (d_model**-0.5) * elementwise_min(first, second)
        return rate


def _decay(name: str, says: str, rate: Callable[[Any, Any, Variable], Any]) -> Callable[..., Variable]:
    """Return a decay layer; `rate` computes the rate from the initial learning rate, the decay rate and t/steps."""

    def build(given: dict[str, Any]) -> Variable:
        with default_main_program()._lr_schedule_guard():
            passed = _progress(name, given["decay_steps"], given["staircase"])
            found: Variable = rate(given["learning_rate"], given["decay_rate"], passed)
            return found

    signature = f"{name}(learning_rate, decay_steps, decay_rate, staircase=False)"
    return function(signature, f"Return {says}; with staircase, t/steps is rounded down.", build)


exponential_decay = _decay(
    "exponential_decay", "η rate^(t/steps)", lambda first, rate, passed: first * rate**passed
)
natural_exp_decay = _decay(
    "natural_exp_decay", "η e^(−rate t/steps)", lambda first, rate, passed: first * exp(-1 * rate * passed)
)
inverse_time_decay = _decay(
    "inverse_time_decay", "η/(1 + rate t/steps)", lambda first, rate, passed: first / (1 + rate * passed)
)


def polynomial_decay(
    learning_rate: float,
    decay_steps: int,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
) -> Variable:
    """Return the rate (η − end) (1 − min(t, steps)/steps)^power + end, with η = learning_rate and steps = decay_steps.

    With `cycle`, steps is replaced by its smallest multiple that is at least t.
    """
    _check_steps("polynomial_decay", decay_steps)
    _check_end(learning_rate, end_learning_rate)
    with default_main_program()._lr_schedule_guard():
        step = lr_step_counter(0)
        if cycle:
            # In the first run, t is 0; the multiple of steps is at least 1.
            turns = elementwise_max(ceil(step / decay_steps), fill_constant([1], "float32", 1.0))
            share = step / (turns * decay_steps)
        else:
            share = elementwise_min(step, fill_constant([1], "float32", float(decay_steps))) / decay_steps
        rate: Variable = (learning_rate - end_learning_rate) * ((1 - share) ** power) + end_learning_rate
        return rate


def cosine_decay(learning_rate: float, step_each_epoch: int, epochs: int) -> Variable:
    """Return the rate η/2 (cos(π epoch/epochs) + 1), with η = learning_rate and epoch = ⌊t/step_each_epoch⌋."""
    if step_each_epoch < 1 or epochs < 1:
        raise FluidError(
            f"cosine_decay: expected step_each_epoch and epochs of at least 1, got {step_each_epoch} and {epochs}"
        )
    with default_main_program()._lr_schedule_guard():
        epoch = floor(lr_step_counter(0) / step_each_epoch)
        rate: Variable = learning_rate * 0.5 * (cos(epoch * math.pi / epochs) + 1)
        return rate


def piecewise_decay(boundaries: Sequence[int], values: Sequence[float]) -> Variable:
    """Return the piecewise constant rate values[i], for the first i with t < boundaries[i]; otherwise the last value.

    Raises:
        FluidError: the number of values is not the number of boundaries + 1, or the boundaries do not ascend.
    """
    if len(values) != len(boundaries) + 1:
        raise FluidError(
            f"piecewise_decay: {len(boundaries)} boundaries need {len(boundaries) + 1} values, got {len(values)}"
        )
    if list(boundaries) != sorted(boundaries):
        raise FluidError(f"piecewise_decay: the boundaries must ascend, got {list(boundaries)}")
    with default_main_program()._lr_schedule_guard():
        step = lr_step_counter(0)
        rate = create_global_var([1], 0.0, "float32", persistable=True, name="learning_rate")
        with Switch() as switch:
            for boundary, value in zip(boundaries, values, strict=False):
                bound = fill_constant([1], "float32", float(boundary), force_cpu=True)
                chosen = fill_constant([1], "float32", float(value))
                with switch.case(step < bound):
                    assign(chosen, rate)
            last = fill_constant([1], "float32", float(values[-1]))
            with switch.default():
                assign(last, rate)
        return rate


def linear_lr_warmup(
    learning_rate: float | Variable, warmup_steps: int, start_lr: float, end_lr: float
) -> Variable:
    """Return start_lr + (end_lr − start_lr) t/warmup_steps while t < warmup_steps, and learning_rate afterwards."""
    with default_main_program()._lr_schedule_guard():
        rate = create_global_var([1], 0.0, "float32", persistable=True, name="learning_rate_warmup")
        step = lr_step_counter(0)
        with Switch() as switch:
            with switch.case(step < fill_constant([1], "float32", float(warmup_steps))):
                assign(start_lr + (end_lr - start_lr) * (step / float(warmup_steps)), rate)
            with switch.default():
                full = learning_rate
                if not isinstance(full, Variable):
                    full = fill_constant([1], "float32", float(full))
                assign(full, rate)
        return rate


def lr_step_counter(begin: int = 0) -> Variable:
    """Return the schedules' step counter t, float32 (1,): `begin` in the first run, and one more in each later run."""
    counter = autoincreased_step_counter("@LR_DECAY_COUNTER@", begin, 1)
    return cast(counter, "float32")


def _check_end(first: Any, last: float) -> None:
    if not isinstance(first, Variable) and first <= last:
        warn_script(
            f"polynomial_decay does not lower the learning rate of {first:g}, because end_learning_rate is {last:g}: "
            "set a lower end_learning_rate"
        )


def _check_steps(name: str, decay_steps: Any) -> None:
    if not isinstance(decay_steps, Variable) and not decay_steps > 0:
        raise FluidError(f"{name}: decay_steps must be positive, got {decay_steps}")


def _progress(name: str, decay_steps: int, staircase: bool) -> Variable:
    _check_steps(name, decay_steps)
    passed: Variable = lr_step_counter(0) / decay_steps
    return floor(passed) if staircase else passed


_decay_step_counter = lr_step_counter  # the original's name, called by scripts with custom schedules

__getattr__ = answering(__name__, "paddle.fluid.layers")
