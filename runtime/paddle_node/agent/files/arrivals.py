# SPDX-License-Identifier: Apache-2.0
"""Receives files into the cache; their content can be relayed before they are complete.

The last byte of a file becomes readable only after its digest has been verified, so that a corrupt file spreads no
further than the node that received it. Used only by the loop's thread.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, List, Optional

from paddle_node.agent.files import disk
from paddle_node.agent.files.cache import Cache
from paddle_node.agent.files.digests import SIZE, blake2b

_ZERO_SIZE = 1 << 16
_ZEROS = bytes(_ZERO_SIZE)


class DigestError(Exception):
    """Raised when received bytes do not match their digest."""


class Incoming:
    """A file that is being received, written to a temporary file in the cache.

    Attributes:
        size: bytes received so far.
        published: whether the file is in the cache.
        dropped: whether the file was discarded and will not be published.
    """

    def __init__(self, digest: str, cache: Cache) -> None:
        self.digest = digest
        self.size = 0
        self.published = False
        self.dropped = False
        self._cache = cache
        self._hash = blake2b(digest_size=SIZE)
        self._aside = cache.aside()
        self._fd = os.open(self._aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, offset: int, data: memoryview) -> None:
        """Append bytes, which must begin at the number of bytes received so far.

        Raises:
            DigestError: the bytes do not follow those received so far.
            OSError: for example, the disk is full.
        """
        if offset != self.size:
            raise DigestError(
                "%s: received bytes at offset %d, expected offset %d" % (self.digest, offset, self.size)
            )
        self._hash.update(data)
        starts = range(0, len(data), _ZERO_SIZE)
        if all(data[start] for start in starts):  # no block is all zeros
            starts = range(0, len(data), max(1, len(data)))
        for start in starts:
            piece = data[start : start + starts.step]
            if piece[0] or bytes(piece) != _ZEROS[: len(piece)]:  # a block of zeros stays a hole
                disk.write_at(self._fd, piece, offset + start)
        self.size += len(data)

    def publish(self) -> None:
        """Verify the digest and move the file into the cache.

        Raises:
            DigestError: the bytes do not match the digest.
        """
        if self._hash.hexdigest() != self.digest:
            raise DigestError("%s: the received bytes have digest %s" % (self.digest, self._hash.hexdigest()))
        os.ftruncate(self._fd, self.size)
        self._close()
        self._cache.adopt(self._aside, self.digest)
        self.published = True

    def drop(self) -> None:
        """Discard the file; nothing remains on disk."""
        if not self.published:
            self.dropped = True
            self._close()
            disk.remove(self._aside)

    def reader(self) -> int:
        """Return a new descriptor for reading the received bytes with os.pread."""
        return os.dup(self._fd)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Arrivals:
    """The files that are being received, by digest; readers are notified of their progress.

    Args:
        took: function that is called when bytes have arrived.

    Attributes:
        taken: the number of bytes received, not counting dropped files.
    """

    def __init__(self, cache: Cache, took: Callable[[], object] = lambda: None) -> None:
        self.taken = 0
        self._took = took
        self._cache = cache
        self._incoming: Dict[str, Incoming] = {}
        self._followers: Dict[str, List[Callable[[], object]]] = {}

    def get(self, digest: str) -> Optional[Incoming]:
        """Return the file with this digest if it is being received, otherwise None."""
        return self._incoming.get(digest)

    def size_of(self, digest: str) -> int:
        """Return how many bytes of a file have been received."""
        incoming = self._incoming.get(digest)
        return 0 if incoming is None else incoming.size

    def begin(self, digest: str) -> Incoming:
        """Start receiving a file, or restart it.

        Raises:
            OSError: the file cannot be created.
        """
        self.drop(digest)
        incoming = self._incoming[digest] = Incoming(digest, self._cache)
        return incoming

    def write(self, incoming: Incoming, offset: int, data: memoryview) -> None:
        """Append bytes to a file. Raises DigestError or OSError, like `Incoming.write`."""
        incoming.write(offset, data)
        self._count(len(data))
        self.changed(incoming.digest)

    def publish(self, incoming: Incoming) -> None:
        """Verify a complete file and move it into the cache.

        Raises:
            DigestError: the file does not match its digest, and was removed.
        """
        try:
            incoming.publish()
        except DigestError:
            self.drop(incoming.digest)
            raise
        self._incoming.pop(incoming.digest, None)
        self.changed(incoming.digest)

    def put(self, digest: str, data: memoryview) -> None:
        """Verify a small file and add it to the cache.

        Raises:
            DigestError: the bytes do not match the digest.
            OSError: for example, the disk is full.
        """
        if blake2b(data, digest_size=SIZE).hexdigest() != digest:
            raise DigestError("%s: received different bytes" % digest)
        self.drop(digest)
        self._cache.put(digest, data)
        self._count(len(data))
        self.changed(digest)

    def drop(self, digest: str) -> None:
        """Discard the received bytes of a file."""
        incoming = self._incoming.pop(digest, None)
        if incoming is not None:
            self._count(-incoming.size)
            incoming.drop()
            self.changed(digest)

    def drop_all(self) -> None:
        """Discard all incoming files."""
        for digest in list(self._incoming):
            self.drop(digest)

    def follow(self, digest: str, callback: Callable[[], object]) -> None:
        """Call back once, when the state of a file next changes."""
        self._followers.setdefault(digest, []).append(callback)

    def wake(self) -> None:
        """Notify all readers that wait for more bytes of any file."""
        for digest in list(self._followers):
            self.changed(digest)

    def _count(self, size: int) -> None:
        self.taken += size
        self._took()

    def changed(self, digest: str) -> None:
        """Notify the readers that wait for more bytes of this file."""
        for callback in self._followers.pop(digest, ()):
            callback()
