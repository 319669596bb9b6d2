# SPDX-License-Identifier: Apache-2.0
"""Gradients of a cost beside differences of it, to a thousandth, along the gradient and across it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.layer.output import LayerOutput
from paddle.v2.topology import Topology
from paddle.v2.training.feeder import DataFeeder
from paddle.v2.training.gradient_machine import GradientMachine

_STEP = 0.02


def check_closely(cost: LayerOutput, samples: list[Any], *, rel: float = 1e-3, step: float = _STEP) -> None:
    """Compare every parameter's gradient with two central differences, whose errors of the third order cancel."""
    parameters = paddle.parameters.create(cost)
    network = Topology(cost).network
    machine = GradientMachine(network, parameters, [cost.name])
    feed = DataFeeder(network.data_types)(samples)
    gradients = {name: np.array(each, np.float64) for name, each in machine.train(feed, 0).gradients.items()}
    rng = np.random.default_rng(7)
    assert gradients
    for name, gradient in gradients.items():
        length = float(np.linalg.norm(gradient))
        assert length > 0, name
        across = rng.normal(size=gradient.shape)
        across /= np.linalg.norm(across)
        for direction in (gradient / length, across):
            slope = _slope(machine, feed, name, direction.astype(np.float32), step)
            assert slope == pytest.approx(float(gradient @ direction), rel=rel, abs=rel * max(length, 0.5)), (
                name
            )


def _slope(machine: GradientMachine, feed: Any, name: str, direction: Any, step: float) -> float:
    value = machine.flat(name)
    start = value.copy()
    found = []
    for size in (step, step / 2):
        costs = []
        for sign in (1, -1):
            value[...] = start + sign * size * direction
            costs.append(machine.train(feed, 0).cost)
        found.append((costs[0] - costs[1]) / (2 * size))
    value[...] = start
    return (4 * found[1] - found[0]) / 3
