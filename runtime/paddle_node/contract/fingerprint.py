# SPDX-License-Identifier: Apache-2.0
"""The incremental digest of a collected file, computed while it is sent; used by both launcher and agent.

Blocks of zeros are skipped, so that holes cost nothing and count as zeros. For every other block, its number and its
bytes are hashed. The digest does not depend on chunk boundaries.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

BLOCK = 1 << 16
DIGEST_SIZE = 16  # bytes
_PIECE = 1 << 20
_ZEROS = bytes(BLOCK)


class Fingerprint:
    """The size and digest of the beginning of one file, updated with further data.

    Args:
        hasher: a new blake2b with DIGEST_SIZE; owned by the fingerprint.

    Attributes:
        size: the number of bytes so far, holes included.
    """

    __slots__ = ("_hasher", "_is_hashed", "size")

    def __init__(self, hasher: Any) -> None:
        self.size = 0
        self._hasher = hasher
        self._is_hashed = False  # the current block has a nonzero byte

    def skip_to(self, end: int) -> None:
        """Add a hole (zeros that need not be read) up to position `end`."""
        if self._is_hashed and end > self.size:
            block_end = -(-self.size // BLOCK) * BLOCK
            self._hasher.update(_ZEROS[: min(end, block_end) - self.size])
            self._is_hashed = end <= block_end
        self.size = max(self.size, end)

    def add(self, data: bytes) -> None:
        """Add the next bytes of the file."""
        at = 0
        while at < len(data):
            inside = self.size % BLOCK
            piece = data[at : at + BLOCK - inside] if at or inside or len(data) > BLOCK else data
            self._is_hashed = self._is_hashed and inside > 0
            if not self._is_hashed and piece != _ZEROS[: len(piece)]:
                self._hasher.update(b"%d:" % (self.size // BLOCK) + _ZEROS[:inside])
                self._is_hashed = True
            if self._is_hashed:
                self._hasher.update(piece)
            self.size += len(piece)
            at += len(piece)

    def hexdigest(self) -> str:
        """Return the digest of everything added so far, as hexadecimal digits."""
        return str(self._hasher.hexdigest())

    def reading(self, path: str, end: int) -> Iterator[None]:
        """Add the content of a file up to offset `end` or the end of the file, in steps of at most 1 MiB.

        Raises:
            OSError: the file cannot be read.
        """
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            end = min(end, os.fstat(fd).st_size)
            while self.size < end:
                self.skip_to(min(end, data_from(fd, self.size, end)))
                piece = os.pread(fd, min(_PIECE, end - self.size), self.size)
                if not piece and self.size < end:
                    return  # it was truncated meanwhile
                self.add(piece)
                yield
        finally:
            os.close(fd)


def data_from(fd: int, offset: int, size: int) -> int:
    """Return the offset of the next data outside a hole; the end of the file if there is none."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:  # ENXIO: only a hole follows; other errors: no support for holes
        return max(offset, size) if error.errno == errno.ENXIO else offset
