# SPDX-License-Identifier: Apache-2.0
"""The live screen on a terminal: log lines scroll above a view of the job's current state.

Up to half a screen of nodes have one line each; a larger number is summarized, and only troubled nodes are listed. One
thread draws, a few times a second, each time with a single write that removes the lower part, adds the lines and
restores it. The cursor is never hidden, so that a killed or suspended launcher leaves a usable terminal. NO_COLOR is
respected.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from paddle_cluster.screen.drawing import PROCESS_STYLE, View
from paddle_cluster.screen.writer import Sink
from paddle_cluster.text.sizes import counted
from paddle_cluster.text.wrapping import cells, crop, duration_clock, row, speed_text, transfer
from paddle_node.contract.classes import NamedTuple

FIRST_TRAINER = "trainer-0"
CURVE_ROWS = 3
_MOST_POINTS = 48
_BARS = " ▁▂▃▄▅▆▇█"
DISPATCH = "dispatch"
_WELL = frozenset(("running", "stopped", DISPATCH, "ready", "connecting", ""))


class CostCurve:
    """The costs of one trainer since this view was started, averaged over equal numbers of steps."""

    def __init__(self) -> None:
        self._points: list[float] = []
        self._low, self._high = math.inf, -math.inf
        self._steps = 1  # per point
        self._open: list[float] = []

    def add(self, cost: float) -> None:
        """Add the cost of one step."""
        self._low, self._high = min(self._low, cost), max(self._high, cost)
        self._open.append(cost)
        if len(self._open) < self._steps:
            return
        self._points.append(sum(self._open) / self._steps)
        self._open = []
        if len(self._points) == _MOST_POINTS:
            self._points = _paired(self._points)
            self._steps *= 2

    def lines(self, width: int) -> list[str]:
        """Return CURVE_ROWS lines of at most `width` cells; none for one point.

        The labels are the highest and the lowest of all costs, also if points average several of them.
        """
        points = self._points
        while len(points) > max(1, width - 9):
            points = _paired(points)
        if len(points) < 2 or not all(map(math.isfinite, points)):
            return []
        low, high = self._low, self._high
        scale = (CURVE_ROWS * 8 - 1) / (high - low) if high > low else 0.0
        levels = [1 + round((point - low) * scale) for point in points]
        labels = [f"{high:.4g}", *[""] * (CURVE_ROWS - 2), f"{low:.4g}"]
        return [
            (f"{label:>8.8} " + "".join(_BARS[max(0, min(8, level - 8 * row))] for level in levels)).rstrip()
            for label, row in zip(labels, reversed(range(CURVE_ROWS)), strict=True)
        ]


def _paired(points: list[float]) -> list[float]:
    return [sum(points[at : at + 2]) / len(points[at : at + 2]) for at in range(0, len(points), 2)]


class _Trainer(NamedTuple):
    pass_id: int
    batch_id: int
    rate: float | None
    node_id: int
    progress: str
    cost: str


class JobFacts:
    """The current facts about the nodes and trainers of a job, as a live view shows them.

    Attributes:
        nodes: node ID -> fact -> text.
        curve: the costs of trainer 0.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, dict[str, str]] = {}
        self.curve = CostCurve()
        self._trainers: dict[str, _Trainer] = {}
        self._transfers: dict[int, tuple[int, int, float]] = {}  # arrived, total, rate
        self._phase = ""
        self._began = time.monotonic()

    def enter(self, phase: str, age_s: float = 0.0) -> None:
        """Record that the job enters a phase.

        Args:
            age_s: the number of seconds for which the job has been running; 0 if it starts now.
        """
        self._phase = phase
        self._began = min(self._began, time.monotonic() - age_s)

    def note(self, node_id: int, facts: Mapping[str, str]) -> None:
        """Record facts about a node or, with `process`, about one of its trainers."""
        self.nodes.setdefault(node_id, {"label": f"node {node_id}"}).update(facts)
        if "arrived" in facts:
            numbers = int(facts["arrived"]), int(facts["total"]), float(facts["bytes_per_s"])
            if not self._under_way():  # a node that reconnects receives only missing files
                self._transfers.clear()
            self._transfers[node_id] = numbers
        if "process" in facts and "rate" in facts:
            self._trainers[facts["process"] or f"node {node_id}"] = _Trainer(
                int(facts["pass_id"]),
                int(facts["batch_id"]),
                float(facts["rate"]) if facts["rate"] else None,
                node_id,
                facts["progress"],
                facts["cost"],
            )
            if facts["process"] == FIRST_TRAINER and facts["cost"]:
                self.curve.add(float(facts["cost"]))

    def troubled(self) -> list[int]:
        """Return the IDs of nodes that are not in a normal state."""
        return [node_id for node_id, facts in self.nodes.items() if facts.get("state", "") not in _WELL]

    def summary(self, all_listed: bool) -> list[str]:
        """Return up to three lines: phase and states; progress of training or of sending; the slowest trainer.

        Args:
            all_listed: whether every node has its own line below.
        """
        states = Counter(facts.get("state") or "waiting" for facts in self.nodes.values())
        counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
        nodes = counted(len(self.nodes), "node")
        job = next((f"{facts['job']}  " for facts in self.nodes.values() if facts.get("job")), "")
        lines = [
            f"{job}{self._phase or 'start'} {duration_clock(time.monotonic() - self._began)}  {nodes}: {counts}"
        ]
        if self._under_way():
            lines += self._transferring(all_listed)
        elif self._trainers:
            lines += self._training()
        return lines

    def _under_way(self) -> dict[int, tuple[int, int, float]]:
        """Return the transfers that are not complete."""
        return {
            node_id: one
            for node_id, one in self._transfers.items()
            if one[0] < one[1] and self.nodes[node_id].get("state", DISPATCH) == DISPATCH
        }

    def _transferring(self, all_listed: bool) -> list[str]:
        """Describe how much all nodes have received, and which nodes are not complete."""
        under_way = self._under_way()
        arrived = sum(one[0] for one in self._transfers.values())
        total = sum(one[1] for one in self._transfers.values())
        rate = sum(one[2] for one in under_way.values())
        lines = [f"arrived: {_as_text(transfer(arrived, total, rate))}"]
        if not all_listed:
            last = max(under_way, key=lambda node_id: _left_s(*under_way[node_id]))
            lines.append(
                f"slowest: {self.nodes[last].get('label', '')}  {_as_text(transfer(*under_way[last]))}"
            )
        return lines

    def _training(self) -> list[str]:
        first = self._trainers.get(FIRST_TRAINER) or next(iter(self._trainers.values()))
        name = "trainer 0" if FIRST_TRAINER in self._trainers else "a trainer"
        rates = [one.rate for one in self._trainers.values() if one.rate is not None]
        total = f"all: {speed_text(sum(rates))}" if rates else ""
        cost = f" cost {first.cost}" if first.cost else ""
        lines = [f"{name}: {first.progress}{cost}  {total}".rstrip()]
        if len(self._trainers) > 1:
            slowest = min(self._trainers.values(), key=lambda one: (one.pass_id, one.batch_id, one.rate or 0))
            label = self.nodes[slowest.node_id].get("label", "")
            rate = "" if slowest.rate is None else speed_text(slowest.rate)
            lines.append(f"slowest: {label}  {slowest.progress}  {rate}".rstrip())
        return lines


