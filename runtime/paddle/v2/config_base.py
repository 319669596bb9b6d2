# SPDX-License-Identifier: Apache-2.0
"""``Layer``, the original's name for the result of the functions in ``paddle.layer``."""

from __future__ import annotations

from paddle.v2.layer.output import LayerOutput as Layer

__all__ = ["Layer"]
