# SPDX-License-Identifier: Apache-2.0
"""What the job does with what comes back: lines for the screen, chunks of files, remarks of a node."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from launcher.connection.link import LinkLost, MessageEvent
from launcher.files.collector_thread import Compared, FilesRefused, Stored
from launcher.files.ledger import bodies_of
from launcher.job.context import JobContext
from launcher.nodes.handshake import clock_of
from launcher.nodes.node_record import NodeRecord
from launcher.system import clock
from launcher.system.rate_limit import RateLimit
from launcher.text.fields import FieldError, flag, line, text, whole
from launcher.text.sizes import counted
from launcher.text.wrapping import visible

REMARKS = 50  # of a node at once
REMARKS_A_SECOND = 1.0
MOST_LINES = 1 << 20  # bytes that an agent shows at once: a read, and the line that was open before it


class FileHandlers:
    """Logs and output."""

    def __init__(self, context: JobContext) -> None:
        self._collector = context.collector
        self._events = context.events
        self._console = context.console
        self._roster = context.roster
        self._remarks: dict[int, RateLimit] = {}

    def line(self, record: NodeRecord, event: MessageEvent) -> None:
        """Lines of a process, or how many bytes of them did not come."""
        fields = event.fields
        name = self._roster.known(record, fields["proc"])
        unsent = whole(fields.get("unsent"), "unsent", otherwise=0)
        if unsent:
            self._console.unsent(name, record.name, unsent, line(fields.get("log"), "log", "its log"))
            return
        if len(event.body) > MOST_LINES:
            raise FieldError(f"lines of {len(event.body)} bytes at once")
        process = self._roster.process(record, fields["proc"])
        if process is not None:
            process.speak()
        partial = flag(fields.get("partial"), "partial")
        self._console.process_line(name, record.name, event.body, partial=partial, at=_moment(record, event))

    def file(self, record: NodeRecord, event: MessageEvent) -> None:
        """The next bytes of a file under log/ or output/."""
        fields = event.fields
        with self._ending(record):
            self._collector.store(
                record.node.node_id,
                text(fields.get("path"), "path"),
                whole(fields.get("offset"), "offset"),
                flag(fields.get("reset"), "reset"),
                event.body,
                flag(fields.get("eof"), "eof", True),
            )

    def moved(self, record: NodeRecord, event: MessageEvent) -> None:
        """A log was renamed on its node."""
        path, to = event.fields.get("path"), event.fields.get("to")
        with self._ending(record):
            self._collector.move(record.node.node_id, text(path, "path"), text(to, "to"))

    def link(self, record: NodeRecord, event: MessageEvent) -> None:
        """A link in output/."""
        path, to = event.fields.get("path"), event.fields.get("target")
        with self._ending(record):
            self._collector.link(record.node.node_id, text(path, "path"), text(to, "target"))

    def removed(self, record: NodeRecord, event: MessageEvent) -> None:
        """A link is gone, or a file that was sent in part."""
        with self._ending(record):
            self._collector.remove(record.node.node_id, text(event.fields.get("path"), "path"))

    def listed(self, record: NodeRecord, event: MessageEvent) -> None:
        """Compare a part of a node's list of files and digests."""
        with self._ending(record):
            self._collector.compare(
                record.node.node_id, event.body, flag(event.fields.get("last"), "last", True)
            )

    def compared(self, event: Compared) -> None:
        """Request differing files of a compared list again, or let the node finish."""
        record = self._roster.nodes[event.node_id]
        if event.again:
            self._console.note(
                f"{record.name}: {counted(len(event.again), 'file')} arrived damaged; requested again"
            )
        for body, is_last in bodies_of(event.again):
            record.send("verified", body, last=is_last)

    def stored(self, event: Stored) -> None:
        """Chunks are on disk: the node may send more."""
        if event.problem:
            self._console.note(visible(event.problem))
        if event.size:
            self._roster.nodes[event.node_id].send("ack", bytes=event.size)

    def refused(self, event: FilesRefused) -> None:
        """End the connection of a node that sent malformed data: later files may be incomplete."""
        self._end(self._roster.nodes[event.node_id], event.reason)

    @contextlib.contextmanager
    def _ending(self, record: NodeRecord) -> Iterator[None]:
        """End the connection of a node whose files cannot be taken: no piece of a file is ever left out."""
        try:
            yield
        except FieldError as error:
            self._end(record, str(error))

    def _end(self, record: NodeRecord, reason: str) -> None:
        what = visible(f"malformed file data: {reason:.300}")
        self._events.put(LinkLost(record.node.node_id, what, record.link))

    def notice(self, record: NodeRecord, event: MessageEvent) -> None:
        """Show a message of the node; above the rate limit, count it instead."""
        said = line(event.fields.get("text"), "text")
        limit = self._remarks.setdefault(record.node.node_id, RateLimit(REMARKS, REMARKS_A_SECOND))
        refused = limit.refused
        if not limit.take():
            if not refused:
                self._console.note(f"{record.name}: it sends messages too fast; some are not shown")
            return
        if refused:
            limit.refused = 0
            self._console.note(f"{record.name}: {counted(refused, 'message')} not shown")
        self._console.note(f"{record.name}: {said}")


def _moment(record: NodeRecord, event: MessageEvent) -> float:
    """When a line was written, on our time line; never in the future."""
    now = clock.now()
    if event.fields.get("t") is None:
        return now
    written = clock_of(event.fields["t"]) - record.said.clock.offset_s
    return max(0.0, min(now, written))
