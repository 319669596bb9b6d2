# SPDX-License-Identifier: Apache-2.0
"""The pieces of files: read in their order and summed up by threads of their own, while earlier ones are used.

Every byte comes from the disk once, into a few blocks that are used again and again. What the pieces hold counts
only after the last one was asked for: then every file is what its manifest says.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from paddle.errors import CheckpointError
from paddle.pserver.durable.checkpoint.checking import compare, open_file
from paddle.pserver.durable.checkpoint.direct import Memory
from paddle.pserver.durable.checkpoint.input import Input, Pool
from paddle.pserver.durable.checkpoint.manifest import DataFile
from paddle.pserver.durable.checkpoint.piece import HEAD_BYTES, Piece, head_of, piece_of
from paddle.pserver.durable.checkpoint.piece_bytes import PieceBytes


class Read(NamedTuple):
    """A piece, and the file that it is of."""

    file: DataFile
    piece: Piece


class _Ready(NamedTuple):
    read: Read
    used_up: list[Memory]  # nobody needs them once this piece was used


class Reading:
    """Files being read; a context, whose end ends that. Iterate once, in one thread."""

    def __init__(self, root: Path, files: Sequence[DataFile], *, past_cache: bool = False) -> None:
        """Begin.

        Args:
            past_cache: see `Input`; where no other process of this machine reads the same files.
        """
        self._root, self._files, self._past_cache = root, files, past_cache
        self._pool = Pool()
        self._bytes = PieceBytes(self._pool)
        self._ready: queue.SimpleQueue[_Ready | CheckpointError | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="checkpoint-read", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()
        self._thread.join()

    def __iter__(self) -> Iterator[Read]:
        """Yield all pieces; their arrays hold until the next one is asked for.

        Raises:
            CheckpointError: a file is missing, or another one.
        """
        while (found := self._ready.get()) is not None:
            if isinstance(found, CheckpointError):
                raise found
            yield found.read
            for memory in found.used_up:
                self._pool.give_back(memory)

    def _work(self) -> None:
        try:
            for file in self._files:
                with open_file(self._root, file) as opened:
                    past_cache = self._past_cache and file.crc32 is not None
                    data = Input(opened.fileno(), file.nbytes, self._pool, past_cache=past_cache)
                    try:
                        self._read(file, data)
                    finally:
                        data.close()
            self._ready.put(None)
        except CheckpointError as error:
            self._ready.put(error)
        except (OSError, MemoryError) as error:
            self._ready.put(CheckpointError(f"{file.path}: {error}"))
        finally:
            self._ready.put(CheckpointError("the files were not read to their end"))  # nobody waits for ever

    def _read(self, file: DataFile, data: Input) -> None:
        found = self._bytes
        found.begin(data)
        while found.at < file.nbytes:
            start = found.at
            length, nbytes = head_of(bytes(found.take(HEAD_BYTES)))
            if found.at + length + nbytes > file.nbytes:
                raise CheckpointError(f"{file.path}: the piece at byte {start} is cut short")
            description = bytes(found.take(length))
            piece = piece_of(description, found.take(nbytes, stays=True))
            self._ready.put(_Ready(Read(file, piece), found.used_up()))
        compare(file, found.crc)
