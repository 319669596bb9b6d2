# SPDX-License-Identifier: Apache-2.0
"""Handles files and data of nodes: answers about the offered payload, output lines, chunks of collected files, notices.

If the payload cannot be delivered to a node, the other nodes continue: all of them finish first, so that a second run
finds their files in place.
"""

from __future__ import annotations

from paddle_cluster.connection.link import LinkLost
from paddle_cluster.errors import DispatchError
from paddle_cluster.files.collect import Collected
from paddle_cluster.files.collector_thread import Compared, FilesRefused, Stored
from paddle_cluster.files.dispatch import WORKSPACE
from paddle_cluster.files.ledger import bodies_of
from paddle_cluster.job.context import JobContext
from paddle_cluster.job.relay_run import RelayRun
from paddle_cluster.job.remarks import Remarks
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.system import clock
from paddle_cluster.text.output_events import Transferred
from paddle_cluster.text.sizes import counted, size_text
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.records import RecordError
from paddle_node.contract.to_launcher import Arrived, Committed, Failed, Lacking, Line, Notice, Relaying

LISTED = 20  # maximum number of nodes named in an error


class DispatchHandlers:
    """Handles events about the transfer of trees to the nodes."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._relays = RelayRun(context.roster)
        self._has_warned = False

    def offer(self, record: NodeRecord) -> None:
        """Offer the payload to a node, for the first time or again."""
        assert record.link is not None
        self._relays.restart(record)
        record.delivery.begin(
            self._context.payload.offer(record.node, record.link, self._relays.takes(record))
        )
        self._context.node_state(record, "dispatch")

    def answered(self, record: NodeRecord, answer: Lacking | Committed | Failed) -> None:
        """Handle a node's report that a tree lacks files, is complete, or could not be built."""
        error = record.delivery.answered(answer)
        self._warn(record)
        if record.delivery.is_over and record.delivery.error is None:
            if record.delivery.arrived:
                self._show(record, record.delivery.total)
            self._context.node_state(record, "ready")
        if error is not None and not self._context.stopping:
            self.give_up(record, error)

    def _warn(self, record: NodeRecord) -> None:
        """Show one warning about large files, as soon as a node lacks them."""
        dispatch = record.delivery.dispatches.get(WORKSPACE)
        if self._has_warned or dispatch is None:
            return
        text = self._context.payload.warning(record.name, dispatch)
        if text:
            self._has_warned = True
            self._context.console.note(text)

    def arrived(self, record: NodeRecord, arrived: Arrived) -> None:
        """Show the progress of the transfer to a node."""
        record.delivery.arrive(arrived.bytes)
        self._show(record, record.delivery.arrived)

    def _show(self, record: NodeRecord, arrived: int) -> None:
        delivery = record.delivery
        total = max(delivery.total, arrived)
        self._context.console.show(Transferred(record.node.node_id, arrived, total, delivery.bytes_per_s))

    def relaying(self, record: NodeRecord, relay: Relaying) -> None:
        """Handle a node's report that it can, or cannot, relay files to other nodes."""
        self._relays.relaying(record, relay)

    def give_up(self, record: NodeRecord, error: DispatchError) -> None:
        """Give up sending the trees to a node; the other nodes continue."""
        if record.delivery.give_up(error):
            self._context.console.note(str(error))
            self._context.node_state(record, "failed")
        self._relays.leave(record)

    def is_over(self) -> bool:
        """Advance pending transfers; return whether all have ended. Must be called regularly."""
        self._relays.advance()
        return all(record.delivery.is_over for record in self._context.roster.all())

    def finish(self) -> str:
        """Close the relays between the nodes; return a summary of the sent files, for the screen.

        Raises:
            DispatchError: the trees did not reach some nodes; the message names all of them.
        """
        self._relays.close()
        records = self._context.roster.all()
        errors = [record.delivery.error for record in records if record.delivery.error is not None]
        if errors:
            first, *others = errors
            lines = [str(first).partition(": ")[2], *(f"also {error}" for error in others[: LISTED - 1])]
            if len(others) >= LISTED:
                lines.append(f"and {counted(len(others) - LISTED + 1, 'more node')}")
            raise DispatchError(first.node, "\n  ".join(lines))
        sent = sum(
            dispatch.bytes_sent for record in records for dispatch in record.delivery.dispatches.values()
        )
        relayed_to = self._relays.relayed_to
        amount = size_text(sent) if sent else "nothing"
        text = f"{self._context.payload.describe()}: on {counted(len(records), 'node')}, {amount} sent"
        return text + (f", relayed to {counted(relayed_to, 'node')}" if relayed_to else "")


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
                f"{record.name}: {counted(len(event.again), 'file')} arrived damaged, or changed here; requesting again"
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