def _left_s(arrived: int, total: int, bytes_per_s: float) -> float:
    return (total - arrived) / max(1.0, bytes_per_s)


def _as_text(facts: Mapping[str, str]) -> str:
    return "  ".join(facts[name] for name in ("progress", "cost", "speed") if facts[name])


FLUSH_S = 0.1  # upper limit: a picture that is fast to draw can be drawn again sooner
LEAST_FLUSH_S = 0.01
DRAWING_SHARE = 0.05  # of one core and of the terminal's time
REDRAW_S = 0.5
LINES_A_FLUSH = 100
COLUMN_LIMIT = 40
_COLUMNS = ("label", "state", "progress", "cost", "speed")
_STYLES = {"bold": "\x1b[1m", "red": "\x1b[31m", "bold red": "\x1b[1;31m"}
_PLAIN = "\x1b[0m"


class LiveView(View):
    """A live view of a job on a terminal: scrolling lines, and one line per node below them.

    Args:
        sink: the terminal. While this process is in its background, only the lines are written.
        keys: what the keys do.
    """

    def __init__(self, sink: Sink, keys: str = "") -> None:
        self._sink = sink
        self._keys = keys
        self._colours = not os.environ.get("NO_COLOR")
        self._has_blocks = sink.encoding.lower().replace("-", "") == "utf8"  # trainer of the curve
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
        """Add permanent lines, which scroll up; of a large number of process lines, only the last ones are shown."""
        self._waiting.extend((line, style) for line in lines)
        if style == PROCESS_STYLE:
            self._droppable += len(lines)
            if self._droppable > 2 * LINES_A_FLUSH:
                self._thin_out()

    def phase(self, name: str, age_s: float = 0.0) -> None:
        """Write the phase on its own line; at the end of the job, keep the cost curve above it."""
        curve = self._curve()
        if name == "stop" and curve:
            self.lines(["the cost of trainer 0:", *curve])
        self._facts.enter(name, age_s)
        self._waiting.append((f"== {name}", "bold"))
        self._dirty = True

    def node(self, node_id: int, **facts: str) -> None:
        """Record facts about a node for the next redraw."""
        self._facts.note(node_id, facts)
        self._dirty = True

    def width(self) -> int:
        """Return the current width of the terminal, in columns."""
        return self._sink.size()[0]

    def tick(self) -> float:
        """Write pending output, immediately after a pause; redraw also if only the elapsed time has changed."""
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
                took_s = min(before, self._took_s)  # a single slow write can have external causes
                self._flush_s = min(FLUSH_S, max(LEAST_FLUSH_S, took_s / DRAWING_SHARE))
            has_news = False
        return self._written_at + self._flush_s - now if has_news else REDRAW_S

    def finish(self) -> None:
        """Keep the permanent lines on the screen, and clear the lower part."""
        self._draw([])
        self._finished = True

    def _draw(self, picture: list[str]) -> None:
        if self._sink.is_in_background():  # the shell writes to the lower part
            self._drawn, picture = [], []
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
        """Return the control codes that erase the lower part; a terminal that became narrower has wrapped its lines."""
        if not self._drawn:
            return ""
        width, _ = self._sink.size()
        up = sum(max(1, -(-cells(line) // width)) for line in self._drawn) - 1
        return "\r" + (f"\x1b[{up}A" if up else "") + "\x1b[J"

    def _thin_out(self) -> None:
        """Keep only the last lines of processes, and all lines of the launcher."""
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
        """Return the lower part: a summary, the cost curve, then nodes, in at most half the lines of the screen."""
        if not self._facts.nodes:
            return []
        width, height = self._sink.size()
        room = max(3, height // 2)
        all_listed = len(self._facts.nodes) <= room - len(self._facts.summary(True))
        lines = self._facts.summary(all_listed)
        lines[0] += f"  ({self._keys})" if self._keys else ""
        listed = self._facts.nodes if all_listed else self._facts.troubled()
        order = sorted(listed)[: max(0, room - len(lines))]
        table = [[self._facts.nodes[node_id].get(name, "") for name in _COLUMNS] for node_id in order]
        widths = [min(COLUMN_LIMIT, max(map(cells, column))) for column in zip(*table, strict=True)]
        if room - len(lines) - len(table) >= CURVE_ROWS:
            lines += self._curve()
        lines += [row(line, widths) for line in table]
        mark = "…" if self._has_blocks else "..."
        return [
            line if cells(line) < width else crop(line, width - 1 - len(mark)) + mark
            for line in lines[: height - 1]
        ]
