# SPDX-License-Identifier: Apache-2.0
"""Schedules that a script makes of the step's number itself, without marking them, on parameter servers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import FluidError
from paddle.fluid.layers.learning_rate_scheduler import _decay_step_counter
from tests.runtime.fluid.transpiled_job import Feed, TranspiledJob, one_process

layers = fluid.layers
Rate = Callable[[Any], Any]


def cosine(loss: Any) -> Any:
    epoch = layers.floor(_decay_step_counter() / 2)
    return 0.05 * (layers.cos(epoch * (math.pi / 4)) + 1) / 2


def warm_up(loss: Any) -> Any:
    """A variable that lives on, which is 0 unless somebody assigns to it."""
    rate = layers.create_global_var(shape=[1], value=0.0, dtype="float32", persistable=True, name="rate")
    step = _decay_step_counter()
    with layers.Switch() as switch:
        with switch.case(step < 2.0):
            layers.assign(0.05 * (step + 1.0) / 2.0, rate)
        with switch.default():
            layers.assign(0.05 / step, rate)
    return rate


def of_the_loss(loss: Any) -> Any:
    rate = layers.create_global_var(shape=[1], value=0.1, dtype="float32", persistable=True, name="rate")
    layers.assign(loss * 0.1, rate)
    return rate


def net(rate: Rate) -> Callable[[], Any]:
    def made() -> Any:
        x, y = layers.data("x", [4]), layers.data("y", [1])
        same = fluid.initializer.Constant(0.1)
        guess = layers.fc(layers.fc(x, 3, act="tanh", param_attr=same), 1, param_attr=same)
        loss = layers.mean(layers.square_error_cost(guess, y))
        fluid.optimizer.Momentum(rate(loss), 0.9).minimize(loss)
        return loss

    return made


def batches() -> list[Feed]:
    rng = np.random.default_rng(7)
    return [
        {name: rng.standard_normal((8, width)).astype("float32") for name, width in (("x", 4), ("y", 1))}
        for _ in range(6)
    ]


@pytest.mark.parametrize("rate", [cosine, warm_up])
def test_two_trainers_follow_one_process(rate: Rate) -> None:
    expected, _ = one_process(net(rate), batches())
    job = TranspiledJob(net(rate))
    found = job.run(lambda at: job.train(at, batches()))
    assert np.mean(found, axis=0) == pytest.approx(expected, rel=1e-4)


def test_a_rate_that_servers_cannot_compute_is_refused() -> None:
    with pytest.raises(FluidError, match=r"the learning rate depends on 'mean_0.tmp_0'"):
        TranspiledJob(net(of_the_loss)).transpiled(0)
