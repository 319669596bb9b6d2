# SPDX-License-Identifier: Apache-2.0
"""What one tensor may ask for when it is created."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorOptions:
    """See `paddle.optim.spec.ParameterSpec`, which checks the values.

    Attributes:
        sparse: a table (height, width) of which steps touch some rows; gradients are (ids, rows).
        learning_rate: factor on the optimizer's.
        momentum: of v2's rules; others have their own.
        l1: rate of L1 decay.
        l2: rate of L2 decay.
        clip: bound on each element of the summed gradient; 0: none.
    """

    sparse: bool = False
    learning_rate: float = 1.0
    momentum: float = 0.0
    l1: float = 0.0
    l2: float = 0.0
    clip: float = 0.0
