# SPDX-License-Identifier: Apache-2.0
"""Fluid's learning rate schedules against their formulas and worked numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from paddle.errors import ConfigError
from paddle.optim.learning_rate import LearningRate
from paddle.optim.spec import OptimizerSpec

LR = 0.1


def rate(schedule: str, args: str, t: int, lr: float = LR) -> float:
    spec = OptimizerSpec("sgd", learning_rate=lr, schedule=schedule, schedule_args=args)
    return LearningRate(spec).at(999, 3, t)


FORMULAS: list[tuple[str, str, Callable[[int], float]]] = [
    (
        "noam_decay",
        "d_model:64,warmup_steps:10",
        lambda t: 64**-0.5 * min((t + 1) ** -0.5, (t + 1) * 10**-1.5),
    ),
    ("exponential_decay", "decay_steps:7,decay_rate:0.5", lambda t: LR * 0.5 ** (t / 7)),
    ("exponential_decay", "decay_steps:7,decay_rate:0.5,staircase:1", lambda t: LR * 0.5 ** (t // 7)),
    ("natural_exp_decay", "decay_steps:7,decay_rate:0.5", lambda t: LR * math.exp(-0.5 * t / 7)),
    (
        "natural_exp_decay",
        "decay_steps:7,decay_rate:0.5,staircase:1",
        lambda t: LR * math.exp(-0.5 * (t // 7)),
    ),
    ("inverse_time_decay", "decay_steps:7,decay_rate:0.5", lambda t: LR / (1 + 0.5 * t / 7)),
    ("inverse_time_decay", "decay_steps:7,decay_rate:0.5,staircase:1", lambda t: LR / (1 + 0.5 * (t // 7))),
    (
        "polynomial_decay",
        "decay_steps:20,end_learning_rate:0.01,power:2",
        lambda t: (LR - 0.01) * (1 - min(t, 20) / 20) ** 2 + 0.01,
    ),
    (
        "polynomial_decay",
        "decay_steps:8,cycle:1",
        lambda t: (LR - 1e-4) * (1 - t / (8 * (math.ceil(t / 8) if t else 1))) + 1e-4,
    ),
    ("piecewise_decay", "10:1.0,25:0.5,inf:0.1", lambda t: 1.0 if t < 10 else 0.5 if t < 25 else 0.1),
    (
        "cosine_decay",
        "step_each_epoch:5,epochs:12",
        lambda t: LR / 2 * (math.cos(math.floor(t / 5) * math.pi / 12) + 1),
    ),
    (
        "linear_lr_warmup",
        "lr_warmup_steps:10,start_lr:0.02,end_lr:0.2",
        lambda t: 0.02 + 0.18 * t / 10 if t < 10 else LR,
    ),
    (
        "cosine_decay",
        "step_each_epoch:5,epochs:12,lr_warmup_steps:10,start_lr:0,end_lr:0.1",
        lambda t: LR * t / 10 if t < 10 else LR / 2 * (math.cos(math.floor(t / 5) * math.pi / 12) + 1),
    ),
    (
        "piecewise_decay",
        "20:1.0,inf:0.1,lr_warmup_steps:4,start_lr:0.5,end_lr:1",
        lambda t: 0.5 + 0.5 * t / 4 if t < 4 else 1.0 if t < 20 else 0.1,
    ),
]


@pytest.mark.parametrize(("schedule", "args", "formula"), FORMULAS)
def test_a_schedule_follows_its_formula_for_sixty_updates(
    schedule: str, args: str, formula: Callable[[int], float]
) -> None:
    for t in range(60):
        assert rate(schedule, args, t) == pytest.approx(formula(t), rel=1e-12)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (rate("exponential_decay", "decay_steps:10,decay_rate:0.5", 0), 0.1),
        (rate("exponential_decay", "decay_steps:10,decay_rate:0.5", 5), 0.0707107),
        (rate("exponential_decay", "decay_steps:10,decay_rate:0.5", 10), 0.05),
        (rate("exponential_decay", "decay_steps:10,decay_rate:0.5,staircase:1", 9), 0.1),
        (rate("exponential_decay", "decay_steps:10,decay_rate:0.5,staircase:1", 10), 0.05),
        *[
            (rate("piecewise_decay", "100:1.0,200:0.5,inf:0.1", t), value)
            for t, value in ((99, 1.0), (100, 0.5), (199, 0.5), (200, 0.1))
        ],
        (rate("noam_decay", "d_model:512,warmup_steps:4000", 0), 1.74693e-07),
        (rate("polynomial_decay", "decay_steps:100,end_learning_rate:0.01", 50), 0.055),
        (rate("polynomial_decay", "decay_steps:100,end_learning_rate:0.01", 100), 0.01),
        (rate("polynomial_decay", "decay_steps:100,end_learning_rate:0.01", 5000), 0.01),
    ],
)
def test_the_worked_numbers_come_out(got: float, expected: float) -> None:
    assert got == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("schedule", "args", "why"),
    [
        ("noam_decay", "d_model:64", "noam_decay needs warmup_steps"),
        ("exponential_decay", "decay_steps:0,decay_rate:0.5", "decay_steps: expected more than 0, got 0"),
        ("exponential_decay", "decay_steps:5,decay_rate:-1", "decay_rate: expected 0 or more, got -1"),
        ("exponential_decay", "decay_steps:5,decay_rate:0.1,rate:2", "exponential_decay takes .*got 'rate'"),
        ("exponential_decay", "decay_steps:5,decay_steps:6", "decay_steps is given twice"),
        ("cosine_decay", "step_each_epoch=5", "expected '<name>:<number>,...', got 'step_each_epoch=5'"),
        ("cosine_decay", "step_each_epoch:nan,epochs:1", "expected '<name>:<number>"),
        ("piecewise_decay", "10:1.0,20:0.5", "ascending boundaries.*got '10:1,20:0.5'"),
        ("piecewise_decay", "20:1.0,10:0.5,inf:0.1", "ascending boundaries"),
        ("piecewise_decay", "", "piecewise_decay expects"),
        ("linear_lr_warmup", "lr_warmup_steps:10", "needs start_lr, end_lr"),
        ("cosine_decay", "step_each_epoch:5,epochs:2,start_lr:1", "needs lr_warmup_steps, end_lr"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(schedule: str, args: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        LearningRate(OptimizerSpec(schedule=schedule, schedule_args=args))


def test_a_schedule_of_updates_is_not_asked_without_their_number() -> None:
    spec = OptimizerSpec(schedule="noam_decay", schedule_args="d_model:64,warmup_steps:10")
    with pytest.raises(ConfigError, match="noam_decay counts updates"):
        LearningRate(spec).at(100, 0)


def test_a_rate_that_grows_beyond_every_number_is_an_error_and_no_infinity() -> None:
    with pytest.raises(ConfigError, match="expected a finite rate, got inf after 5000 updates"):
        rate("exponential_decay", "decay_steps:1,decay_rate:2", 5000)
