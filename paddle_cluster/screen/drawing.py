# SPDX-License-Identifier: Apache-2.0
"""Converts events to lines and facts for a view; each drawer belongs to one view and one thread."""

from __future__ import annotations

import re
import time
from collections.abc import Hashable, Sequence

from paddle_cluster.screen.writer import TICK_S
from paddle_cluster.text import wrapping
from paddle_cluster.text.output_events import (
    Ended,
    Event,
    Failed,
    NodesNamed,
    NodeState,
    PhaseEntered,
    Printed,
    Progressed,
    Timed,
    Transferred,
    Unsent,
)
from paddle_cluster.text.sizes import counted, spans
from paddle_node.contract.classes import dataclass, field, regex

OPEN_S = 2.0  # maximum time for which an incomplete line is held
HELD_SIZE = 1 << 16


class OpenLines:
    """A buffer that joins lines arriving in parts: prompts, progress bars, long lines. Not thread-safe.

    An incomplete line is held until it ends, up to OPEN_S seconds and HELD_SIZE bytes: a progress bar that redraws
    itself becomes one line every OPEN_S seconds.
    """

    def __init__(self) -> None:
        self._open: dict[Hashable, tuple[bytes, float]] = {}

    def take(self, key: Hashable, data: bytes, partial: bool) -> bytes:
        """Add bytes that a process wrote, and return the lines that they complete.

        Args:
            partial: whether the data ends inside a line.

        Returns:
            What can be shown now: complete lines, or the beginning of a line that is too long; may be empty.
        """
        before, since = self._open.pop(key, (b"", time.monotonic()))
        data = before + data
        if not partial:
            return data
        end = data.rfind(b"\n") + 1
        if end:
            since = time.monotonic()
        if len(data) - end > HELD_SIZE:
            return data
        self._open[key] = data[end:], since
        return data[:end]

    def overdue(self, everything: bool = False) -> list[tuple[Hashable, bytes]]:
        """Return lines that stayed incomplete for too long, by process; each is returned only once."""
        if not self._open:
            return []
        until = time.monotonic() - (0.0 if everything else OPEN_S)
        due = [(key, data) for key, (data, since) in self._open.items() if since <= until]
        for key, _ in due:
            del self._open[key]
        return due


PROCESS_STYLE = "process"  # of lines that a view can drop when there are too many to read
BURST_LINES = 200  # per event on a terminal: more is unreadable
_ROUTINE = regex(rb"I\d{4,8} \d\d:\d\d:\d\d\.\d+ ")  # INFO lines of glog
_WARNING = regex(rb"W\d{4,8} \d\d:\d\d:\d\d\.\d+ ")  # while a job stops, they are about the ended peers


class View:
    """The interface of a view, which presents lines and the states of nodes; the default methods do nothing.

    Attributes:
        has_nodes: whether it shows the states of nodes.
    """

    has_nodes = True

    def lines(self, lines: Sequence[str], style: str = "") -> None:
        """Show permanent lines. Every view must implement this."""
        raise NotImplementedError

    def width(self) -> int:
        """Return the number of columns on the screen. Every view must implement this."""
        raise NotImplementedError

    def phase(self, name: str, age_s: float = 0.0) -> None:
        """Show that the job, which has run for `age_s` seconds, enters a phase."""

    def node(self, node_id: int, **facts: str) -> None:
        """Record facts about a node: label, the job's name, state, and the result of `wrapping.progress`."""

    def tick(self) -> float:
        """Redraw if due; return the time until the next redraw in seconds."""
        return TICK_S

    def finish(self) -> None:
        """Stop updating the screen, and leave its final lines there."""


