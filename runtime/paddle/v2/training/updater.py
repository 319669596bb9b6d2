# SPDX-License-Identifier: Apache-2.0
"""What a trainer needs of whoever turns gradients into new weights; ``update_local`` and ``update_remote`` are two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from paddle.optim.spec import ParameterSpec
from paddle.v2.parameter_config import ParameterConfig
from paddle.v2.training.feeder import Feed
from paddle.v2.training.gradient_machine import Gradient


class Updater(Protocol):
    """The life of a training run: passes, and batches within a pass."""

    def skips_pass(self) -> bool:
        """Whether the next pass was over before this process was started; each answer is about the pass after."""

    @property
    def first_step(self) -> int:
        """Batches that went before those of the first pass that is not over."""

    def skips_batch(self) -> bool:
        """Whether the next batch was over before this process was started; each answer is about the batch after."""

    def start_pass(self, pass_id: int) -> None:
        """Begin a pass."""

    def prepare(self, feed: Feed) -> None:
        """Make sure the rows that a batch reads are in the scope."""

    @property
    def looks_ahead(self) -> bool:
        """Whether it is of use to know what the batch after an update reads."""

    def update(self, gradients: Mapping[str, Gradient], num_samples: int, ahead: Feed | None = None) -> None:
        """Take in the gradients of a batch; afterwards the scope holds the new weights.

        Args:
            ahead: the batch that is prepared next, if it is known.
        """

    def finish_pass(self) -> None:
        """End a pass; every weight is up to date afterwards."""

    def catch_up(self) -> None:
        """Bring rows that were not touched lately to the present."""

    def table(self, name: str) -> NDArray[np.float32]:
        """All rows of a sparse parameter."""

    def close(self) -> None:
        """Let go of connections."""


def parameter_spec(config: ParameterConfig, *, sparse: bool) -> ParameterSpec:
    """What the update rules need to know about a parameter."""
    return ParameterSpec(
        name=config.name,
        shape=config.shape,
        learning_rate=config.learning_rate,
        momentum=config.momentum,
        l1=config.decay_rate_l1,
        l2=config.decay_rate,
        clip=config.gradient_clipping_threshold,
        sparse=sparse,
        static=config.is_static,
    )
