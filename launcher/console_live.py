# SPDX-License-Identifier: Apache-2.0
"""The screen on a terminal: log lines scroll above, below stays one line a node. The only import of rich."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import IO, cast

from rich.console import Console as RichConsole
from rich.live import Live
from rich.table import Table
from rich.text import Text

from launcher.outlet import Sink

REDRAW_S = 0.2
_COLUMNS = ("label", "state", "progress", "cost", "speed")


class LiveView:
    """Draws in one thread, and only there: no thread of rich's own, a stopped terminal stops only us."""

    def __init__(self, sink: Sink) -> None:
        self._rich = RichConsole(
            file=cast("IO[str]", sink), force_terminal=True, highlight=False, markup=False, emoji=False
        )
        self._facts: dict[int, dict[str, str]] = {}
        self._dirty = False
        self._drawn_at = 0.0
        self._live = Live(
            console=self._rich,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._started = False

    def lines(self, lines: Sequence[str], style: str = "") -> None:
        """Lines that scroll away above the nodes."""
        for line in lines:
            self._rich.print(Text(line, style=style), soft_wrap=True)

    def phase(self, name: str) -> None:
        """A line of its own."""
        self.lines([f"== {name}"], style="bold")

    def node(self, node_id: int, **facts: str) -> None:
        """Remembered until the next redraw."""
        self._facts.setdefault(node_id, {"label": f"node {node_id}"}).update(facts)
        self._dirty = True

    def tick(self) -> None:
        """Redraw when something changed, a few times a second."""
        now = time.monotonic()
        if not self._dirty or now - self._drawn_at < REDRAW_S:
            return
        if not self._started:
            self._started = True
            self._live.start()
            self._rich.show_cursor(True)  # who stops or kills us would be left without one
        self._dirty, self._drawn_at = False, now
        self._live.update(self._picture(), refresh=True)

    def finish(self) -> None:
        """Take the nodes off the screen and give the cursor back."""
        self._dirty = False
        if self._started:
            self._started = False
            self._live.stop()

    def _picture(self) -> Table:
        """Nodes by id, as many as half the screen holds; the rest as counts."""
        picture = Table.grid(padding=(0, 2))
        room = max(3, self._rich.size.height // 2)
        order = sorted(self._facts)
        for node_id in order[:room]:
            facts = self._facts[node_id]
            picture.add_row(*(Text(facts.get(column, ""), no_wrap=True) for column in _COLUMNS))
        rest = Counter(self._facts[node_id].get("state", "") for node_id in order[room:])
        if rest:
            counts = ", ".join(f"{count} {state}" for state, count in sorted(rest.items()))
            picture.add_row(Text(f"and {rest.total()} more", no_wrap=True), Text(counts, no_wrap=True))
        return picture
