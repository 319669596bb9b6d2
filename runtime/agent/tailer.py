# SPDX-License-Identifier: Apache-2.0
"""Sends the files of the collected directories as they grow.

A file that shrinks, is replaced, or is rewritten in place is sent again from its start (`reset`). A symlink
to a file inside the job directory is sent under the link's name, and the file it points to is then not sent
twice. Never more than WINDOW bytes travel unacknowledged.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections import deque
from typing import Callable, Deque, Dict, Iterator, List, Optional, Tuple

from agent.loop import Loop, Timer
from agent.protocol import encode

CHUNK = 1 << 16
WINDOW = 4 << 20
SCAN_S = 0.25
IDLE_SCAN_S = 1.0
SCAN_SHARE = 10  # a scan may take one tenth of the time
POKE_S = 0.03
SAMPLE = 4 << 10
LOG_DIR = "log"


class Tailed:
    """How far one file was sent.

    Attributes:
        head, last: digests of up to SAMPLE bytes at the start and before `offset`, to notice a rewrite.
    """

    def __init__(self, status: os.stat_result) -> None:
        self.identity = (status.st_dev, status.st_ino)
        self.changed = status.st_mtime_ns
        self.offset = 0
        self.reset = True
        self.head = b""
        self.last = b""

    def restart(self, status: os.stat_result) -> None:
        """Send it again from its start."""
        self.__init__(status)  # type: ignore[misc]


class Tailer:
    """Watches the collected directories of one job directory.

    Args:
        wake: called when there is something to send.
        tell: takes a sentence for the user.
    """

    def __init__(
        self, loop: Loop, job_dir: str, wake: Callable[[], None], tell: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._job_dir = os.path.realpath(job_dir)
        self._wake = wake
        self._tell = tell
        self._dirs: List[str] = []
        self._files: Dict[str, Tailed] = {}
        self._queue: Deque[str] = deque()
        self._queued: Dict[str, None] = {}
        self._unacked = 0
        self._wait_s = SCAN_S
        self._timer: Optional[Timer] = None
        self._poke_timer: Optional[Timer] = None
        self._poked: Dict[str, None] = {}

    def watch(self, dirs: List[str]) -> None:
        """Begin; files that are there already count as known and are sent only once they change."""
        self._dirs = dirs
        for path, status in self._listing():
            tailed = Tailed(status)
            tailed.offset = status.st_size
            self._files[path] = tailed
        self._timer = self._loop.after(SCAN_S, self._scan_again)

    def poke(self, path: str) -> None:
        """Say that a file was written just now; spares it the wait for the next scan."""
        self._poked[path] = None
        if self._poke_timer is None:
            self._poke_timer = self._loop.after(POKE_S, self._look_at_poked)

    def acked(self, count: int) -> None:
        """The launcher has stored so many bytes."""
        self._unacked = max(0, self._unacked - count)
        self._wake()

    def settled(self) -> bool:
        """Look now; True when everything was sent."""
        self.scan()
        return not self._queue

    def next_chunk(self) -> Optional[bytes]:
        """The next `file` frame, or None when there is nothing or no credit."""
        while self._queue and self._unacked + CHUNK <= WINDOW:
            path = self._queue.popleft()
            del self._queued[path]
            frame = self._chunk(path)
            if frame is not None:
                return frame
        return None

    def scan(self) -> bool:
        """Look at every file; True when something changed."""
        changed = False
        seen = set()
        for path, status in self._listing():
            seen.add(path)
            changed = self._compare(path, status) or changed
        for path in [path for path in self._files if path not in seen]:
            del self._files[path]
            self._tell_of_log(path, "was removed; what was sent of it stays")
        if changed:
            self._wake()
        return changed

    def _scan_again(self) -> None:
        began = time.monotonic()
        changed = self.scan()
        took = time.monotonic() - began
        self._wait_s = SCAN_S if changed else min(self._wait_s * 2, IDLE_SCAN_S)
        self._timer = self._loop.after(max(self._wait_s, took * SCAN_SHARE), self._scan_again)

    def _look_at_poked(self) -> None:
        self._poke_timer = None
        poked, self._poked = self._poked, {}
        for path in poked:
            try:
                status = os.stat(self._absolute(path), follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                self._compare(path, status)
        self._wake()

    def _listing(self) -> Iterator[Tuple[str, os.stat_result]]:
        """Every file to send, once: relative path and status."""
        plain: Dict[str, Tuple[str, os.stat_result]] = {}
        linked = set()
        todo = list(self._dirs)
        while todo:
            relative = todo.pop()
            try:
                entries = list(os.scandir(self._absolute(relative)))
            except OSError:
                continue  # not made yet, or removed meanwhile
            for entry in entries:
                path = relative + "/" + entry.name
                try:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(path)
                    elif entry.is_symlink():
                        target = self._inside(entry.path)
                        if target is not None:
                            linked.add(target)
                            yield path, os.stat(target)
                    elif entry.is_file(follow_symlinks=False):
                        plain[entry.path] = (path, entry.stat(follow_symlinks=False))
                except OSError:
                    continue  # removed meanwhile
        for absolute, listed in plain.items():
            if absolute not in linked:
                yield listed

    def _inside(self, link: str) -> Optional[str]:
        target = os.path.realpath(link)
        if not target.startswith(self._job_dir + "/"):
            return None
        return target if stat.S_ISREG(os.stat(target).st_mode) else None

    def _compare(self, path: str, status: os.stat_result) -> bool:
        tailed = self._files.get(path)
        if tailed is None:
            self._files[path] = Tailed(status)
        elif tailed.identity != (status.st_dev, status.st_ino):
            tailed.restart(status)
            self._tell_of_log(path, "was replaced; the new one is sent from its start")
        elif status.st_size < tailed.offset:
            tailed.restart(status)
            self._tell_of_log(path, "was truncated; it is sent again from its start")
        elif status.st_mtime_ns != tailed.changed and (
            tailed.reset or self._was_rewritten(path, tailed, status)
        ):
            tailed.restart(status)
        elif status.st_size == tailed.offset:
            tailed.changed = status.st_mtime_ns
            return False
        tailed = self._files[path]
        tailed.changed = status.st_mtime_ns
        if path not in self._queued:
            self._queued[path] = None
            self._queue.append(path)
        return True

    def _was_rewritten(self, path: str, tailed: Tailed, status: os.stat_result) -> bool:
        in_log = path.startswith(LOG_DIR + "/")
        if tailed.offset == 0 or (in_log and status.st_size > tailed.offset and tailed.head):
            return False  # logs grow; reading them again at each line would cost too much
        if not in_log and status.st_size == tailed.offset:
            return True  # same size, written again: nothing short of reading it all would tell
        try:
            with open(self._absolute(path), "rb") as file:
                head = file.read(min(SAMPLE, tailed.offset))
                file.seek(max(0, tailed.offset - SAMPLE))
                last = file.read(min(SAMPLE, tailed.offset))
        except OSError:
            return False
        return (_digest(head), _digest(last)) != (tailed.head, tailed.last)

    def _chunk(self, path: str) -> Optional[bytes]:
        tailed = self._files.get(path)
        if tailed is None:
            return None
        try:
            fd = os.open(self._absolute(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            status = os.fstat(fd)
            if (status.st_dev, status.st_ino) != tailed.identity or not stat.S_ISREG(status.st_mode):
                return None  # replaced since: the next scan sees it
            body = os.pread(fd, CHUNK, tailed.offset)
            end = tailed.offset + len(body)
            self._sample(fd, tailed, end)
        except OSError as error:
            self._tell("%s cannot be read: %s" % (path, error.strerror))
            return None
        finally:
            os.close(fd)
        if not body and not tailed.reset:
            return None
        fields = {"path": path, "offset": tailed.offset, "reset": tailed.reset, "eof": end >= status.st_size}
        tailed.offset, tailed.reset = end, False
        self._unacked += len(body)
        if not fields["eof"]:
            self._queued[path] = None
            self._queue.append(path)
        return encode("file", fields, body)

    def _sample(self, fd: int, tailed: Tailed, end: int) -> None:
        if tailed.offset < SAMPLE:
            tailed.head = _digest(os.pread(fd, min(SAMPLE, end), 0))
        start = max(0, end - SAMPLE)
        tailed.last = _digest(os.pread(fd, end - start, start))

    def _absolute(self, path: str) -> str:
        return self._job_dir + "/" + path

    def _tell_of_log(self, path: str, what: str) -> None:
        if path.startswith(LOG_DIR + "/"):
            self._tell("%s %s" % (path, what))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
