# SPDX-License-Identifier: Apache-2.0
"""Averaging: how a program's trainers average their parameters, where they do not sum gradients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Averaging:
    """See `DistributeTranspilerConfig`.

    Attributes:
        k_steps: between averages.
        waits: all trainers wait for each other at each average.
    """

    k_steps: int
    waits: bool
