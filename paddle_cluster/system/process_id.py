# SPDX-License-Identifier: Apache-2.0
"""Identifies processes: pids are reused, but the combination of pid, start time and boot is unique."""

from __future__ import annotations

import os
import socket
from typing import Any

from paddle_node.contract.classes import dataclass
from paddle_node.linux import proc
from paddle_node.linux.process_tree import living


@dataclass(frozen=True)
class ProcessId:
    """A process on any machine, identified by pid, start time and boot.

    Attributes:
        start: clock ticks from the machine's boot to its start; 0 if unknown.
        boot_id: the ID of that boot; empty if unknown.
    """

    host: str
    pid: int
    start: int
    boot_id: str = ""

    def is_alive(self) -> bool | None:
        """Return whether the process is still running; None if it is on another machine."""
        if self.host != socket.gethostname():
            return None
        return self.boot_id == proc.boot_id() and living(self.pid, self.start) is not None

    def describe(self) -> str:
        """Return a description for messages, such as 'pid 4711 on alpha'."""
        return f"pid {self.pid} on {self.host}"

    def as_json(self) -> dict[str, Any]:
        """Return the process ID as JSON values, for a file or a message."""
        return dict(vars(self))  # `asdict` would import what no job needs: 20 ms


def own() -> ProcessId:
    """Return the `ProcessId` of this process."""
    return here(os.getpid())


def here(pid: int) -> ProcessId:
    """Return the `ProcessId` of a process on this machine that has not been reaped."""
    fields = proc.stat(pid)
    start = int(fields[proc.START]) if fields else 0
    return ProcessId(socket.gethostname(), pid, start, proc.boot_id())
