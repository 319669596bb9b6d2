# SPDX-License-Identifier: Apache-2.0
"""feed and fetch: say in program files what is fed and fetched, and in which order.

Programs are fed and fetched by name; these operators stand in files and are taken out when one is read.
"""

from __future__ import annotations

from typing import Any

from paddle.ops.base.registry import operator


@operator("feed", "X -> Out", attrs={"col": 0}, has_effect=True)
def feed(x: Any) -> Any:
    """Return X."""
    return x


@operator("fetch", "X -> Out", attrs={"col": 0}, has_effect=True)
def fetch(x: Any) -> Any:
    """Return X."""
    return x
