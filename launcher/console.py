# SPDX-License-Identifier: Apache-2.0
"""The only place that prints: plain lines, or on a terminal log lines above and one line a node below.

No method ever waits for the reader or fails because of it. `close` writes what is left; it comes last.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Protocol, TextIO

from launcher import console_text
from launcher.errors import ExitCode
from launcher.outlet import Outlet, Sink

CLOSE_S = 2.0


def show(text: str, stream: TextIO | None = None) -> None:
    """Write a text at once, for commands that end with it; a reader that has gone is no error."""
    sink = Sink(sys.stdout if stream is None else stream)
    sink.write(text if text.endswith("\n") else text + "\n")


class View(Protocol):
    """How lines and the state of nodes appear; called in the outlet's thread only."""

    def lines(self, lines: Sequence[str], style: str = "") -> None:
        """Lines that stay."""

    def phase(self, name: str) -> None:
        """What the job does from now on."""

    def node(self, node_id: int, **facts: str) -> None:
        """New facts on a node: label, state, progress, cost, speed."""

    def tick(self) -> None:
        """A moment to redraw."""

    def finish(self) -> None:
        """Leave the screen as it should stay."""


class PlainView:
    """Lines alone, for pipes, files and dumb terminals."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def lines(self, lines: Sequence[str], style: str = "") -> None:
        """Lines that stay; there are no colours here."""
        self._sink.write("".join(f"{line}\n" for line in lines))

    def phase(self, name: str) -> None:
        """A line of its own."""
        self.lines([f"== {name}"])

    def node(self, node_id: int, **facts: str) -> None:
        """Nothing: the processes' own lines tell enough, and a line a node and state would bury them."""

    def tick(self) -> None:
        """Nothing is redrawn."""

    def finish(self) -> None:
        """Nothing is left to do."""


def _choose_view(sink: Sink) -> tuple[View, bool]:
    on_terminal = sink.isatty()
    if not on_terminal or os.environ.get("TERM", "dumb") == "dumb":
        return PlainView(sink), on_terminal
    from launcher.console_live import LiveView  # rich: not for --help, --dry_run or a pipe

    return LiveView(sink), True


class Console:
    """What the job tells its user.

    Args:
        stream: where to; standard output when it is left out.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._sink = Sink(sys.stdout if stream is None else stream)
        self._view, self._on_terminal = _choose_view(self._sink)
        self._mirrors: list[View] = []
        self._gone_noted = False
        self._outlet = Outlet(self._tick, self._note_dropped)

    def mirror(self, view: View) -> None:
        """Show everything from now on here too; the view is called in the callers' threads and must not wait."""
        self._mirrors.append(view)

    def rendered(self, lines: Sequence[str], style: str = "") -> None:
        """Lines as another console's mirror got them."""
        self._post_lines(lines, style)

    def facts(self, node_id: int, facts: Mapping[str, str]) -> None:
        """Facts on a node as another console's mirror got them."""
        self._post_node(node_id, **facts)

    def nodes(self, labels: Mapping[int, str]) -> None:
        """Name the nodes, by id."""
        for node_id, label in labels.items():
            self._post_node(node_id, label=label)

    def phase(self, name: str) -> None:
        """The job enters a phase."""
        shown = console_text.visible(name)
        self._show(lambda view: view.phase(shown))

    def note(self, text: str) -> None:
        """Something the user should know; may hold several lines."""
        self._post_lines(text.split("\n"))

    def process_line(self, process: str, node: str, data: bytes) -> None:
        """Whole lines that a process wrote.

        Args:
            process: its name, such as "trainer-2".
            node: how the screen names its node.
        """
        label = f"{process.replace('-', ' ', 1)} {node}"
        lines = console_text.process_lines(label, data, self._on_terminal)
        self._outlet.post(lambda: self._view.lines(lines), droppable=True)
        if self._mirrors:  # they may end on a terminal wherever this console writes to
            harmless = console_text.process_lines(label, data, on_terminal=True)
            self._reflect(lambda view: view.lines(harmless))

    def node_state(self, node_id: int, state: str) -> None:
        """What a node is doing."""
        self._post_node(node_id, state=state)

    def progress(self, node_id: int, pass_id: int, batch_id: int, cost: float, samples_per_s: float) -> None:
        """How far the trainer of a node is."""
        self._post_node(
            node_id,
            progress=f"pass {pass_id} batch {batch_id}",
            cost=f"{cost:.5g}",
            speed=f"{samples_per_s:,.0f} samples/s",
        )

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], red: AbstractSet[int]) -> None:
        """A table whose rows at the indices in `red` are wrong."""
        head, *lines = console_text.table(headers, rows, red)
        self._post_lines([head])
        for index, line in enumerate(lines):
            self._post_lines([line], style="red" if index in red else "")

    def failure(self, lines: Iterable[str]) -> None:
        """What went wrong first, with the end of its log."""
        self._post_lines(lines, style="bold red")

    def times(self, phases: Mapping[str, float]) -> None:
        """How long each phase took, in seconds."""
        self._post_lines([console_text.times(phases)])

    def summary(
        self, *, job_id: str, code: ExitCode, logs: Path | None, output: Path | None, lines: Iterable[str]
    ) -> None:
        """The last screen: what is left to say, where the results are, how it ended."""
        places = {"logs": logs, "output": output}
        self.failure(lines)
        self._post_lines(f"{what}: {path}" for what, path in places.items() if path is not None)
        self._post_lines(
            [console_text.outcome(job_id, code)], style="bold" if code is ExitCode.DONE else "bold red"
        )

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Write what waits, for at most `timeout_s`, and leave the terminal as it was."""
        self._outlet.post(self._view.finish)
        self._outlet.close(timeout_s)
        self._tell_gone()

    def _post_lines(self, lines: Iterable[str], style: str = "") -> None:
        shown = [console_text.visible(line) for line in lines]
        if shown:
            self._show(lambda view: view.lines(shown, style))

    def _post_node(self, node_id: int, **facts: str) -> None:
        shown = {name: console_text.visible(fact) for name, fact in facts.items()}
        self._show(lambda view: view.node(node_id, **shown), droppable="label" not in facts)

    def _show(self, act: Callable[[View], None], droppable: bool = False) -> None:
        self._outlet.post(lambda: act(self._view), droppable)
        self._reflect(act)

    def _reflect(self, act: Callable[[View], None]) -> None:
        for mirror in self._mirrors:
            act(mirror)

    def _note_dropped(self, count: int) -> None:
        self._view.lines(
            [f"({count} lines or updates not shown: the reader was too slow; the logs have all lines)"]
        )

    def _tick(self) -> None:
        self._view.tick()
        self._tell_gone()

    def _tell_gone(self) -> None:
        if self._sink.gone and not self._gone_noted:
            self._gone_noted = True
            show(
                f"paddle.py: cannot write to the screen any more ({self._sink.gone}); the job goes on",
                sys.stderr,
            )
