# SPDX-License-Identifier: Apache-2.0
"""What ``trainer.train`` tells its event handler, in the order it happens.

BeginPass, then per batch BeginIteration, EndForwardBackward, EndIteration, then EndPass. ``batch_id`` starts at 0 in
every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddle.v2.training.gradient_machine import LayerOutputs


class WithMetric:
    """Something with metrics, which its evaluator works out when they are first looked at."""

    evaluator: Callable[[], dict[str, float]]

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics by name."""
        return self.evaluator()


@dataclass(frozen=True)
class TestResult(WithMetric):
    """What ``trainer.test`` returns: cost per sample and metrics."""

    evaluator: Callable[[], dict[str, float]] = field(repr=False)
    cost: float

    __test__ = False


@dataclass(frozen=True)
class BeginPass:
    """A pass begins."""

    pass_id: int


@dataclass(frozen=True)
class EndPass(WithMetric):
    """A pass is over; metrics cover all of it."""

    pass_id: int
    evaluator: Callable[[], dict[str, float]] = field(repr=False)
    gm: LayerOutputs = field(repr=False)


@dataclass(frozen=True)
class BeginIteration:
    """A batch begins."""

    pass_id: int
    batch_id: int


@dataclass(frozen=True)
class EndForwardBackward:
    """Gradients of a batch are there, weights have not changed yet."""

    pass_id: int
    batch_id: int
    gm: LayerOutputs = field(repr=False)


@dataclass(frozen=True)
class EndIteration(WithMetric):
    """A batch is over and weights have changed; cost is per sample, metrics cover this batch."""

    pass_id: int
    batch_id: int
    cost: float
    evaluator: Callable[[], dict[str, float]] = field(repr=False)
    gm: LayerOutputs = field(repr=False)
