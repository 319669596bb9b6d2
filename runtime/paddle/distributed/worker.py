# SPDX-License-Identifier: Apache-2.0
"""One process to start: what it runs, its whole environment, and where its output goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Worker:
    """One process.

    Attributes:
        name: "trainer 3", "pserver 0".
        env: its whole environment; it may hold secrets and is never shown.
        log: what gets its stdout and stderr; None: they go where ours go.
        is_server: it serves the others, and is stopped when these are done.
        drains: a server that other nodes need too: it gets USR1 instead, and ends when no trainer needs it any more.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    log: Path | None
    is_server: bool = False
    drains: bool = False
