# SPDX-License-Identifier: Apache-2.0
"""Ends a job: stops its processes, collects its files, and reports what could not be done.

No error interrupts the shutdown, and every wait has a deadline. The deadline of collecting restarts whenever data
arrive, so that a large model on a slow network is collected. A second stop request kills all processes immediately and
leaves a few seconds for the remaining steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from paddle_cluster.errors import ConnectError, LauncherError
from paddle_cluster.files.collector_thread import PATIENCE_S
from paddle_cluster.files.dispatch import WORKSPACE
from paddle_cluster.job.context import JobContext
from paddle_cluster.job.handlers.nodes import DRAIN_LIMIT_S, NodeHandlers
from paddle_cluster.nodes.loop import Loop
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.text.sizes import counted
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import dataclass

MARGIN_S = 3.0  # how long a node may exceed its deadline
TIDY_S = 5.0  # how long a node whose files were verified may continue to remove directories of earlier jobs
FORCED_STOP_S = 1.0  # after a second request: for the confirmation that everything was killed
FORCED_S = 1.5  # after a second request: for the rest of logs and output
FAREWELL_S = 0.5  # after a second request: for the goodbye
ENDS_S = 3.0  # for all connections to end
STALL_TOLD_S = 10.0


@dataclass(frozen=True)
class Undone:
    """The result of a shutdown: what could not be stopped or collected, as lines for the screen.

    Attributes:
        unclean: processes that may still be running.
        missing: files that were not collected completely, and checkpoints that could not be written.
        excused: such processes and files of nodes that the job continued without; other processes that may remain.
        is_proven: whether every file that the other nodes listed was verified.
    """

    unclean: tuple[str, ...]
    missing: tuple[str, ...]
    excused: tuple[str, ...]
    is_proven: bool


class Shutdown:
    """The shutdown of one job, phase by phase.

    Args:
        enter: called with the name of each phase.
    """

    def __init__(
        self, context: JobContext, loop: Loop, nodes: NodeHandlers, enter: Callable[[str], None]
    ) -> None:
        self._context = context
        self._settings = context.settings
        self._roster = context.roster
        self._collector = context.collector
        self._loop = loop
        self._nodes = nodes
        self._enter = enter
        self._has_reported = False

    def run(self) -> Undone:
        """Stop all processes, collect their files, and close all connections.

        Print progress only if a process was started.
        """
        self._context.stopping = True
        has_started = any(record.traces.used for record in self._roster.all())
        enter = self._enter if has_started else self._context.clock.enter
        enter("stop")
        self._stop()
        enter("collect")
        self._collect()
        self._context.connector.close()
        started = self._context.connector.join(FAREWELL_S if self._context.forced else ENDS_S)
        missing = self._collector.close(FORCED_S if self._context.forced else PATIENCE_S)
        records = [record for record in self._roster.all() if not record.traces.left_out]
        left_out = [record for record in self._roster.all() if record.traces.left_out]
        return Undone(
            (
                *(line for record in records for line in self._unclean(record)),
                *([f"NOT CLEANED: {visible(started)}"] if started else []),
            ),
            (
                *(line for record in records for line in self._missing(record)),
                *map(visible, missing),
                *(
                    f"NOT SAVED by {name}: {unsaved.what}"
                    for name, one in self._roster.processes.items()
                    if (unsaved := one.facts.unsaved) is not None and unsaved.what
                ),
            ),
            (
                *(line for record in left_out for line in (*self._unclean(record), *self._missing(record))),
                *(f"MAY STILL RUN on {r.name}: {r.traces.unsure}" for r in records if r.traces.unsure),
            ),
            is_proven=all(self._is_proven(record) for record in records),
        )

    def _stop(self) -> None:
        """Let the nodes stop all processes, and then send what they have written until they are silent."""
        settings = self._settings
        for record in self._roster.live():
            self._nodes.end(record)
        lost = [record for record in self._roster.all() if record.traces.used and record.link is None]
        for record in lost:
            self._nodes.connect(record)
        self._wait(
            lambda: (
                all(r.traces.stopped for r in self._roster.live())
                and all(r.traces.stopped or r.contact.error for r in lost)
            ),
            max(settings.limits.stop_grace_s, settings.ssh.connect_timeout_s if lost else 0.0) + MARGIN_S,
            FORCED_STOP_S,
        )

    def _collect(self) -> None:
        """Wait until the nodes are silent; then request their goodbye."""
        begun = time.monotonic()
        quiet_s = self._settings.limits.collect_timeout_s

        def all_quiet() -> bool:
            self._report_stall()
            listened_s = time.monotonic() - max(begun, self._loop.listens_since)
            return all(
                min(listened_s, self._collector.quiet_s(record.node.node_id))
                >= (min(TIDY_S, quiet_s) if self._is_proven(record) else quiet_s)
                for record in self._roster.live()
            )

        self._wait(all_quiet, DRAIN_LIMIT_S, FORCED_S)
        for record in self._roster.live():
            self._nodes.end(record, 0.0)
        self._wait(lambda: not self._roster.live(), MARGIN_S, FAREWELL_S)
        for record in self._roster.live():
            record.drop(ConnectError(record.name, "the node agent did not confirm that it exited"))

        def is_written() -> bool:
            self._report_stall()
            return not 0.0 < self._collector.stalled_s() < PATIENCE_S

        self._wait(is_written, DRAIN_LIMIT_S, FORCED_S)

    def _report_stall(self) -> None:
        """Report one time that the job waits for the local disk."""
        if not self._has_reported and self._collector.stalled_s() >= STALL_TOLD_S:
            self._has_reported = True
            self._context.console.note(
                f"{self._roster.collected}: no write to this disk succeeded for {STALL_TOLD_S:g} s; waiting "
                f"for at most {PATIENCE_S:g} s (Ctrl+C gives up)"
            )

    def _wait(self, done: Callable[[], bool], timeout_s: float, forced_s: float) -> None:
        """Wait for `done` for `timeout_s`, or for `forced_s` after the user's second request."""
        self._until(lambda: done() or self._context.forced, timeout_s)
        if self._context.forced:
            self._until(done, forced_s)

    def _until(self, done: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not done() and time.monotonic() < deadline:
            try:
                self._loop.until(done, deadline - time.monotonic())
            except LauncherError as error:
                self._context.console.note(str(error))

    def _unclean(self, record: NodeRecord) -> list[str]:
        lines = [f"NOT CLEANED on {record.name}: pid {pid} {command}" for pid, command in record.traces.left]
        if record.traces.used and not record.traces.stopped:
            lines.append(
                f"NOT CLEANED: {record.contact.error or record.name + ': it did not answer'}; the "
                f"node will stop the job's processes itself within {self._settings.limits.lease_s:g} s"
            )
        return lines

    def _is_proven(self, record: NodeRecord) -> bool:
        """Return whether every file that a node listed matches its local copy."""
        return not record.traces.used or self._collector.ledger(record.node.node_id).is_proven

    def _missing(self, record: NodeRecord) -> list[str]:
        traces = record.traces
        unread = [
            f"NOT READ from {record.name}: {counted(count, f'{kind!r} message')} could not be read"
            for kind, count in sorted(traces.unread.items())
        ]
        if self._is_proven(record):
            return unread
        ledger = self._collector.ledger(record.node.node_id)
        what = "the missing parts of its log/ and output/ are"
        if ledger.is_complete:
            left = ledger.listed - ledger.verified
            what = f"{left} of {counted(ledger.listed, 'file')} {'is' if left == 1 else 'are'}"
        place = record.delivery.trees.get(WORKSPACE) or record.node.job_dir
        return [
            *unread,
            f"NOT COLLECTED from {record.name}: {what} still on the node; copy them from {place}",
        ]
