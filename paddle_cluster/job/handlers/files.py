# SPDX-License-Identifier: Apache-2.0
"""Handles the data that nodes send: output lines for the screen, chunks of collected files, and notices."""

from __future__ import annotations

from paddle_cluster.connection.link import LinkLost
from paddle_cluster.files.collect import Collected
from paddle_cluster.files.collector_thread import Compared, FilesRefused, Stored
from paddle_cluster.files.ledger import bodies_of
from paddle_cluster.job.context import JobContext
from paddle_cluster.job.remarks import Remarks
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.system import clock
from paddle_cluster.text.sizes import counted
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.records import RecordError
from paddle_node.contract.to_launcher import Line, Notice

COLLECTED = frozenset(("file", "moved", "link", "removed", "listed"))
MOST_LINES = 1 << 20  # bytes that an agent sends at one time: a read, and the incomplete line before it


class FileHandlers:
    """Handles output lines, collected files and notices from nodes."""

    def __init__(self, context: JobContext) -> None:
        self._collector = context.collector
        self._events = context.events
        self._console = context.console
        self._roster = context.roster
        self._remarks = Remarks(context.console, context.settings.limits.lease_s)

    def line(self, record: NodeRecord, line: Line, body: bytes) -> None:
        """Show output lines of a process, or the number of its bytes that were not sent.

        Raises:
            RecordError: the process was never requested from that node.
        """
        process = self._roster.process(record, line.proc)
        if line.unsent:
            self._console.unsent(line.proc, record.name, line.unsent, line.log)
            return
        if len(body) > MOST_LINES:
            raise RecordError(f"a message has {len(body)} bytes of lines; expected at most {MOST_LINES}")
        if process is not None:
            process.write(body)
        now = clock.now()
        written = now if line.t is None else max(0.0, min(now, line.t - record.reports.clock.offset_s))
        self._console.process_line(line.proc, record.name, body, partial=line.partial, at=written)

    def collected(self, record: NodeRecord, what: Collected, body: bytes) -> None:
        """Queue a node's collected data for the disk, or compare a part of its list."""
        self._collector.take(record.node.node_id, what, body)

    def compared(self, event: Compared) -> None:
        """Request differing files of a compared list again, or let the node finish."""
        record = self._roster.nodes[event.node_id]
        if event.again:
            self._console.note(
                f"{record.name}: {counted(len(event.again), 'file')} arrived damaged; requesting again"
            )
        for body, is_last in bodies_of(event.again):
            record.send("verified", body, last=is_last)

    def stored(self, event: Stored) -> None:
        """Acknowledge chunks that are on disk, so that the node can send more."""
        if event.problem:
            self._console.note(visible(event.problem))
        if event.size:
            self._roster.nodes[event.node_id].send("ack", bytes=event.size)

    def refused(self, event: FilesRefused) -> None:
        """Handle an invalid message from a node: end its connection, since later messages may be incomplete."""
        self.refuse(self._roster.nodes[event.node_id], event.reason)

    def refuse(self, record: NodeRecord, reason: str) -> None:
        """End the connection to a node whose files cannot be stored, because no part of a file may be skipped."""
        what = visible(f"malformed file data: {reason:.300}")
        self._events.put(LinkLost(record.node.node_id, what, record.link))

    def notice(self, record: NodeRecord, notice: Notice) -> None:
        """Show a notice from a node; notices above the rate limit are only counted."""
        self._remarks.show(record, f"{record.name}: {notice.text}")
