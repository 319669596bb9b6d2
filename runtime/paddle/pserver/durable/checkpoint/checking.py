# SPDX-License-Identifier: Apache-2.0
"""Compares the files of a checkpoint with what its manifests say, beside whoever reads them already.

A large file comes from the disk once: what one of the two has read, the other finds in memory.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import threading
from collections.abc import Iterable
from pathlib import Path

from paddle.errors import CheckpointError
from paddle.pserver.durable.checkpoint.crc import crc32
from paddle.pserver.durable.checkpoint.manifest import DataFile

_READ = 8 << 20
_AHEAD = 64 << 20


def open_plain(path: Path) -> io.FileIO:
    """Open a file to read it: itself, never what a link names, nor anything that would keep us waiting.

    Raises:
        CheckpointError: it is missing, or something else.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        what = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise CheckpointError(f"{path.name}: {what}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointError(f"{path.name}: expected a file, it is none")
    return os.fdopen(descriptor, "rb", buffering=0)


def open_file(root: Path, file: DataFile) -> io.FileIO:
    """Open a file of a checkpoint, unbuffered.

    Raises:
        CheckpointError: it is missing, or of another size.
    """
    data = open_plain(root / file.path)
    size = os.fstat(data.fileno()).st_size
    if size != file.nbytes:
        data.close()
        raise CheckpointError(f"{file.path}: expected {file.nbytes} bytes, got {size}")
    return data


def compare(file: DataFile, crc: int) -> None:
    """Compare the CRC-32 of a file with its manifest's.

    Raises:
        CheckpointError: they differ.
    """
    if file.crc32 not in (None, crc):
        raise CheckpointError(f"{file.path}: damaged: expected checksum {file.crc32:08x}, got {crc:08x}")


def check(root: Path, file: DataFile) -> None:
    """Read a file and compare it with what a manifest says.

    Raises:
        CheckpointError: it is missing, or another one.
    """
    try:
        with open_file(root, file) as data:
            if file.crc32 is None:
                return
            crc, buffer, at = 0, bytearray(min(_READ, max(file.nbytes, 1))), 0
            while count := data.readinto(buffer):
                os.posix_fadvise(data.fileno(), at + count, _AHEAD, os.POSIX_FADV_WILLNEED)
                crc, at = crc32(memoryview(buffer)[:count], crc), at + count
    except OSError as error:
        raise CheckpointError(f"{file.path}: {error.strerror}") from None
    compare(file, crc)


class Checking:
    """Checks under way in a thread of their own."""

    def __init__(self, root: Path, files: Iterable[DataFile]) -> None:
        """Begin; the files are looked at in this order, each once."""
        self._root, self._files = root, list(dict.fromkeys(files))
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="checkpoint-check", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until all files were read.

        Raises:
            CheckpointError: one is missing, or another one.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            for file in self._files:
                check(self._root, file)
        except Exception as error:  # noqa: BLE001 - raised again in `finish`: what was not looked at is not whole
            self._error = error