class Drawer:
    """Converts the events of a job to lines and facts for one view. Normal output of pservers stays in their logs.

    Args:
        on_terminal: whether to shorten bursts of lines.
    """

    def __init__(self, view: View, on_terminal: bool) -> None:
        self._view = view
        self._on_terminal = on_terminal
        self._open = OpenLines()
        self._tracebacks = Tracebacks()
        self._job = ""
        self._stops = False

    def take(self, event: Event) -> None:
        """Draw one event of the job on the view."""
        view = self._view
        self.tick()
        match event:
            case Printed():
                who = wrapping.label(event.process, event.node)
                self._print(who, self._open.take(who, event.data, event.partial))
            case Unsent():
                view.lines([wrapping.unsent(event)])
            case NodesNamed():
                self._job = wrapping.visible(event.name)
                for node_id, label in event.labels:
                    view.node(node_id, label=wrapping.visible(label), job=self._job)
            case NodeState():
                view.node(event.node_id, state=wrapping.visible(event.state))
            case Transferred():
                view.node(event.node_id, **wrapping.transfer(event.arrived, event.total, event.bytes_per_s))
            case Progressed():
                view.node(event.node_id, **wrapping.progress(event))
            case PhaseEntered():
                age_s = max(0.0, time.time() - event.began) if event.began else 0.0
                self._stops |= event.name == "stop"
                view.phase(wrapping.visible(event.name), age_s)
            case _:
                if isinstance(event, Failed | Timed | Ended):
                    self.finish()
                for text, style in wrapping.event_lines(event, view.width(), self._job):
                    view.lines([wrapping.visible(text)], style)

    def tick(self, everything: bool = False) -> None:
        """Show lines that have stayed incomplete for too long, and complete tracebacks."""
        for who, data in self._open.overdue(everything):
            self._print(str(who), data)
        for who, data in self._tracebacks.due(everything):
            if who:
                self._show(who, data)
            else:
                self._view.lines([data.decode()])

    def finish(self) -> None:
        """Show the lines that are still incomplete."""
        self.tick(everything=True)

    def _print(self, who: str, data: bytes) -> None:
        left_out = [_ROUTINE] * who.startswith("pserver ") + [_WARNING] * self._stops
        if left_out:
            lines = data.splitlines(keepends=True)
            data = b"".join(line for line in lines if not any(each.match(line) for each in left_out))
        self._show(who, self._tracebacks.take(who, data))

    def _show(self, who: str, data: bytes) -> None:
        if not data:
            return
        left_out = 0
        if self._on_terminal:
            data, left_out = last_lines(data, BURST_LINES)
        shown = process_lines(who, data)
        if left_out:
            self._view.lines([f"[{who}] ({counted(left_out, 'line')} not shown; its log has them)"])
        self._view.lines(shown, PROCESS_STYLE)


def process_lines(label: str, data: bytes) -> list[str]:
    """Return complete lines of a process, each labeled, of bounded length, and with control characters escaped."""
    lines = data.decode("utf-8", "backslashreplace").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [f"[{label}] {_shown(line)}" for line in lines]


def last_lines(data: bytes, count: int) -> tuple[bytes, int]:
    """Return the last `count` lines of a process's output, and the number of earlier lines."""
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    if lines <= count:
        return data, 0
    start = len(data) - data.endswith(b"\n")
    for _ in range(count):
        start = data.rfind(b"\n", 0, start)
    return data[start + 1 :], lines - count


def _shown(line: str) -> str:
    if len(line) <= wrapping.MAX_LINE and line.isprintable():
        return line
    # a progress bar overwrites itself: only its last state counts
    line = line.rstrip("\r").rpartition("\r")[2]
    excess = len(line) - wrapping.MAX_LINE
    more = f" ... ({excess} more characters in the log file)" if excess > 0 else ""
    return wrapping.visible(line[: wrapping.MAX_LINE]) + more


QUIET_S = 0.3
HELD_S = 1.0  # a process that continues to write is shown after this time
GATHERED_S = 0.5  # processes that fail within this time share one line
MOST_REMEMBERED = 100

