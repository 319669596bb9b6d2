# SPDX-License-Identifier: Apache-2.0
"""Extracts a script's numbers from its latest log lines, with patterns from conf.py.

The cost is bounded: at most four times a second, the last 8 KiB are searched, up to 1000 characters per line, for 50 ms
of CPU time. The `re` module checks for signals while it matches, so a timer can stop a pattern with runaway
backtracking; this is reported, and the process's output is no longer searched.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any, Callable, Dict, Optional, Sequence

from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.contract.classes import regex

EVERY_S = 0.25
TAIL_BYTES = 8 << 10
LINE_CHARACTERS = 1000
MOST_S = 0.05
_LINE_END = regex(b"[\r\n]+")


class LogProgress:
    """Extracts numbers from the output of one process.

    Args:
        patterns: regular expressions. A named group matches the number of that name; groups `name` and `value` match a
            number of any name.
        take: function that is called with the numbers found: name -> number.
        report: function that is called with a message if a pattern takes too long, or is not valid in this Python
            version.
    """

    def __init__(
        self,
        loop: Loop,
        patterns: Sequence[str],
        take: Callable[[Dict[str, float]], None],
        report: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._take = take
        self._report = report
        self._patterns = [one for one in map(self._compiled, patterns) if one is not None]
        self._data = b""
        self._timer: Optional[Timer] = None

    def heard(self, data: bytes) -> None:
        """Buffer output of the process until it is searched."""
        if not self._patterns:
            return
        self._data = (self._data + data)[-TAIL_BYTES:] if len(data) < TAIL_BYTES else data[-TAIL_BYTES:]
        if self._timer is None:
            self._timer = self._loop.after(EVERY_S, self.search)

    def search(self) -> None:
        """Search the complete lines that arrived since the last search."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._patterns:
            return
        data = self._data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        lines = _LINE_END.split(data[:end])
        if len(data) == TAIL_BYTES:
            del lines[0]  # truncated: half a number would be a different number
        self._data = data[end:]
        found = self._search(lines)
        if found:
            self._take(found)

    def _compiled(self, pattern: str) -> Any:
        """Return the compiled pattern, or None: the launcher's Python may support more than this one."""
        import re  # few jobs have patterns

        try:
            return re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            version = ".".join(map(str, sys.version_info[:2]))
            self._report(
                "PROGRESS: Python %s on this node does not accept %.200r (%s): lines are not searched for it"
                % (version, pattern, error)
            )
            return None

    def _search(self, lines: Sequence[bytes]) -> Dict[str, float]:
        found: Dict[str, float] = {}
        pattern: Any = None
        line = ""
        is_armed, began = True, time.thread_time()

        def late(*_: Any) -> None:
            if is_armed and time.thread_time() - began >= MOST_S:
                raise TimeoutError
            if is_armed:  # other threads used a part of it
                signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)

        before = signal.signal(signal.SIGVTALRM, late)
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
        try:
            for data in lines:
                line = data.decode("utf-8", "replace")[:LINE_CHARACTERS]
                for pattern in self._patterns:
                    for match in pattern.finditer(line):
                        _add(found, match.groupdict())
            is_armed = False
        except TimeoutError:
            self._patterns = []
            shown = pattern.pattern if pattern is not None else ""
            self._report(
                (
                    "PROGRESS: %.200r took more than %d ms on lines such as %.80r. The output of this "
                    "process is no longer searched; rewrite the pattern without nested repetitions"
                )
                % (shown, 1000 * MOST_S, line)
            )
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
        return found


def _add(found: Dict[str, float], groups: Dict[str, Optional[str]]) -> None:
    """Add the numbers in a match's groups; skip values that are not finite numbers."""
    name, value = groups.pop("name", None), groups.pop("value", None)
    if name:
        groups[name] = value
    for key, text in groups.items():
        try:
            number = float((text or "").replace(",", ""))
        except ValueError:
            continue
        if number - number == 0.0:
            found[key] = number
