# SPDX-License-Identifier: Apache-2.0
"""What an engine needs to know of the command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What `paddle pserver` was told, as far as an engine needs it.

    Attributes:
        ports: dense and sparse ports of the process, which trainers compare with theirs; None: there is no such range.
    """

    num_trainers: int
    barrier_timeout_s: float = 60.0
    lag_ratio_min: float = 1.0
    lag_ratio_default: float = 1.5
    log_period: int = 500
    ports: tuple[int, int] | None = None