_RANK = rb"(?:\[rank\d+\]: ?)?"  # PyTorch writes it before each line
_HEAD = _RANK + rb"Traceback \(most recent call last\):\r?\n"
_ONE = _HEAD + rb"(?:" + _RANK + rb"[ \t].*\n)*" + _RANK + rb"\S.*\n?"
_BETWEEN = _RANK + rb"\n" + _RANK + rb"(?:During handling of|The above exception).*\n" + _RANK + rb"\n"
_RANKED = regex(r"(\S+) (\d{1,9}) ")
_BEGIN = regex(rb"^" + _HEAD, re.MULTILINE)
_WHOLE = regex(_ONE + rb"(?:" + _BETWEEN + _ONE + rb")*")
_NUMBERS = regex(rb'^\s+File "[^"\n]*"|^(?!\s+File ).*', re.MULTILINE)  # except in lines of code


@dataclass
class _Held:
    data: bytes
    begun: float
    heard: float


@dataclass
class _Shown:
    """A traceback that has been shown.

    Attributes:
        first: the process that wrote it first.
        again: the processes that wrote it since: ranks by role; no ranks for a name without a rank.
        since: time of the first repetition.
    """

    first: str
    again: dict[str, list[int]] = field(default_factory=dict)
    since: float = 0.0


class Tracebacks:
    """A filter that shows a traceback only once if several processes wrote it, with the names of these processes.

    Output that follows the start of a traceback is held until its process pauses, so that complete tracebacks are
    compared. Numbers in messages and paths, such as ranks and addresses, can differ. Not thread-safe.
    """

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._shown: dict[bytes, _Shown] = {}

    def take(self, who: str, data: bytes) -> bytes:
        """Add complete lines of a process, labeled such as "trainer 2 node-c"; return what can be shown now."""
        now = time.monotonic()
        held = self._held.get(who)
        if held is not None:
            held.data, held.heard = held.data + data, now
            return b""
        begin = _BEGIN.search(data)
        if begin is None:
            return data
        self._held[who] = _Held(data[begin.start() :], now, now)
        return data[: begin.start()]

    def due(self, everything: bool = False) -> list[tuple[str, bytes]]:
        """Return the output whose delay has passed, by process, and the launcher's notes on it (without a process)."""
        now = time.monotonic()
        shown = []
        for who, held in list(self._held.items()):
            is_over = now - held.heard >= QUIET_S or now - held.begun >= HELD_S or len(held.data) > HELD_SIZE
            if everything or is_over:
                del self._held[who]
                shown.append((who, self._unless_shown(who, held.data, now)))
        for shown_before in self._shown.values():
            if shown_before.again and (everything or now - shown_before.since >= GATHERED_S):
                who = "; ".join(_ranks(role, ranks) for role, ranks in shown_before.again.items())
                shown.append(("", f"({who}: the same traceback as {shown_before.first})".encode()))
                shown_before.again = {}
        return shown

    def _unless_shown(self, who: str, data: bytes, now: float) -> bytes:
        """Return the text without tracebacks that were already shown."""
        whole = _WHOLE.match(data)
        if whole is None:
            return data
        plain = re.sub(rb"^" + _RANK, b"", whole[0], flags=re.MULTILINE)
        alike = _NUMBERS.sub(lambda line: re.sub(rb"0x[0-9a-f]+|\d+", b"#", line[0]), plain).strip()
        shown_before = self._shown.get(alike)
        if shown_before is None:
            if len(self._shown) == MOST_REMEMBERED:
                del self._shown[next(iter(self._shown))]
            self._shown[alike] = _Shown(who)
            return data
        if not shown_before.again:
            shown_before.since = now
        name = _RANKED.match(who)
        if name is None:
            shown_before.again.setdefault(who, [])
        else:
            shown_before.again.setdefault(name[1], []).append(int(name[2]))
        return data[whole.end() :]


def _ranks(role: str, ranks: list[int]) -> str:
    return f"{role}{'s' * (len(ranks) > 1)} {spans(ranks)}".rstrip()
