# SPDX-License-Identifier: Apache-2.0
"""Optimizers refuse what they cannot use at the line that makes them, and name it."""

from __future__ import annotations

import math
from typing import Any

import pytest

import paddle.v2 as paddle

CLASSES = ["Momentum", "Adam", "Adamax", "AdaGrad", "DecayedAdaGrad", "AdaDelta", "RMSProp"]


@pytest.mark.parametrize("name", CLASSES)
def test_an_unknown_argument_is_named_with_the_class_and_the_nearest_one(name: str) -> None:
    with pytest.raises(
        TypeError, match=f"optimizer.{name} takes no argument 'learning_rat'; did you mean 'learning_rate'"
    ):
        getattr(paddle.optimizer, name)(learning_rat=0.1)


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "beta1": ("Adam", {"beta1": 1.0}, "adam beta1: expected 0 or more and less than 1, got 1.0"),
    "beta2": ("Adamax", {"beta2": 1.5}, "adamax beta2: expected 0 or more and less than 1, got 1.5"),
    "rho": ("RMSProp", {"rho": -1}, "rmsprop rho: expected 0 or more and less than 1, got -1"),
    "epsilon": ("AdaDelta", {"epsilon": -1}, "adadelta epsilon: expected more than 0, got -1"),
    "learning_rate": ("AdaGrad", {"learning_rate": -1}, "learning_rate: expected 0 or more, got -1"),
    "discard ratio": ("AdaGrad", {"async_lagged_grad_discard_ratio": -3}, "discard_ratio: expected 0 to"),
    "momentum": ("Momentum", {"momentum": -0.1}, "momentum expects a finite number of 0 or more, got -0.1"),
    "clip": ("AdaGrad", {"gradient_clipping_threshold": math.nan}, "must be finite and not negative"),
    "schedule": (
        "AdaGrad",
        {"learning_rate_decay_a": -1.0},
        "learning_rate_decay_a: schedule poly expects 0 or more, got -1",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_number_out_of_range_is_named(what: str) -> None:
    name, arguments, why = WRONG[what]
    with pytest.raises(ValueError, match=why):
        getattr(paddle.optimizer, name)(**arguments)
