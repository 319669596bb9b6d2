# SPDX-License-Identifier: Apache-2.0
"""A journal of the requests since the last full copy of a server's state, in files that outlive the process.

    record:  head, written last | description, JSON | the arrays
    head:    magic "PDJ2" | crc of the rest of the head and of the description I | sequence number Q |
             bytes of the description I | bytes of the arrays Q                       (little-endian)

A journal survives its process, but not its machine. A request is complete if its head is complete. Requests are
numbered consecutively, and a file is named after its first request. A file that is no longer needed is reused for new
requests, because writing to allocated memory is twice as fast.

A full copy of the state is stored in the same folder: see `StateFolder`. If there is not enough room for both, training
continues without them, and saving is retried later.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from paddle.errors import PserverError
from paddle.pserver.wire.message import Frame, Message, Section
from paddle.pserver.wire.verbs import LAYOUTS, Verb
from paddle_node.contract.classes import NamedTuple, regex

_log = logging.getLogger(__name__)

HEAD = struct.Struct("<4sIQIQ")
_MAGIC = b"PDJ2"
_CHECKED = struct.Struct("<QIQ")
_NAME = regex(r"journal-(\d{16})\Z")
_MAX_PARTS = 512  # of one write; the kernel takes 1024
MIN_JOURNAL_BYTES = 64 << 20
_MAX_REQUESTS = 10_000  # in a journal; with more, the next process would take long to replay them
_RETRY_S = 60.0
_GONE = "gone"


class Head(NamedTuple):
    """The fixed-size header of a journal record: its checksum, sequence number and sizes."""

    crc: int
    sequence: int
    described: int
    nbytes: int


def encode(sequence: int, message: Message) -> tuple[bytes, list[Frame]]:
    """Encode one record; return its head, and the frames that follow it in the file."""
    m = message
    description = json.dumps(
        [
            [m.verb, m.record, m.trainer, m.session, m.request, m.stamp],
            [[section.name, section.array.dtype.str, section.array.shape] for section in m.sections],
        ]
    ).encode()
    nbytes = sum(section.array.nbytes for section in m.sections)
    checked = _CHECKED.pack(sequence, len(description), nbytes)
    crc = zlib.crc32(description, zlib.crc32(checked))
    head = HEAD.pack(_MAGIC, crc, sequence, len(description), nbytes)
    return head, [description, *(section.frame for section in m.sections if section.array.size)]


def read_head(data: bytes) -> Head | None:
    """Decode the head of a record. Return None if the bytes are not a valid head."""
    if len(data) < HEAD.size:
        return None
    magic, *rest = HEAD.unpack_from(data)
    return Head(*rest) if magic == _MAGIC else None


def decode(head: Head, description: bytes, data: bytes) -> Message | None:
    """Decode the request in a record. Return None if the record is incomplete."""
    checked = _CHECKED.pack(head.sequence, head.described, head.nbytes)
    if zlib.crc32(description, zlib.crc32(checked)) != head.crc or len(data) != head.nbytes:
        return None
    numbers, described = json.loads(description)
    sections, at = [], 0
    for name, code, shape in described:
        dtype = np.dtype(code)
        nbytes = dtype.itemsize * math.prod(shape)
        array = np.frombuffer(data[at : at + nbytes], dtype).reshape(shape)
        sections.append(Section(name, array))
        at += nbytes
    verb, fields, trainer, session, request, stamp = numbers
    record = LAYOUTS[Verb(verb)][0]._make(fields)
    return Message(record, trainer, session, request, stamp, tuple(sections))


class Journal:
    """A journal of requests in one folder. Not thread-safe; after an OSError from writing, the journal is unusable.

    Attributes:
        sequence: number of the last request.
        nbytes: number of bytes written since the last `rotate`.
    """

    def __init__(self, folder: Path) -> None:
        """Open or create a journal; existing requests are retained, and `read` yields them."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._firsts = sorted(int(m[1]) for path in folder.iterdir() if (m := _NAME.match(path.name)))
        self._file = -1
        self._free: Path | None = None
        self.sequence = 0
        self.nbytes = 0

    def append(self, message: Message) -> None:
        """Append one request to the journal. Raises OSError if it cannot be written."""
        if self._file < 0:
            self._open(self.sequence + 1)
        head, frames = encode(self.sequence + 1, message)
        end = _write(self._file, frames, self.nbytes + HEAD.size)
        _write(self._file, [head], self.nbytes)
        self.nbytes = end
        self.sequence += 1

    def rotate(self) -> None:
        """Continue in a new file, so that earlier files can be dropped later."""
        self.close()
        self.nbytes = 0

    def drop(self, sequence: int) -> None:
        """Remove the files that contain only requests up to and including number `sequence`."""
        while len(self._firsts) > 1 and self._firsts[1] <= sequence + 1:
            self._let_go(self._path(self._firsts.pop(0)))
        if self._firsts and self._file < 0 and self.sequence <= sequence:
            self._let_go(self._path(self._firsts.pop(0)))

    def read(self, after: int) -> Iterator[Message]:
        """Yield the requests after number `after`, in order, up to the first incomplete request.

        New requests are then appended after the last complete one.
        """
        self.close()
        self.sequence = after
        for first in self._firsts:
            if first > self.sequence + 1:
                break
            with open(self._path(first), "rb") as file:
                while (head := read_head(file.read(HEAD.size))) is not None:
                    if head.sequence > self.sequence + 1:
                        break
                    description, data = file.read(head.described), file.read(head.nbytes)
                    message = decode(head, description, data)
                    if message is None:
                        break
                    if head.sequence == self.sequence + 1:
                        self.sequence += 1
                        yield message
        self._firsts = [first for first in self._firsts if first <= self.sequence]

    def close(self) -> None:
        """Close the journal's file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self, first: int) -> None:
        path = self._path(first)
        if self._free is not None:
            # its old requests have past numbers, so they are not mistaken for new ones
            os.rename(self._free, path)
            self._free = None
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        self._firsts.append(first)
        self.nbytes = 0

    def _let_go(self, path: Path) -> None:
        if self._free is None:
            self._free = path
        else:
            path.unlink(missing_ok=True)

    def _path(self, first: int) -> Path:
        return self._folder / f"journal-{first:016d}"


def _write(file: int, frames: list[Frame], at: int) -> int:
    """Write frames consecutively; return the position of their end."""
    rest = [memoryview(frame).cast("B") for frame in frames if len(frame)]
    while rest:
        done = os.pwritev(file, rest[:_MAX_PARTS], at)
        at += done
        while rest and done >= len(rest[0]):
            done -= len(rest.pop(0))
        if done:
            rest[0] = rest[0][done:]
    return at


class StateFolder:
    """The folder with one server's state, which survives the process: a full copy, and a journal of later requests.

    Attributes:
        journal: None if there is not enough room.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """Open or create the folder; `clock`: monotonic seconds."""
        self.path = path
        self.journal: Journal | None = Journal(path)
        self._clock = clock
        self._retry_at = 0.0

    def check(self) -> None:
        """Check that an earlier process saved its complete state. Raises PserverError if it did not."""
        gone = self.path / _GONE
        if gone.exists():
            raise PserverError(gone.read_text(encoding="utf-8"))

    def is_long(self, limit: int, sequence: int) -> bool:
        """Return whether a new full copy is due because the journal is too long.

        Args:
            limit: maximum length of the journal in bytes.
            sequence: number of the last request in the last copy.
        """
        journal = self.journal
        return journal is not None and (journal.nbytes > limit or journal.sequence - sequence > _MAX_REQUESTS)

    def copied(self, sequence: int) -> None:
        """Drop the requests up to and including number `sequence`, which are part of a new full copy."""
        if self.journal is not None:
            self.journal.drop(sequence)
            (self.path / _GONE).unlink(missing_ok=True)

    def give_up(self, error: OSError) -> None:
        """Continue without a journal after a write error, and record its absence for the next process."""
        free = shutil.disk_usage(self.path).free
        text = (
            f"cannot save the state of this server in {self.path} ({error.strerror}; {free} bytes "
            "are free): if it were killed now, the state would be lost"
        )
        _log.warning("%s; training continues, and the next attempt is in %.0f s", text, _RETRY_S)
        self.close()
        self.journal = None
        self._retry_at = self._clock() + _RETRY_S
        try:
            for path in self.path.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
            (self.path / _GONE).write_text(text, encoding="utf-8")
        except OSError as again:
            # the next process then has no sessions and refuses trainers with an earlier one
            _log.warning("%s: %s", self.path, again)

    def try_again(self, nbytes: int) -> bool:
        """Start a new journal if a retry is due and `nbytes` bytes fit; return whether a journal was started."""
        if self._clock() < self._retry_at:
            return False
        self._retry_at = self._clock() + _RETRY_S
        if shutil.disk_usage(self.path).free < nbytes:
            return False
        self.journal = Journal(self.path)
        return True

    def close(self) -> None:
        """Close the files; their contents are retained."""
        if self.journal is not None:
            self.journal.close()
