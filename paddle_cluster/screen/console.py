# SPDX-License-Identifier: Apache-2.0
"""The screen of a job: plain lines or, on a terminal, log lines above a live view with one line per node.

Events are separate from drawing: every method creates an event of `output_events`, a frozen value, and `show` draws it.
Observers can follow: a tap passed to `watch` receives each event, and a view passed to `mirror` receives the drawn
output. A console in another process shows the same output through `show(from_fields(...))`, or through `rendered` and
`facts`.

No method ever waits for the reader or fails because of it. `close` writes the remaining output; it must be called last.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TextIO

from paddle_cluster.errors import ExitCode
from paddle_cluster.screen.drawing import Drawer, View
from paddle_cluster.screen.writer import TICK_S, Sink, Writer, show
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.text.output_events import (
    Ended,
    Event,
    Failed,
    NodesNamed,
    NodeState,
    Noted,
    PhaseEntered,
    Plotted,
    Printed,
    Progressed,
    Tabled,
    Timed,
    Transferred,
    Unsent,
    Used,
    to_fields,
)
from paddle_cluster.text.sizes import counted
from paddle_cluster.text.wrapping import FILE_WIDTH, outcome

CLOSE_S = 2.0

Tap = Callable[[Event], None]


class PlainView(View):
    """A view of plain lines, for pipes, files and dumb terminals, without frequent changes of node states."""

    has_nodes = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def lines(self, lines: Sequence[str], style: str = "") -> None:
        """Write permanent lines, without colors."""
        self._sink.write("".join(f"{line}\n" for line in lines))

    def phase(self, name: str, age_s: float = 0.0) -> None:
        """Write the name of the new phase on its own line."""
        self.lines([f"== {name}"])

    def width(self) -> int:
        """Return the number of columns of a dumb terminal; a file has no limit."""
        return self._sink.size()[0] if self._sink.isatty() else FILE_WIDTH


class JsonLines(View):
    """A view that writes every event as a line of JSON, for programs."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def take(self, event: Event) -> None:
        """Write one event as a line of JSON."""
        self._sink.write(json.dumps(to_fields(event)) + "\n")

    def lines(self, lines: Sequence[str], style: str = "") -> None:
        """Write a message of the console as an event."""
        self.take(Noted("\n".join(lines)))

    def width(self) -> int:
        """Return the width of unwrapped text, in columns."""
        return 80

    def tick(self, everything: bool = False) -> float:
        """Do nothing, because this view never redraws; return the time to the next call in seconds."""
        return TICK_S


def _choose_view(sink: Sink, keys: str) -> tuple[View, bool]:
    on_terminal = sink.isatty()
    if not on_terminal or os.environ.get("TERM", "dumb") == "dumb":
        return PlainView(sink), on_terminal
    from paddle_cluster.screen.console_live import LiveView

    return LiveView(sink, keys), True


