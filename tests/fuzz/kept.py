# SPDX-License-Identifier: Apache-2.0
"""Examples that found something, each with the entry point that fell."""

from __future__ import annotations

KEPT: list[tuple[str, object]] = [
    ("control_requests", b"\0\0\0\x22" + b'{"kind":"attach","lines":Infinity}'),
]
