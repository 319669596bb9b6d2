# SPDX-License-Identifier: Apache-2.0
"""Reads the JSON lines a process reports: `ready`, `progress`, `alive`, nothing else, nothing unbounded."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable, Dict, Optional

from agent.link.loop import Loop, Timer
from agent.processes.stall_detector import Pulse

LINE_LIMIT = 1 << 16
PROGRESS_S = 0.25
_NUMBERS = ("pass_id", "batch_id", "step", "cost", "samples", "samples_per_s")


class Report:
    """The agent's end of PADDLE_REPORT_FD.

    Args:
        ready: called with the fields of `ready`.
        progress: called with the newest fields of `progress`, at most 4 times a second.
        pulse: learns of signs of life and steps.
        tell: called once, with a sentence, when the process writes something else.
    """

    def __init__(
        self,
        loop: Loop,
        fd: int,
        ready: Callable[[Dict[str, Any]], None],
        progress: Callable[[Dict[str, Any]], None],
        pulse: Pulse,
        tell: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._ready = ready
        self._progress = progress
        self._pulse = pulse
        self._tell: Optional[Callable[[str], None]] = tell
        self._buffer = b""
        self._newest: Optional[Dict[str, Any]] = None
        self._timer: Optional[Timer] = None
        self._open = True
        os.set_blocking(fd, False)
        loop.on_readable(fd, self._read)

    def drain(self) -> None:
        """Take what is there now and pass on a progress that waits for its turn."""
        for _ in range(16):
            if not self._open or not self._read():
                break
        self._pass_on()

    def close(self) -> None:
        """Read no more."""
        if self._open:
            self._open = False
            self._loop.on_readable(self._fd, None)
            os.close(self._fd)
            self._pass_on()

    def _read(self) -> int:
        try:
            data = os.read(self._fd, LINE_LIMIT)
        except BlockingIOError:
            return 0
        if not data:
            self.close()
            return 0
        lines = (self._buffer + data).split(b"\n")
        self._buffer = lines.pop()
        if len(self._buffer) > LINE_LIMIT:
            self._buffer = b""
            self._junk("a line of more than %d bytes" % LINE_LIMIT)
        for line in lines:
            self._take(line)
        return len(data)

    def _take(self, line: bytes) -> None:
        try:
            event = json.loads(line.decode())
        except (ValueError, RecursionError):
            self._junk(repr(line[:80]))
            return
        kind = event.get("event") if isinstance(event, dict) else None
        if (
            kind == "ready"
            and _texts(event.get("endpoints", []))
            and _texts(event.get("sparse_endpoints", []))
        ):
            self._ready({name: event.get(name, []) for name in ("endpoints", "sparse_endpoints")})
        elif kind == "alive":
            self._pulse.beat(time.monotonic())
        elif kind == "progress":
            self._pulse.step(time.monotonic())
            self._newest = {
                name: event[name] for name in _NUMBERS if isinstance(event.get(name), (int, float))
            }
            if self._timer is None:
                self._pass_on()
                self._timer = self._loop.after(PROGRESS_S, self._again)
        else:
            self._junk(repr(line[:80]))

    def _again(self) -> None:
        self._timer = None
        if self._newest is not None:
            self._pass_on()
            self._timer = self._loop.after(PROGRESS_S, self._again)

    def _pass_on(self) -> None:
        if self._newest is not None:
            newest, self._newest = self._newest, None
            self._progress(newest)

    def _junk(self, what: str) -> None:
        if self._tell is not None:
            self._tell("ignored on the report pipe: %s" % what)
            self._tell = None


def _texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 4096 and all(isinstance(item, str) for item in value)
