# SPDX-License-Identifier: Apache-2.0
"""The screen on a terminal: log lines scroll above, below stays what the job does now.

Up to half a screen of nodes has a line each; more of them are summed up, and only those in trouble are listed. Draws
in one thread, a few times a second, each time with one write that takes the lower part off, adds the lines and
puts it back. Never hides the cursor: who kills or suspends us gets a usable terminal. NO_COLOR is respected.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from paddle_cluster.screen.drawing import PROCESS_STYLE
from paddle_cluster.screen.job_facts import CURVE_ROWS, JobFacts
from paddle_cluster.screen.writer import Sink
from paddle_cluster.text.sizes import counted
from paddle_cluster.text.wrapping import cells, crop, row

FLUSH_S = 0.1  # at most: a picture that is drawn quickly may come sooner after the last one
LEAST_FLUSH_S = 0.01
DRAWING_SHARE = 0.05  # of a core and of the terminal's time
REDRAW_S = 0.5
LINES_A_FLUSH = 100
COLUMN_LIMIT = 40
_COLUMNS = ("label", "state", "progress", "cost", "speed")
_STYLES = {"bold": "\x1b[1m", "red": "\x1b[31m", "bold red": "\x1b[1;31m"}
_PLAIN = "\x1b[0m"


class LiveView:
    """Draws on a terminal.

    Args:
        sink: the terminal.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._colours = not os.environ.get("NO_COLOR")
        self._has_blocks = sink.encoding.lower().replace("-", "") == "utf8"  # to draw a curve of
        self._facts = JobFacts()
        self._waiting: list[tuple[str, str]] = []
        self._left_out = 0
        self._droppable = 0
        self._drawn: list[str] = []
        self._dirty = False
        self._drawn_at = 0.0
        self._written_at = 0.0
        self._flush_s = FLUSH_S
        self._took_s = FLUSH_S
        self._finished = False

    def lines(self, lines: Sequence[str], style: str = "") -> None:
        """Lines that scroll away above; of those of processes the last ones, when there are too many to read."""
        self._waiting.extend((line, style) for line in lines)
        if style == PROCESS_STYLE:
            self._droppable += len(lines)
            if self._droppable > 2 * LINES_A_FLUSH:
                self._thin_out()

    def phase(self, name: str, age_s: float = 0.0) -> None:
        """A line of its own; when the job comes to its end the curve of its costs stays above."""
        curve = self._curve()
        if name == "stop" and curve:
            self.lines(["the cost of trainer 0:", *curve])
        self._facts.enter(name, age_s)
        self._waiting.append((f"== {name}", "bold"))
        self._dirty = True

    def node(self, node_id: int, **facts: str) -> None:
        """Remembered until the next redraw."""
        self._facts.note(node_id, facts)
        self._dirty = True

    def width(self) -> int:
        """Columns of the terminal as it is now."""
        return self._sink.size()[0]

    def tick(self) -> float:
        """Write what waits, the first after a pause at once; redraw also when only time has passed."""
        if self._finished:
            return REDRAW_S
        now = time.monotonic()
        has_news = bool(self._waiting) or self._dirty
        if (has_news and now - self._written_at >= self._flush_s) or now - self._drawn_at >= REDRAW_S:
            self._drawn_at = now
            self._draw(self._picture())
            if has_news:
                self._written_at = now
                before, self._took_s = self._took_s, time.monotonic() - now
                took_s = min(before, self._took_s)  # one that others held up tells nothing
                self._flush_s = min(FLUSH_S, max(LEAST_FLUSH_S, took_s / DRAWING_SHARE))
            has_news = False
        return self._written_at + self._flush_s - now if has_news else REDRAW_S

    def finish(self) -> None:
        """Leave the lines and take the rest off the screen."""
        self._draw([])
        self._finished = True

    def _draw(self, picture: list[str]) -> None:
        if not self._waiting and picture == self._drawn:
            return
        self._thin_out()
        above = [self._styled(line, style) for line, style in self._waiting]
        if self._left_out:
            above.insert(
                0, f"({counted(self._left_out, 'line')} not shown: too many to read; the logs have them)"
            )
        text = self._take_off() + "".join(f"{line}\n" for line in above) + "\n".join(picture)
        self._waiting, self._drawn, self._dirty = [], picture, False
        self._droppable = self._left_out = 0
        self._sink.write(text)

    def _take_off(self) -> str:
        """Back to where the lower part begins; a terminal that got narrower has broken its lines."""
        if not self._drawn:
            return ""
        width, _ = self._sink.size()
        up = sum(max(1, -(-cells(line) // width)) for line in self._drawn) - 1
        return "\r" + (f"\x1b[{up}A" if up else "") + "\x1b[J"

    def _thin_out(self) -> None:
        """Keep the last lines of processes, and everything that the launcher says."""
        too_many = self._droppable - LINES_A_FLUSH
        if too_many <= 0:
            return
        kept = []
        for line, style in self._waiting:
            if style == PROCESS_STYLE and too_many > 0:
                too_many -= 1
                self._left_out += 1
            else:
                kept.append((line, style))
        self._waiting, self._droppable = kept, LINES_A_FLUSH

    def _styled(self, line: str, style: str) -> str:
        code = _STYLES.get(style, "") if self._colours else ""
        return f"{code}{line}{_PLAIN}" if code else line

    def _curve(self) -> list[str]:
        return self._facts.curve.lines(self.width() - 1) if self._has_blocks else []

    def _picture(self) -> list[str]:
        """The lower part: a summary, the curve of costs, then nodes, as many lines as half the screen holds."""
        if not self._facts.nodes:
            return []
        width, height = self._sink.size()
        room = max(3, height // 2)
        all_listed = len(self._facts.nodes) <= room - len(self._facts.summary(True))
        lines = self._facts.summary(all_listed)
        listed = self._facts.nodes if all_listed else self._facts.troubled()
        order = sorted(listed)[: max(0, room - len(lines))]
        table = [[self._facts.nodes[node_id].get(name, "") for name in _COLUMNS] for node_id in order]
        widths = [min(COLUMN_LIMIT, max(map(cells, column))) for column in zip(*table, strict=True)]
        if room - len(lines) - len(table) >= CURVE_ROWS:
            lines += self._curve()
        lines += [row(line, widths) for line in table]
        return [crop(line, width - 1) for line in lines[: height - 1]]
