# SPDX-License-Identifier: Apache-2.0
"""Measures how fast the disk writes and reads with one buffer, and how fast memory is allocated, without any
computation."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import numpy as np

from paddle.pserver.durable.checkpoint.disk import go_past_cache, map_block

_PIECE = 8 << 20


def written_s(folder: Path, nbytes: int, *, past_cache: bool) -> float:
    """Write `nbytes` random-looking bytes into a file, with an fsync; return the seconds. The file is removed."""
    path, piece = folder / "raw", map_block(_PIECE)
    piece[:] = np.frombuffer(os.urandom(_PIECE), np.uint8)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if past_cache:
            go_past_cache(descriptor)
        begun = time.monotonic()
        for _ in range(max(nbytes // _PIECE, 1)):
            os.write(descriptor, piece.data)
        os.fsync(descriptor)
        return time.monotonic() - begun
    finally:
        os.close(descriptor)
        path.unlink()


def forget(folder: Path) -> None:
    """Drop the system's cache of the files below a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def read_s(folder: Path, *, past_cache: bool) -> float:
    """Read all files below a folder from the disk, one after the other; return the seconds."""
    forget(folder)
    buffer = map_block(_PIECE)
    begun = time.monotonic()
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb", buffering=0) as file:
                if past_cache:
                    go_past_cache(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
                while file.readinto(buffer.data):
                    continue
    return time.monotonic() - begun


def memory_s(nbytes: int) -> float:
    """Allocate untouched memory of `nbytes` from the system; return the seconds."""
    memory = map_block(nbytes)
    begun = time.monotonic()
    memory[:: mmap.PAGESIZE] = 1
    return time.monotonic() - begun
