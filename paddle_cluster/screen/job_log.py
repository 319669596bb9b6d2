# SPDX-License-Identifier: Apache-2.0
"""Writes <workspace>/log/job.log: all lines of processes and of the launcher, ordered by time, in a dedicated thread.

A line is `2026-05-04 13:00:59.123+02:00 [trainer 2 node-c] text`; `[launcher]` marks the launcher's own lines. Text
is preserved byte by byte, but a progress bar is reduced to its last state. Only the thread waits for the disk: lines
that exceed its speed are dropped, counted, and reported in the file; the logs on the nodes contain them.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from pathlib import Path

from paddle_cluster.screen.drawing import OpenLines
from paddle_cluster.system import clock
from paddle_cluster.system.queue_thread import QueueThread
from paddle_cluster.system.rotated_file import RotatedFile
from paddle_cluster.text import wrapping
from paddle_cluster.text.output_events import (
    Event,
    NodesNamed,
    NodeState,
    PhaseEntered,
    Plotted,
    Printed,
    Progressed,
    Transferred,
    Unsent,
    Used,
)
from paddle_cluster.text.sizes import counted

HOLD_S = 1.0


class MergedLines:
    """A buffer that merges the output of many processes by time. Not thread-safe.

    A block of lines is held for HOLD_S seconds, because an earlier block of a different node may still be in transit; a
    block that arrives later is appended. Blocks of the same source never change their order.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str, bytes]] = []
        self._latest: dict[str, float] = {}
        self._count = 0

    def add(self, at: float, source: str, lines: bytes) -> None:
        """Add a block of lines.

        Args:
            at: time of writing, in seconds.
            source: the process that wrote it.
        """
        at = self._latest[source] = max(at, self._latest.get(source, at))
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, source, lines))

    def ready(self, until: float) -> list[tuple[float, str, bytes]]:
        """Return (at, source, lines) of everything written before `until`, in order."""
        found = []
        while self._heap and self._heap[0][0] <= until:
            at, _, source, lines = heapq.heappop(self._heap)
            found.append((at, source, lines))
        return found


TICK_S = 0.2
WAITING_LIMIT = 16 << 20  # bytes
CLOSE_S = 5.0
LAUNCHER = "launcher"


class JobLog:
    """The merged log of one job, written by a dedicated thread.

    Args:
        limit: size in bytes at which the file is rotated.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: QueueThread[tuple[float, Event]] = QueueThread(
            self._write, name="job log", most=WAITING_LIMIT, first_s=TICK_S, is_patient=True
        )
        self._path = Path()
        self._file: RotatedFile | None = None
        self._left_out = self._reported_left_out = 0  # lines; each counter belongs to one thread
        self._merged = MergedLines()
        self._open = OpenLines()
        self._stamps = _Stamps()

    def begin(self, path: Path) -> None:
        """Write to this file from now on, starting with the events received so far; replace an existing file."""
        self._path = path
        self._queue.start()

    def take(self, event: Event) -> None:
        """Add an event without waiting; used as a tap for `Console.watch`."""
        if isinstance(event, NodesNamed | NodeState | Transferred | Progressed | Plotted | Used):
            return
        if not isinstance(event, Printed):
            self._queue.put((clock.now(), event))
        elif not self._queue.put((event.at, event), len(event.data)):
            self._left_out += event.data.count(b"\n")

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Write pending lines, for at most `timeout_s` seconds."""
        self._queue.close(timeout_s)

    def _write(self, waiting: Sequence[tuple[float, Event]], is_last: bool) -> float:
        self._merge(waiting, is_last)
        ready = self._merged.ready(float("inf") if is_last else clock.now() - HOLD_S)
        self._file = self._file or RotatedFile(self._path, self._limit)
        if ready:
            self._file.write(b"".join(self._format(at, source, lines) for at, source, lines in ready))
        if is_last:
            self._file.close()
        return TICK_S

    def _merge(self, waiting: Sequence[tuple[float, Event]], everything: bool) -> None:
        left_out = self._left_out - self._reported_left_out
        self._reported_left_out += left_out
        for at, event in waiting:
            if isinstance(event, Printed):
                who = wrapping.label(event.process, event.node)
                self._add(at, who, self._open.take(who, event.data, event.partial))
            else:
                who = wrapping.label(event.process, event.node) if isinstance(event, Unsent) else LAUNCHER
                self._add(at, who, "\n".join(_lines_of(event)).encode("utf-8", "surrogateescape"))
        for key, data in self._open.overdue(everything):
            self._add(clock.now(), str(key), data)
        if left_out:
            lines = counted(left_out, "line")
            text = f"({lines} omitted here: the disk was too slow; the logs of the nodes have them)"
            self._add(clock.now(), LAUNCHER, text.encode())

    def _add(self, at: float, who: str, data: bytes) -> None:
        if data:
            self._merged.add(at, who, data)

    def _format(self, at: float, who: str, data: bytes) -> bytes:
        """Format a block as lines of the file; all text of a block has the same time."""
        if b"\r" in data:
            data = b"\n".join(line.rstrip(b"\r").rpartition(b"\r")[2] for line in data.split(b"\n"))
        prefix = f"{self._stamps.text(at)} [{who}] ".encode("utf-8", "backslashreplace")
        body = data[:-1] if data.endswith(b"\n") else data
        return prefix + body.replace(b"\n", b"\n" + prefix) + b"\n"


def _lines_of(event: Event) -> list[str]:
    """Return the launcher's messages as lines without control characters."""
    match event:
        case Unsent():
            return [wrapping.unsent_text(event)]
        case PhaseEntered():
            return [f"== {wrapping.visible(event.name)}"]
        case _:
            return [wrapping.visible(text) for text, _ in wrapping.event_lines(event, wrapping.FILE_WIDTH)]


class _Stamps:
    """Formats times, to the millisecond, with the offset of the time zone."""

    def __init__(self) -> None:
        self._second = -1
        self._date = self._zone = ""

    def text(self, at: float) -> str:
        second = int(at)
        if second != self._second:
            local = time.localtime(second)
            zone = time.strftime("%z", local)
            self._second = second
            self._date, self._zone = time.strftime("%Y-%m-%d %H:%M:%S", local), f"{zone[:3]}:{zone[3:]}"
        return f"{self._date}.{int(at % 1 * 1000):03d}{self._zone}"
