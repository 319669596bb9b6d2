# SPDX-License-Identifier: Apache-2.0
"""The events that ``trainer.train`` passes to its event handler.

In this order: BeginPass; for each batch BeginIteration, EndForwardBackward and EndIteration; EndPass. ``batch_id``
starts at 0 in every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddle.v2.training.gradient_machine import LayerOutputs


class WithMetric:
    """An event with metrics, which are computed when they are first read."""

    evaluator: Callable[[], dict[str, float]]

    @property
    def metrics(self) -> dict[str, float]:
        """Return the metrics by name; the first call computes them."""
        return self.evaluator()


@dataclass(frozen=True)
class TestResult(WithMetric):
    """The result of ``trainer.test``: cost per sample and metrics."""

    evaluator: Callable[[], dict[str, float]] = field(repr=False)
    cost: float

    __test__ = False


@dataclass(frozen=True)
class BeginPass:
    """Reports that a pass begins."""

    pass_id: int


@dataclass(frozen=True)
class EndPass(WithMetric):
    """Reports that a pass has ended; its metrics cover the whole pass."""

    pass_id: int
    evaluator: Callable[[], dict[str, float]] = field(repr=False)
    gm: LayerOutputs = field(repr=False)


@dataclass(frozen=True)
class BeginIteration:
    """Reports that a batch begins."""

    pass_id: int
    batch_id: int


@dataclass(frozen=True)
class EndForwardBackward:
    """Reports that the gradients of a batch are available; the weights have not changed yet."""

    pass_id: int
    batch_id: int
    gm: LayerOutputs = field(repr=False)


@dataclass(frozen=True)
class EndIteration(WithMetric):
    """Reports that a batch has ended and the weights have changed; the cost is per sample, and the metrics cover this
    batch.
    """

    pass_id: int
    batch_id: int
    cost: float
    evaluator: Callable[[], dict[str, float]] = field(repr=False)
    gm: LayerOutputs = field(repr=False)
