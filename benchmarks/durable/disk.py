# SPDX-License-Identifier: Apache-2.0
"""How fast the disk itself writes and reads, from and to one buffer: nothing is computed."""

from __future__ import annotations

import os
import time
from pathlib import Path

_PIECE = 8 << 20


def written_s(folder: Path, nbytes: int) -> float:
    """Write so many random-looking bytes into a file, with an fsync; return the seconds. The file is removed."""
    path, piece = folder / "raw", os.urandom(_PIECE)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        begun = time.monotonic()
        for _ in range(max(nbytes // _PIECE, 1)):
            os.write(descriptor, piece)
        os.fsync(descriptor)
        return time.monotonic() - begun
    finally:
        os.close(descriptor)
        path.unlink()


def forget(folder: Path) -> None:
    """Have the system drop what it holds of the files below a folder in memory."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def read_s(folder: Path) -> float:
    """Read all files below a folder from the disk, one after the other; return the seconds."""
    forget(folder)
    buffer = bytearray(_PIECE)
    begun = time.monotonic()
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
                while file.readinto(buffer):
                    continue
    return time.monotonic() - begun
