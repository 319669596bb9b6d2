# SPDX-License-Identifier: Apache-2.0
"""The length of a vector."""

from __future__ import annotations

import math

import numpy as np

from paddle.optim.rules.rule import Array


def l2_norm(x: Array) -> float:
    """Return √Σx², summed in float64: squares of float32 overflow from 2·10¹⁹ on."""
    return math.sqrt(float(np.sum(np.square(x, dtype=np.float64))))