class Console:
    """The screen of a job, which shows the job's events to its user.

    Args:
        stream: the destination; standard output by default.
        as_json: write every event as a line of JSON, for programs.
        keys: what the keys do, for the live view of a terminal.
    """

    def __init__(self, stream: TextIO | None = None, *, as_json: bool = False, keys: str = "") -> None:
        self._sink = Sink(sys.stdout if stream is None else stream)
        self._gone_noted = False
        self._end = ""
        self._began = time.time()
        self._taps: tuple[tuple[Tap, tuple[type[Event], ...]], ...] = ()
        self._as_json = as_json
        self._view: View
        self._drawer: Drawer | JsonLines
        if as_json:
            self._view = self._drawer = JsonLines(self._sink)
        else:
            self._view, on_terminal = _choose_view(self._sink, keys)
            self._drawer = Drawer(self._view, on_terminal)
        self._writer = Writer(self._sink, self._tick, self._note_dropped)

    def watch(self, tap: Tap, *kinds: type[Event]) -> None:
        """Add a tap: pass every later event, or those of the given kinds, to `tap` as well, on the caller's thread.

        A tap must not wait or raise.
        """
        self._taps = (*self._taps, (tap, kinds))

    def unwatch(self, tap: Tap) -> None:
        """Remove a tap that `watch` added, so that it receives no more events."""
        self._taps = tuple(pair for pair in self._taps if pair[0] != tap)

    def show(self, event: Event) -> None:
        """Show an event of this job, or of a job that another process runs."""
        for tap, kinds in self._taps:
            if not kinds or isinstance(event, kinds):
                tap(event)
        if not self._view.has_nodes and isinstance(event, NodeState | Transferred | Progressed):
            return
        draw = functools.partial(self._drawer.take, event)
        match event:
            case NodeState():
                self._writer.post_latest(event.node_id, draw)
            case Transferred():
                self._writer.post_latest((Transferred, event.node_id), draw)
            case Progressed():
                self._writer.post_latest((event.node_id, event.process), draw)
            case Used():
                if self._as_json:  # other screens do not show it
                    self._writer.post_latest((Used, event.node_id), draw)
            case Ended():
                self._end = outcome(event.job_id, event.code, event.cause)
                self._writer.post(draw)
            case Plotted():
                if self._as_json:
                    self._writer.post_latest((event.process, event.curve), draw)
            case Printed():
                lines = event.data.count(b"\n") + event.partial
                self._writer.post(draw, max(1, lines), len(event.data))
            case _:
                self._writer.post(draw)

    def nodes(self, labels: Mapping[int, str], name: str = "") -> None:
        """Set the names of the nodes, by ID, and of the job, if it has one."""
        self.show(NodesNamed(tuple(labels.items()), name))

    def phase(self, name: str) -> None:
        """Show that the job enters a phase."""
        self.show(PhaseEntered(name, self._began))

    def note(self, text: str) -> None:
        """Show a note for the user; the text can have several lines."""
        self.show(Noted(text))

    def process_line(
        self, process: str, node: str, data: bytes, *, partial: bool = False, at: float | None = None
    ) -> None:
        """Show lines that a process wrote.

        Args:
            process: its name, such as "trainer-2".
            node: the node's name on the screen.
            partial: whether the last line is incomplete.
            at: time of writing in seconds since 1970, on this machine's clock; now by default.
        """
        self.show(Printed(str(process), node, data, partial, time.time() if at is None else at))

    def unsent(self, process: str, node: str, size: int, log: str) -> None:
        """Report that `size` bytes of a process's output were not sent; `log` on its node contains them."""
        self.show(Unsent(str(process), node, int(size), str(log)))

    def node_state(self, node_id: int, state: str) -> None:
        """Show the new state of a node."""
        self.show(NodeState(node_id, state))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], red: AbstractSet[int]) -> None:
        """Show a table; the rows at the indices in `red` have failed."""
        shown = tuple(tuple(str(cell) for cell in row) for row in rows)
        self.show(Tabled(tuple(headers), shown, tuple(sorted(red))))

    def failure(self, lines: Iterable[str]) -> None:
        """Report the first failure, with the end of its log."""
        self.show(Failed(tuple(lines)))

    def times(self, phases: Mapping[str, float]) -> None:
        """Report the duration of each phase, in seconds."""
        self.show(Timed(tuple(phases.items())))

    def summary(
        self,
        *,
        job_id: str,
        code: ExitCode,
        cause: str,
        logs: Path | None,
        output: Path | None,
        lines: Iterable[str],
    ) -> None:
        """Show the last screen: remaining messages, the paths of the results, how the job ended."""
        self.show(Ended(job_id, code, cause, str(logs or ""), str(output or ""), tuple(lines)))

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Write the queued output, for at most `timeout_s` seconds, and restore the terminal."""
        self._writer.post(self._drawer.finish)
        self._writer.post(self._view.finish)
        self._writer.close(timeout_s)
        self._report_gone()
        if self._sink.gone and self._end:
            show(f"{PROGRAM}: {self._end}", sys.stderr)

    def _note_dropped(self, count: int) -> None:
        self._view.lines([f"({counted(count, 'line')} not shown: the reader was too slow; see the logs)"])

    def _tick(self) -> float:
        self._drawer.tick()
        wait_s = self._view.tick()
        self._report_gone()
        return wait_s

    def _report_gone(self) -> None:
        if self._sink.gone and not self._gone_noted:
            self._gone_noted = True
            show(
                f"{PROGRAM}: cannot write to the screen any more ({self._sink.gone}), which does not end the job; "
                f"`{PROGRAM} attach` shows it",
                sys.stderr,
            )
