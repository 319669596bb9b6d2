# SPDX-License-Identifier: Apache-2.0
"""Monitors processes about once a second; reports stalled processes, with their stacks, and recovered ones."""

from __future__ import annotations

import time
from collections import deque
from typing import Callable, Deque, Dict, List, Set, Tuple

from paddle_node.agent.link.loop import Loop
from paddle_node.agent.link.outbox import Outbox
from paddle_node.agent.processes.log_file import LogFile
from paddle_node.agent.processes.stacks import Stacks, is_traced
from paddle_node.agent.processes.stall_detector import Stall, StallDetector
from paddle_node.linux import proc, process_tree

LOOK_S = 1.0
LATE_S = 1.0  # a check that is later than this: the machine was suspended, or the agent was stopped
RECENT_S = 15.0  # a large process takes seconds to release its memory before it exits
CGROUP = "cgroup"
MACHINE = "machine"

Counts = Tuple[int, int]


class MonitoredProcess:
    """A process that is monitored, with its log and its stall detector."""

    def __init__(self, pid: int, log: LogFile, detector: StallDetector) -> None:
        self.pid = pid
        self.log = log
        self.detector = detector


class Health:
    """The monitor of all processes that `monitored` returns at the time of a check."""

    def __init__(
        self, loop: Loop, outbox: Outbox, monitored: Callable[[], Dict[str, MonitoredProcess]]
    ) -> None:
        self._loop = loop
        self._outbox = outbox
        self._monitored = monitored
        self._stalled: Set[str] = set()
        self._reported: Set[str] = set()
        self._due = time.monotonic()
        self._begun = False
        self.kills = MemoryKills()

    def begin(self) -> None:
        """Start monitoring; further calls have no effect."""
        if not self._begun:
            self._begun = True
            self._due = time.monotonic() + LOOK_S
            self._loop.after(LOOK_S, self._check)

    def ask_stacks(self, name: str) -> None:
        """Send the `stacks` of a process once they have been captured."""
        monitored = self._monitored()[name]

        def captured(text: str) -> None:
            self._outbox.send("stacks", proc=name, stacks=text)

        Stacks(self._loop, monitored.pid, monitored.log, captured)

    def forget(self, name: str) -> None:
        """Stop monitoring a process that has ended."""
        self._stalled.discard(name)
        self._reported.discard(name)

    def _check(self) -> None:
        now = time.monotonic()
        late_s = now - self._due
        self.kills.sample()
        for name, monitored in self._monitored().items():
            if late_s > LATE_S:
                monitored.detector.extend_deadlines(late_s)
            self._judge(name, monitored, now)
        self._due = now + LOOK_S
        self._loop.after(LOOK_S, self._check)

    def _judge(self, name: str, monitored: MonitoredProcess, now: float) -> None:
        found = process_tree.process_of(monitored.pid)
        if found is None:
            return
        stall = monitored.detector.judge(now, found.state, is_traced(monitored.pid))
        if stall is not None and name not in self._stalled:
            self._stalled.add(name)
            self._report_stall(name, monitored, stall)
        elif stall is None and name in self._stalled:
            self._stalled.discard(name)
            if name in self._reported:
                self._reported.discard(name)
                self._outbox.send("recovered", proc=name)

    def _report_stall(self, name: str, monitored: MonitoredProcess, stall: Stall) -> None:
        def asked(text: str) -> None:
            if name in self._stalled:  # else it already continues
                self._reported.add(name)
                self._outbox.send("stalled", proc=name, cause=stall.kind, what=stall.what, stacks=text)

        Stacks(self._loop, monitored.pid, monitored.log, asked)


class MemoryKills:
    """A detector of out-of-memory kills, by the counters of this process's cgroup or else of the machine.

    A counter shows that a kill happened, not which process was killed. Therefore, an increase is reported only with a
    process that failed shortly afterwards: the killed one, or a shell or loader that waited for it. The counters of the
    last seconds are remembered.
    """

    def __init__(self) -> None:
        self._files = _counter_files()
        self._samples: Deque[Tuple[float, Counts]] = deque()
        self.sample()

    def sample(self) -> None:
        """Record the current values of the counters; called about once a second."""
        now = time.monotonic()
        self._samples.append((now, self._read()))
        while len(self._samples) > 1 and self._samples[1][0] <= now - RECENT_S:
            self._samples.popleft()

    def recent(self) -> str:
        """Return which counter rose in the last seconds: CGROUP, MACHINE or empty."""
        before, now = self._samples[0][1], self._read()
        if now[0] > before[0]:
            return CGROUP
        return MACHINE if now[1] > before[1] else ""

    def _read(self) -> Counts:
        return max([0] + [_kills(path) for path in self._files]), _kills("/proc/vmstat")


def _counter_files() -> List[str]:
    """Return the files in which a cgroup of ours may count: version 2, and version 1's memory controller."""
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
