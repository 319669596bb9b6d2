# SPDX-License-Identifier: Apache-2.0
"""Regularization that an optimizer applies to every parameter without its own decay rate."""

from __future__ import annotations

from paddle.signatures import explained
from paddle.v2.errors import UsageError
from paddle_node.contract.classes import dataclass


@explained
@dataclass(frozen=True)
class L2Regularization:
    """L2 weight decay with the given rate."""

    rate: float

    def __post_init__(self) -> None:
        if not self.rate >= 0:
            raise UsageError(f"L2Regularization: the rate must not be negative, got {self.rate}")
