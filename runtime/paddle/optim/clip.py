# SPDX-License-Identifier: Apache-2.0
"""Gradient clipping: by value, by the norm of one gradient, or by the global norm of all gradients.

Clipping by value is elementwise, so it works on any piece of a gradient; updaters do it. Clipping by norm needs whole
gradients, so trainers do it before they push. Nothing is changed in place; gradients within bounds are not copied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from paddle.errors import ConfigError
from paddle.optim.rules.rule import Array, l2_norm
from paddle.optim.spec import RowGradient

Gradient: TypeAlias = Any
"""An Array or a RowGradient; the result has the type of the argument."""


def clip_by_value(g: Array, low: float, high: float) -> Array:
    """Clip each element of g to the range from `low` to `high`."""
    return np.clip(g, np.float32(low), np.float32(high))


def clip_by_norm(g: Gradient, limit: float) -> Gradient:
    """Clip g by its L2 norm: return g · limit/|g| if |g| is more than `limit`, else g.

    Raises:
        ConfigError: `limit` is not a number above 0, or g contains NaN or infinity.
    """
    return clip_by_global_norm({"": g}, limit)[""]


def clip_by_global_norm(gradients: Mapping[str, Gradient], limit: float) -> dict[str, Gradient]:
    """Clip gradients by their global L2 norm n: return each g · limit/max(limit, n).

    Raises:
        ConfigError: `limit` is not a number above 0, or a gradient contains NaN or infinity.
    """
    if not 0.0 < limit < math.inf:
        raise ConfigError(f"gradient clipping: expected a norm above 0, got {limit}")
    norm = math.hypot(*(l2_norm(_values(g)) for g in gradients.values()))
    if not math.isfinite(norm):
        wrong = next(name for name, g in gradients.items() if not np.isfinite(_values(g)).all())
        raise ConfigError(
            f"gradient of parameter {wrong} contains NaN or infinity, so its norm cannot be clipped"
        )
    if norm <= limit:
        return dict(gradients)
    scale = np.float32(limit / norm)
    return {name: _scaled(g, scale) for name, g in gradients.items()}


def _values(g: Gradient) -> Any:
    return g.values if isinstance(g, RowGradient) else g


def _scaled(g: Gradient, scale: np.float32) -> Gradient:
    if isinstance(g, RowGradient):
        return g._replace(values=g.values * scale)
    return g * scale
