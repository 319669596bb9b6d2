# SPDX-License-Identifier: Apache-2.0
"""Notices that the kernel killed for lack of memory: by the counters of our cgroup, else by those of the machine.

A counter says that it happened, not to whom; so only a process that ended by SIGKILL shortly after it rose is said
to have been hit.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Deque, List, Tuple

from paddle_node.linux import proc

RECENT_S = 15.0  # a large process takes seconds to give its memory back before it is gone
CGROUP = "cgroup"
MACHINE = "machine"

Counts = Tuple[int, int]


class MemoryKills:
    """Remembers the counters of the last seconds."""

    def __init__(self) -> None:
        self._files = _counter_files()
        self._samples: Deque[Tuple[float, Counts]] = deque()
        self.sample()

    def sample(self) -> None:
        """Note the counters now; about once a second is enough."""
        now = time.monotonic()
        self._samples.append((now, self._read()))
        while len(self._samples) > 1 and self._samples[1][0] <= now - RECENT_S:
            self._samples.popleft()

    def recent(self) -> str:
        """Whose counter rose lately: CGROUP, MACHINE or empty."""
        before, now = self._samples[0][1], self._read()
        if now[0] > before[0]:
            return CGROUP
        return MACHINE if now[1] > before[1] else ""

    def _read(self) -> Counts:
        return max([0] + [_kills(path) for path in self._files]), _kills("/proc/vmstat")


def _counter_files() -> List[str]:
    """Where a cgroup of ours may count: version 2, and version 1's memory controller."""
    files = []
    for controller, path in proc.control_groups().items():
        path = path.rstrip("/")
        if not controller:
            files += ["/sys/fs/cgroup%s/memory.events" % path, "/sys/fs/cgroup/memory.events"]
        elif controller == "memory":
            files += ["/sys/fs/cgroup/memory%s/memory.oom_control" % path]
    return files


def _kills(path: str) -> int:
    count = proc.value(path, "oom_kill")
    return int(count) if count.isdigit() else 0
