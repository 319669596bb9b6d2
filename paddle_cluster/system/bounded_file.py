# SPDX-License-Identifier: Apache-2.0
"""Reads small files that others name: never more than a limit, and never waiting without end.

A pipe, as `--conf=<(command)` gives one, is read with a deadline; /dev/zero ends at the limit.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from pathlib import Path

PATIENCE_S = 10.0
_PIECE = 1 << 20


def read(path: Path, limit: int) -> bytes:
    """The whole of a file.

    Raises:
        OSError: it cannot be read, is larger than `limit` bytes (EFBIG), or is a pipe that nobody writes to
            for PATIENCE_S (ETIMEDOUT).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        pieces, size = list[bytes](), 0
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if not regular:
                _await(descriptor, path, deadline)
            try:
                piece = os.read(descriptor, min(_PIECE, limit + 1 - size))
            except BlockingIOError:
                continue
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise OSError(errno.EFBIG, f"has more than {limit >> 20} MiB", str(path))
    finally:
        os.close(descriptor)


def _await(descriptor: int, path: Path, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0 or not select.select([descriptor], [], [], left)[0]:
        raise OSError(errno.ETIMEDOUT, f"said nothing for {PATIENCE_S:g} s", str(path))
