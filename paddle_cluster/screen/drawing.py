# SPDX-License-Identifier: Apache-2.0
"""Turns events into lines and facts for a view; each drawer belongs to one view and one thread."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Protocol

from paddle_cluster.screen.tracebacks import Tracebacks
from paddle_cluster.text import wrapping
from paddle_cluster.text.open_lines import OpenLines
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
from paddle_cluster.text.sizes import counted

PROCESS_STYLE = "process"  # of lines that a view may leave out when there are more than can be read
BURST_LINES = 200  # of one event on a terminal: nobody reads more at once
_ROUTINE = re.compile(rb"I\d{4,8} \d\d:\d\d:\d\d\.\d+ ")  # glog's INFO


class View(Protocol):
    """How lines and the state of nodes appear."""

    def lines(self, lines: Sequence[str], style: str = "") -> None:
        """Lines that stay."""

    def phase(self, name: str, age_s: float = 0.0) -> None:
        """What the job does from now on, and how old it is."""

    def node(self, node_id: int, **facts: str) -> None:
        """New facts on a node: label, state, and what `console_text.progress` gives."""

    def width(self) -> int:
        """How many columns there are."""

    def tick(self) -> float:
        """A moment to redraw; returns in how many seconds the next one is due."""

    def finish(self) -> None:
        """Leave the screen as it should stay."""


class Drawer:
    """Draws events on a view. Normal output of pservers stays in their logs.

    Args:
        on_terminal: a burst of lines is cut.
    """

    def __init__(self, view: View, on_terminal: bool) -> None:
        self._view = view
        self._on_terminal = on_terminal
        self._open = OpenLines()
        self._tracebacks = Tracebacks()

    def take(self, event: Event) -> None:
        """Draw one event."""
        view = self._view
        self.tick()
        match event:
            case Printed():
                who = wrapping.visible(wrapping.label(event.process, event.node))
                self._print(who, self._open.take(who, event.data, event.partial))
            case Unsent():
                view.lines([wrapping.unsent(event)])
            case NodesNamed():
                for node_id, label in event.labels:
                    view.node(node_id, label=wrapping.visible(label))
            case NodeState():
                view.node(event.node_id, state=wrapping.visible(event.state))
            case Transferred():
                view.node(event.node_id, **wrapping.transfer(event.arrived, event.total, event.bytes_per_s))
            case Progressed():
                view.node(event.node_id, **wrapping.progress(event))
            case PhaseEntered():
                age_s = max(0.0, time.time() - event.began) if event.began else 0.0
                view.phase(wrapping.visible(event.name), age_s)
            case _:
                if isinstance(event, Failed | Timed | Ended):
                    self.finish()
                for text, style in wrapping.told(event, view.width()):
                    view.lines([wrapping.visible(text)], style)

    def tick(self, everything: bool = False) -> None:
        """Show lines that stay open for long as they are, and tracebacks that are whole."""
        for who, data in self._open.overdue(everything):
            self._print(str(who), data)
        for who, data in self._tracebacks.due(everything):
            if who:
                self._show(who, data)
            else:
                self._view.lines([data.decode()])

    def finish(self) -> None:
        """Show what is still open."""
        self.tick(everything=True)

    def _print(self, who: str, data: bytes) -> None:
        if who.startswith("pserver "):
            data = b"".join(line for line in data.splitlines(keepends=True) if not _ROUTINE.match(line))
        self._show(who, self._tracebacks.take(who, data))

    def _show(self, who: str, data: bytes) -> None:
        if not data:
            return
        left_out = 0
        if self._on_terminal:
            data, left_out = wrapping.last_lines(data, BURST_LINES)
        shown = wrapping.process_lines(who, data)
        if left_out:
            self._view.lines([f"[{who}] ({counted(left_out, 'line')} not shown; its log has them)"])
        self._view.lines(shown, PROCESS_STYLE)
