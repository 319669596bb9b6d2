# SPDX-License-Identifier: Apache-2.0
"""Files being received into the cache; they can be read while they arrive.

A file's last byte can be read only once its digest was found right, so that a wrong file ends with the node that
received it. Belongs to the loop's thread.
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
    """The received bytes do not match their digest."""


class Incoming:
    """One file on its way.

    Attributes:
        size: bytes so far.
        published: it is in the cache.
        dropped: it will never be.
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
        """Append the next bytes.

        Raises:
            DigestError: they are not the next ones.
            OSError: the disk is full, for one.
        """
        if offset != self.size:
            raise DigestError("%s: bytes at %d arrived, %d were expected" % (self.digest, offset, self.size))
        self._hash.update(data)
        starts = range(0, len(data), _ZERO_SIZE)
        if all(data[start] for start in starts):  # nothing in it is all zeros
            starts = range(0, len(data), max(1, len(data)))
        for start in starts:
            piece = data[start : start + starts.step]
            if piece[0] or bytes(piece) != _ZEROS[: len(piece)]:  # what is all zeros stays a hole
                disk.write_at(self._fd, piece, offset + start)
        self.size += len(data)

    def publish(self) -> None:
        """Check the digest and make the file appear in the cache.

        Raises:
            DigestError: the bytes are not those of the digest.
        """
        if self._hash.hexdigest() != self.digest:
            raise DigestError(
                "%s: the bytes that arrived have digest %s" % (self.digest, self._hash.hexdigest())
            )
        os.ftruncate(self._fd, self.size)
        self._close()
        self._cache.adopt(self._aside, self.digest)
        self.published = True

    def drop(self) -> None:
        """Leave nothing behind."""
        if not self.published:
            self.dropped = True
            self._close()
            disk.remove(self._aside)

    def reader(self) -> int:
        """A descriptor of its own to read what is there with os.pread."""
        return os.dup(self._fd)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Arrivals:
    """All incoming files by digest; notifies readers that follow a file when it changes.

    Args:
        took: called when bytes have arrived.

    Attributes:
        taken: number of bytes received, without those of dropped files.
    """

    def __init__(self, cache: Cache, took: Callable[[], object] = lambda: None) -> None:
        self.taken = 0
        self._took = took
        self._cache = cache
        self._incoming: Dict[str, Incoming] = {}
        self._followers: Dict[str, List[Callable[[], object]]] = {}

    def get(self, digest: str) -> Optional[Incoming]:
        """The file, while it is on its way."""
        return self._incoming.get(digest)

    def size_of(self, digest: str) -> int:
        """Bytes of a file that have arrived, while it is on its way."""
        incoming = self._incoming.get(digest)
        return 0 if incoming is None else incoming.size

    def begin(self, digest: str) -> Incoming:
        """Begin to receive a file, again if necessary.

        Raises:
            OSError: no file can be made.
        """
        self.drop(digest)
        incoming = self._incoming[digest] = Incoming(digest, self._cache)
        return incoming

    def write(self, incoming: Incoming, offset: int, data: memoryview) -> None:
        """Append to a file; raises what `Incoming.write` does."""
        incoming.write(offset, data)
        self._count(len(data))
        self.changed(incoming.digest)

    def publish(self, incoming: Incoming) -> None:
        """A file is complete.

        Raises:
            DigestError: it is not what it should be, and is gone.
        """
        try:
            incoming.publish()
        except DigestError:
            self.drop(incoming.digest)
            raise
        self._incoming.pop(incoming.digest, None)
        self.changed(incoming.digest)

    def put(self, digest: str, data: memoryview) -> None:
        """Receive a whole small file.

        Raises:
            DigestError: the bytes are not those of the digest.
            OSError: the disk is full, for one.
        """
        if blake2b(data, digest_size=SIZE).hexdigest() != digest:
            raise DigestError("%s: other bytes arrived" % digest)
        self.drop(digest)
        self._cache.put(digest, data)
        self._count(len(data))
        self.changed(digest)

    def drop(self, digest: str) -> None:
        """Forget what has arrived of a file."""
        incoming = self._incoming.pop(digest, None)
        if incoming is not None:
            self._count(-incoming.size)
            incoming.drop()
            self.changed(digest)

    def drop_all(self) -> None:
        """Leave nothing behind."""
        for digest in list(self._incoming):
            self.drop(digest)

    def follow(self, digest: str, callback: Callable[[], object]) -> None:
        """Call back, once, when something has changed about a file."""
        self._followers.setdefault(digest, []).append(callback)

    def wake(self) -> None:
        """Notify the readers of all files."""
        for digest in list(self._followers):
            self.changed(digest)

    def _count(self, size: int) -> None:
        self.taken += size
        self._took()

    def changed(self, digest: str) -> None:
        """Notify the readers of a file."""
        for callback in self._followers.pop(digest, ()):
            callback()
