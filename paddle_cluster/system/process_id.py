# SPDX-License-Identifier: Apache-2.0
"""Which process a number means: a pid is used again, pid, start time and boot together are not."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ENDED = ("Z", "X")


@dataclass(frozen=True)
class ProcessId:
    """One process, wherever it runs.

    Attributes:
        start: clock ticks from the machine's boot to its start; 0 where that is not known.
        boot_id: names that boot; empty where it is not known.
    """

    host: str
    pid: int
    start: int
    boot_id: str

    def is_alive(self) -> bool | None:
        """Whether it still runs; None when it is another machine's."""
        if self.host != socket.gethostname():
            return None
        if self.boot_id != _boot_id():
            return False
        state, start = _look(self.pid)
        return state not in ("", *_ENDED) and start == self.start

    def describe(self) -> str:
        """ "pid 4711 on alpha"."""
        return f"pid {self.pid} on {self.host}"

    def as_json(self) -> dict[str, Any]:
        """For a file or a message."""
        return asdict(self)


def own() -> ProcessId:
    """This process."""
    return ProcessId(socket.gethostname(), os.getpid(), _look(os.getpid())[1], _boot_id())


def from_json(fields: Mapping[str, Any]) -> ProcessId:
    """Reads what `as_json` gave.

    Raises:
        ValueError, KeyError, TypeError: it is something else.
    """
    pid, start = fields["pid"], fields["start"]
    if type(pid) is not int or type(start) is not int:
        raise ValueError(f"expected a process id and start time, got pid {pid!r:.80}, start {start!r:.80}")
    return ProcessId(str(fields["host"]), pid, start, str(fields.get("boot_id") or ""))


def _look(pid: int) -> tuple[str, int]:
    """State and start time, ("", 0) when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        rest = stat.rpartition(")")[2].split()
        return rest[0], int(rest[19])  # field 22, starttime; proc(5)
    except (OSError, ValueError, IndexError):
        return "", 0


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
