# SPDX-License-Identifier: Apache-2.0
"""Sends the files and links that the tailer finds, at most WINDOW bytes ahead of the launcher's writes to disk.

Both sides count every frame, including those without a body. Directories, links, renames and removals are sent before
chunks, in order. Holes are skipped. After `finish`, the rest is sent, files that have changed are read again, and all
files are listed. The launcher requests the files that differ; these are sent and listed once more.

Each row of the list is [path, kind, size, text]: "file" with its digest, "directory", "link" with its target, or "lost"
with the reason why the file cannot be collected completely.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, FrozenSet, Iterator, List, Optional, Tuple

from paddle_node.agent.files.sent_files import Tailed, inode, new_fingerprint, permissions, without_list
from paddle_node.agent.link.loop import Loop
from paddle_node.agent.link.outbox import Outbox
from paddle_node.contract.fingerprint import data_from
from paddle_node.contract.frames import WINDOW, cost, encode
from paddle_node.contract.records import read_text
from paddle_node.contract.to_agent import Paths

CHUNK = 1 << 16
MOST_LATE = 3  # how many times a file may change after its job's processes have ended
PART = 1 << 15  # bytes of rows in a frame; one row is smaller than that
REPORT_S = 0.25  # between empty parts of the list, which report that files are still being read

Row = List[Any]


class _Stage:  # importing `enum` takes longer than most modules of the agent
    WATCHING = 0  # processes may still write
    SENDING = 1  # processes have ended: the rest is sent
    PROVING = 2  # changed files are read again
    LISTING = 3  # the files are listed, and the launcher compares


class Sender:
    """The sender of one job's logs and output files to the launcher.

    Args:
        absolute: function that returns the absolute path of a collected file.

    Attributes:
        files: the files, by the path under which they are sent.
        folders: the directories, with their stat results.
        links: the links in output/, with their targets.
        problems: the paths that cannot be read.
        is_verified: whether the launcher has compared the list and requested nothing more.
        is_held: whether `next_chunk` has nothing to send for now.
    """

    def __init__(self, loop: Loop, outbox: Outbox, absolute: Callable[[str], str]) -> None:
        self.files: Dict[str, Tailed] = {}
        self.folders: Dict[str, os.stat_result] = {}
        self.links: Dict[str, str] = {}
        self.problems: Dict[str, str] = {}
        self.is_verified = self.is_held = False
        self._loop = loop
        self._outbox = outbox
        self._absolute = absolute
        self._queue: Deque[str] = deque()
        self._queued: Dict[str, None] = {}
        self._orders: Deque[bytes] = deque()
        self._unacked = 0
        self._stage = _Stage.WATCHING
        self._list: Iterator[Tuple[bytes, bytes]] = iter(())
        self._report_at = 0.0
        self._again: List[str] = []

    def enqueue(self, path: str) -> None:
        """Queue a file so that its new bytes are sent."""
        if path not in self._queued:
            self._queued[path] = None
            self._queue.append(path)

    def forget(self, path: str) -> bool:
        """Stop sending a path; return whether it was queued."""
        waited = path in self._queued
        self._queued.pop(path, None)
        return waited

    @property
    def has_orders(self) -> bool:
        """Return whether a directory, a link, a removal or a rename is waiting to be sent."""
        return bool(self._orders)

    def order(self, kind: str, **fields: Any) -> None:
        """Queue a frame (a directory, a link, a removal or a rename) that is sent before the next chunk of any file."""
        self._orders.append(encode(kind, fields))
        self._outbox.soon()

    def send_folder(self, path: str, status: os.stat_result) -> None:
        """Queue a directory with its permissions and modification time to be sent."""
        self.folders[path] = status
        mode = without_list(self._absolute(path), permissions(status))
        self.order("directory", path=path, mode=mode, mtime=_changed(status))

    def send_link(self, path: str) -> None:
        """Queue a symbolic link to be sent."""
        try:
            changed = _changed(os.lstat(self._absolute(path)))
        except OSError:
            changed = None
        self.order("link", path=path, target=self.links[path], mtime=changed)

    @property
    def is_watching(self) -> bool:
        """Return whether files may still change; they may until `finish` is called."""
        return self._stage == _Stage.WATCHING

    def finish(self) -> None:
        """Send the remaining data, then the list of all files, after all processes of the job have exited."""
        if self.is_watching:
            self._stage = _Stage.SENDING
            for path, tailed in self.files.items():
                if not tailed.is_old and (tailed.reset or tailed.offset < tailed.size):
                    self.enqueue(path)
        self._outbox.pump()

    def acked(self, count: int) -> None:
        """Handle the launcher's acknowledgement of this number of bytes, as counted by `cost`."""
        self._unacked = max(0, self._unacked - count)
        self._outbox.pump()

    def verified(self, last: bool, body: bytes) -> None:
        """Handle `verified`: send the given items again and list them; if there are none, finish.

        Raises:
            ValueError: the body is malformed.
        """
        paths = read_text(Paths, body, "verified", "the launcher").paths
        known = (self.files, self.folders, self.links)
        self._again += [path for path in paths if any(path in items for items in known)]
        if not last or self._stage != _Stage.LISTING:
            return
        self.is_verified = not self._again
        for path in self._again:
            if path in self.links:
                self.send_link(path)
            elif path in self.folders:
                self.send_folder(path, self.folders[path])
            else:
                self.files[path].rewind()
                self.enqueue(path)
        if self._again:
            self._stage = _Stage.SENDING
        self._outbox.pump()

    def next_chunk(self) -> Optional[bytes]:
        """Return the next frame, or None if there is nothing to send or the window is full."""
        while not self.is_held and self._unacked + CHUNK + cost(b"") <= WINDOW:
            if self._orders:
                return self._counted(self._orders.popleft(), b"")
            if not self._queue:
                return self._next_part()
            path = self._queue.popleft()
            if path not in self._queued:
                continue  # renamed meanwhile
            del self._queued[path]
            frame = self._chunk(path)
            if frame is not None:
                return frame
        return None

    def _next_part(self) -> Optional[bytes]:
        """Return the next frame of the list, once everything was sent."""
        if self._stage == _Stage.SENDING:
            self._stage = _Stage.PROVING
            self._loop.work(self._prove())
        for frame, body in self._list:
            return self._counted(frame, body)
        return None

    def _counted(self, frame: bytes, body: bytes) -> bytes:
        self._unacked += cost(body)
        return frame

    def _prove(self) -> Iterator[None]:
        """Reread files that changed while being sent; then list the sent files, or send those that differ."""
        has_changed = False
        for path, tailed in self.files.items():
            if not (tailed.is_old or tailed.is_proven or tailed.problem):
                yield from self._read_again(path, tailed)
                has_changed = has_changed or not (tailed.is_proven or tailed.problem)
        if has_changed:  # it may have been sent again by now, and is then not proven
            self._stage = _Stage.SENDING
        else:
            self._stage = _Stage.LISTING
            self._list = _parts(self._rows(frozenset(self._again)))
            self._again = []
        self._outbox.pump()

    def _read_again(self, path: str, tailed: Tailed) -> Iterator[None]:
        found = new_fingerprint()
        try:
            for _ in found.reading(self._absolute(path), tailed.size):
                self._report_progress()
                yield
        except OSError as error:
            tailed.problem = error.strerror or str(error)
            return
        if found.size == tailed.size and found.hexdigest() == tailed.sent.hexdigest():
            tailed.prove()
        else:
            self._send_changed(path, tailed)

    def _report_progress(self) -> None:
        """Queue an empty part of the list when it is due: the launcher stops waiting for a node that sends nothing."""
        if time.monotonic() >= self._report_at:
            self._report_at = time.monotonic() + REPORT_S
            self._list = iter((_part([], False),))
            self._outbox.soon()

    def _send_changed(self, path: str, tailed: Tailed) -> None:
        """Send a file again that another program changed after the job's processes had exited."""
        tailed.late_changes += 1
        if tailed.late_changes > MOST_LATE:
            tailed.problem = "the file keeps changing on the node during collection"
            return
        try:
            tailed.restart(os.stat(self._absolute(path)))
        except OSError as error:
            tailed.problem = error.strerror or str(error)
            return
        self.enqueue(path)

    def _rows(self, again: FrozenSet[str]) -> Iterator[Row]:
        """Yield the rows of all files, or of those that were sent again."""
        for path, tailed in self.files.items():
            if tailed.is_old or (again and path not in again):
                continue
            if tailed.problem or tailed.sent.size != tailed.size:
                yield [path, "lost", 0, tailed.problem or "the file could not be sent completely"]
            else:
                yield [path, "file", tailed.size, tailed.sent.hexdigest()]
        for path in self.folders:
            if not again or path in again:
                yield [path, "directory", 0, ""]
        for path, target in self.links.items():
            if not again or path in again:
                yield [path, "link", 0, target]
        if not again:
            for path, problem in self.problems.items():
                yield [path, "lost", 0, problem]
            for sentence in self._outbox.losses:
                yield ["", "lost", 0, sentence]

    def _chunk(self, path: str) -> Optional[bytes]:
        tailed = self.files.get(path)
        if tailed is None:
            return None
        try:
            fd = os.open(self._absolute(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if not (self.is_watching and isinstance(error, FileNotFoundError)):
                tailed.problem = error.strerror or str(error)
            return None  # the next scan detects whether it was removed or renamed
        try:
            status = os.fstat(fd)
            if inode(status) != tailed.inode or not stat.S_ISREG(status.st_mode):
                if not self.is_watching:
                    self._send_changed(path, tailed)
                return None  # replaced since: the next scan detects it
            end = status.st_size if self.is_watching else min(tailed.size, status.st_size)
            before = tailed.offset
            offset = min(data_from(fd, before, end), max(before, end))
            body = os.pread(fd, min(CHUNK, max(0, end - offset)), offset)
            tailed.add(fd, offset, body, status)
            mode = permissions(status)
            sent_mode = without_list(fd, mode)
        except OSError as error:
            tailed.problem = error.strerror or str(error)
            self._outbox.notice("cannot read %s: %s" % (path, tailed.problem))
            return None
        finally:
            os.close(fd)
        if not body and offset == before and not tailed.reset and mode == tailed.mode:
            return None
        fields = {
            "path": path,
            "offset": offset,
            "reset": tailed.reset,
            "eof": tailed.offset >= end,
            "mtime": _changed(status),
            "mode": sent_mode,
        }
        tailed.mode = mode
        tailed.reset, tailed.is_partial, tailed.problem = False, not fields["eof"], ""
        if not fields["eof"]:
            self.enqueue(path)
        return self._counted(encode("file", fields, body), body)


def _parts(rows: Iterator[Row]) -> Iterator[Tuple[bytes, bytes]]:
    """Yield the list's frames and their bodies; the final frame is marked."""
    texts: List[str] = []
    size = 0
    for row in rows:
        text = json.dumps(row, separators=(",", ":"))
        if texts and size + len(text) > PART:
            yield _part(texts, False)
            texts, size = [], 0
        texts.append(text)
        size += len(text) + 1
    yield _part(texts, True)


def _part(texts: List[str], is_last: bool) -> Tuple[bytes, bytes]:
    body = ("[%s]" % ",".join(texts)).encode()
    return encode("listed", {"last": is_last}, body), body


def _changed(status: os.stat_result) -> Optional[int]:
    """Return the modification time in ns, or None if a message's 64 bits cannot hold it (after the year 2262)."""
    return status.st_mtime_ns if abs(status.st_mtime_ns) < 1 << 63 else None
