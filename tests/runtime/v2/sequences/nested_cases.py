# SPDX-License-Identifier: Apache-2.0
"""Samples that are sequences of sequences, what layers make of them, and gradients beside differences of the cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import paddle.v2 as paddle
from paddle.v2 import data_type, layer
from paddle.v2.layer.output import LayerOutput
from paddle.v2.topology import Topology
from paddle.v2.training.feeder import DataFeeder
from paddle.v2.training.gradient_machine import GradientMachine

Array = npt.NDArray[Any]
Sample = list[list[list[float]]]

SIZE = 3
_RNG = np.random.default_rng(5)
SAMPLES: list[Sample] = [
    [_RNG.standard_normal((count, SIZE)).tolist() for count in counts] for counts in ((2, 3), (1,), (4, 1, 2))
]
ARRAYS: list[list[Array]] = [[np.array(part) for part in sample] for sample in SAMPLES]


def nested(name: str = "rows", size: int = SIZE) -> LayerOutput:
    return layer.data(name, data_type.dense_vector_sub_sequence(size))


def found(out: LayerOutput, *columns: Sequence[Any], parameters: Any = None, field: str = "value") -> Array:
    """What a layer makes of `SAMPLES`, or of other columns of samples."""
    made = paddle.parameters.create(out) if parameters is None else parameters
    rows: Array = paddle.infer(out, made, list(zip(*(columns or [SAMPLES]), strict=True)), field=field)
    return rows


def group(
    step: Callable[..., Any], input: Any, reverse: bool = False, name: str | None = None
) -> LayerOutput:
    """A group whose step returns one layer."""
    made = layer.recurrent_group(step, input, reverse, name)
    assert isinstance(made, LayerOutput)
    return made


def groups(step: Callable[..., list[LayerOutput]], input: Any, reverse: bool = False) -> list[LayerOutput]:
    """A group whose step returns several."""
    made = layer.recurrent_group(step, input, reverse)
    assert isinstance(made, list)
    return made


def expected(of_sample: Callable[[list[Array]], Any]) -> Array:
    return np.concatenate([np.array(of_sample(sample), np.float32) for sample in ARRAYS])


def check_gradients(cost: LayerOutput, samples: Sequence[tuple[Any, ...]]) -> None:
    """Gradients of all parameters, along themselves and across, within 1e-3 of differences of fourth order."""
    topology = Topology(cost)
    made = paddle.parameters.create(cost)
    rng = np.random.default_rng(7)
    for name in made.names():
        made[name] = (0.5 * rng.standard_normal(made[name].shape)).astype(np.float32)
    feed = DataFeeder(topology.data_type())(samples)
    machine = GradientMachine(topology.network, made, [cost.name])
    gradients = machine.train(feed, 0).gradients
    for name, given in gradients.items():
        gradient = np.array(given, np.float64).ravel()
        length = max(
            float(np.linalg.norm(gradient)), 0.1
        )  # what is left of a float32 cost below that is noise
        along, other = gradient / length, rng.standard_normal(gradient.size)
        for direction in (along, along + other / np.linalg.norm(other)):
            value, epsilon, slope = machine.flat(name), 0.02, 0.0
            start = value.copy()
            for step, weight in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
                value[...] = start + step * epsilon * direction
                slope += weight * machine.test(feed).cost / (12 * epsilon)
            value[...] = start
            assert slope == pytest.approx(float(gradient @ direction), rel=1e-3, abs=1e-3 * length), name
