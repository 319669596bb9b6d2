# SPDX-License-Identifier: Apache-2.0
"""The pieces of files: read in their order and summed up by a thread of its own, while earlier ones are used.

Every byte comes from the disk once, into a few buffers that are used again and again. What the pieces hold counts
only after the last one was asked for: then every file is what its manifest says.
"""

from __future__ import annotations

import io
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from paddle.errors import CheckpointError
from paddle.pserver.checkpoint.checking import compare, open_file
from paddle.pserver.checkpoint.crc import crc32
from paddle.pserver.checkpoint.manifest import DataFile
from paddle.pserver.checkpoint.piece import HEAD_BYTES, Piece, head_of, piece_of

_SLICE = 4 << 20
_AHEAD = 64 << 20
_BUFFERS = 3
_HEADS = 1 << 16

Buffer: TypeAlias = npt.NDArray[np.uint8]


class Read(NamedTuple):
    """A piece, and the file that it is of."""

    file: DataFile
    piece: Piece


class Reading:
    """Files being read; a context, whose end ends that. Iterate once, in one thread."""

    def __init__(self, root: Path, files: Sequence[DataFile]) -> None:
        """Begin."""
        self._root, self._files = root, files
        self._free: queue.SimpleQueue[Buffer | None] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[Read, Buffer] | CheckpointError | None] = queue.SimpleQueue()
        for _ in range(_BUFFERS):
            self._free.put(np.empty(0, np.uint8))
        self._thread = threading.Thread(target=self._work, name="checkpoint-read", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._free.put(None)
        self._thread.join()

    def __iter__(self) -> Iterator[Read]:
        """Yield all pieces; their arrays hold until the next one is asked for.

        Raises:
            CheckpointError: a file is missing, or another one.
        """
        while (found := self._full.get()) is not None:
            if isinstance(found, CheckpointError):
                raise found
            read, buffer = found
            yield read
            self._free.put(buffer)

    def _work(self) -> None:
        try:
            for file in self._files:
                with io.BufferedReader(open_file(self._root, file), _HEADS) as data:
                    if not self._read(file, _Bytes(data)):
                        return
            self._full.put(None)
        except CheckpointError as error:
            self._full.put(error)
        except (OSError, MemoryError) as error:
            self._full.put(CheckpointError(f"{file.path}: {error}"))
        finally:
            self._full.put(CheckpointError("the files were not read to their end"))  # nobody waits for ever

    def _read(self, file: DataFile, data: _Bytes) -> bool:
        """Read one file; return False if nobody wants it any more."""
        while data.at < file.nbytes:
            start = data.at
            length, nbytes = head_of(data.take(HEAD_BYTES))
            if data.at + length + nbytes > file.nbytes:
                raise CheckpointError(f"{file.path}: the piece at byte {start} is cut short")
            description = data.take(length)
            buffer = self._free.get()
            if buffer is None:
                return False
            if len(buffer) < nbytes:
                buffer = np.empty(nbytes, np.uint8)
            body = buffer[:nbytes].data
            data.fill(body)
            self._full.put((Read(file, piece_of(description, body)), buffer))
        compare(file, data.crc)
        return True


class _Bytes:
    """The bytes of a file, one after the other.

    Attributes:
        at: how many were read.
        crc: of those.
    """

    def __init__(self, file: io.BufferedReader[io.FileIO]) -> None:
        self.at = self.crc = 0
        self._file, self._descriptor = file, file.fileno()

    def take(self, count: int) -> bytes:
        data = self._file.read(count)
        self.crc, self.at = crc32(data, self.crc), self.at + len(data)
        return data

    def fill(self, body: memoryview) -> None:
        for start in range(0, len(body), _SLICE):
            part = body[start : start + _SLICE]
            os.posix_fadvise(self._descriptor, self.at + _AHEAD, _SLICE, os.POSIX_FADV_WILLNEED)
            if self._file.readinto(part) != len(part):
                raise CheckpointError("a piece of a parameter is cut short")
            self.crc, self.at = crc32(part, self.crc), self.at + len(part)
