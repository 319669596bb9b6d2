# SPDX-License-Identifier: Apache-2.0
"""Copies cached files into trees: by reflink where that works, holes as holes, in steps of the loop."""

from __future__ import annotations

import errno
import os
from typing import Iterator

from agent.files import disk

COPY_SIZE = 8 << 20
SMALL = 1 << 20  # bytes that are copied in one step


def copy_small(source: str, target: int, size: int) -> None:
    """Copy a file of `size` bytes, SMALL at most, into a new descriptor."""
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        start = 0
        while start < size:
            start += _copy_piece(fd, target, start, size - start)
    finally:
        os.close(fd)


def copy(source: str, target: int) -> Iterator[None]:
    """Copy a file into a new descriptor, a step at a time: holes as holes, by reflink where that works."""
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        os.ftruncate(target, size)
        for start, end in _data(fd, size):
            while start < end:
                start += _copy_piece(fd, target, start, min(COPY_SIZE, end - start))
                yield
    finally:
        os.close(fd)


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has data, as start and end."""
    offset = 0
    while offset < size:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
            offset = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            start, offset = offset, size  # a file system that knows no holes
        yield start, offset


def _copy_piece(source: int, target: int, offset: int, size: int) -> int:
    try:
        copied = os.copy_file_range(source, target, size, offset, offset)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        copied = 0
    if copied == 0:  # an old kernel, or two file systems
        data = os.pread(source, size, offset)
        if not data:
            raise OSError(errno.EIO, "a cached file became shorter while it was copied")
        disk.write_at(target, data, offset)
        copied = len(data)
    return copied
