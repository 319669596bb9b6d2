# SPDX-License-Identifier: Apache-2.0
"""The last lines of a log."""

from __future__ import annotations

from pathlib import Path

LINES = 20
_BYTES = 16384


def last_lines(path: Path) -> list[str]:
    """The last lines of a file, as far as they lie in its last 16 KiB; nothing if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _BYTES))
            text = file.read(_BYTES).decode(errors="replace")
    except OSError:
        return []
    lines = text.splitlines()
    return (lines[1:] if size > _BYTES else lines)[-LINES:]
