# SPDX-License-Identifier: Apache-2.0
"""What the job does with what comes back: lines for the screen, chunks of files, remarks of a node."""

from __future__ import annotations

from paddle_cluster.connection.link import LinkLost, MessageEvent
from paddle_cluster.files.collector_thread import Compared, FilesRefused, Stored
from paddle_cluster.files.ledger import bodies_of
from paddle_cluster.job.context import JobContext
from paddle_cluster.job.remarks import Remarks
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.system import clock
from paddle_cluster.text.fields import LARGEST, FieldError, flag, line, real, text, whole, whole_or_none
from paddle_cluster.text.sizes import counted
from paddle_cluster.text.wrapping import visible

COLLECTED = frozenset(("file", "moved", "link", "removed", "listed"))
_LINE_SHOWN = 300  # characters of the last line
_LINE_READ = 2048  # bytes
MOST_LINES = 1 << 20  # bytes that an agent shows at once: a read, and the line that was open before it


class FileHandlers:
    """Logs and output."""

    def __init__(self, context: JobContext) -> None:
        self._collector = context.collector
        self._events = context.events
        self._console = context.console
        self._roster = context.roster
        self._remarks = Remarks(context.console, context.settings.limits.lease_s)

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
            process.live(last_line=_last_line(event.body))
        partial = flag(fields.get("partial"), "partial")
        self._console.process_line(name, record.name, event.body, partial=partial, at=_moment(record, event))

    def file(self, record: NodeRecord, event: MessageEvent) -> None:
        """The next bytes of a file under log/ or output/."""
        fields = event.fields
        self._collector.store(
            record.node.node_id,
            text(fields.get("path"), "path"),
            whole(fields.get("offset"), "offset"),
            flag(fields.get("reset"), "reset"),
            event.body,
            flag(fields.get("eof"), "eof", True),
            _mtime_ns(event),
        )

    def moved(self, record: NodeRecord, event: MessageEvent) -> None:
        """A log was renamed on its node."""
        path, to = event.fields.get("path"), event.fields.get("to")
        self._collector.move(record.node.node_id, text(path, "path"), text(to, "to"))

    def link(self, record: NodeRecord, event: MessageEvent) -> None:
        """A link in output/."""
        path, to = event.fields.get("path"), event.fields.get("target")
        self._collector.link(record.node.node_id, text(path, "path"), text(to, "target"), _mtime_ns(event))

    def removed(self, record: NodeRecord, event: MessageEvent) -> None:
        """A link is gone, or a file that was sent in part."""
        self._collector.remove(record.node.node_id, text(event.fields.get("path"), "path"))

    def listed(self, record: NodeRecord, event: MessageEvent) -> None:
        """A part of what a node has collected, with digests."""
        self._collector.compare(record.node.node_id, event.body, flag(event.fields.get("last"), "last", True))

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
        """A node sent what no agent sends: its connection ends, since what follows cannot be trusted to be whole."""
        self.refuse(self._roster.nodes[event.node_id], event.reason)

    def refuse(self, record: NodeRecord, reason: str) -> None:
        """End the connection of a node whose files cannot be taken: no piece of a file is ever left out."""
        what = visible(f"malformed file data: {reason:.300}")
        self._events.put(LinkLost(record.node.node_id, what, record.link))

    def notice(self, record: NodeRecord, event: MessageEvent) -> None:
        """A remark of the node; too many are counted instead of shown."""
        self._remarks.show(record, f"{record.name}: {line(event.fields.get('text'), 'text')}")


def _mtime_ns(event: MessageEvent) -> int | None:
    """When a file or link was modified, also before 1970."""
    return whole_or_none(event.fields.get("mtime"), "mtime", least=-LARGEST)


def _moment(record: NodeRecord, event: MessageEvent) -> float:
    """When a line was written, on our time line; never in the future."""
    now = clock.now()
    if event.fields.get("t") is None:
        return now
    written = real(event.fields["t"], "t", least=0.0) - record.said.clock.offset_s
    return max(0.0, min(now, written))


def _last_line(body: bytes) -> str:
    line = body[-_LINE_READ:].rstrip().rpartition(b"\n")[2]
    return visible(line.decode("utf-8", "backslashreplace").rpartition("\r")[2])[:_LINE_SHOWN]
