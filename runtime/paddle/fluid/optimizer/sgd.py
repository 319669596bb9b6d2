# SPDX-License-Identifier: Apache-2.0
"""SGD: plain gradient descent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from paddle.fluid.optimizer.base import Accumulator, Optimizer


class SGDOptimizer(Optimizer):
    """w −= ηg."""

    op_type: ClassVar[str] = "sgd"

    def accumulators(self) -> Sequence[Accumulator]:
        """See `Optimizer`."""
        return ()
