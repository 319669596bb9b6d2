# SPDX-License-Identifier: Apache-2.0
"""Cuts files into the `blob` frames that bring them to a node: small files together, large ones in pieces.

Every file is digested once more while it is read: a node must not publish what nobody offered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paddle_cluster.files.package import TreeEntry
from paddle_cluster.system.digests import DIGEST_SIZE

CHUNK = 1 << 20  # bytes of a large file in one frame
SMALL = 1 << 16  # a file of so many bytes travels together with others
TOGETHER = 1 << 19  # bytes of small files in one frame, about

Blob = tuple[dict[str, Any], bytes]


class ChangedError(Exception):
    """A file is not what it was when it was hashed; says which one."""


def blobs(entries: Sequence[TreeEntry], offsets: Mapping[str, int]) -> Iterator[Blob]:
    """The frames' fields and bodies.

    Args:
        offsets: by digest, from which byte on a large file is to be sent.

    Raises:
        ChangedError: a file has changed, or cannot be read any more.
    """
    together: list[tuple[TreeEntry, bytes]] = []
    size = 0
    for entry in entries:
        try:
            if entry.size > SMALL:
                yield from _pieces(entry, _start(entry, offsets.get(entry.digest)))
                continue
            together.append((entry, _whole(entry)))
        except OSError as error:
            raise ChangedError(f"{entry.path} cannot be read any more: {error.strerror}") from error
        size += entry.size
        if size >= TOGETHER:
            yield _joined(together)
            together, size = [], 0
    if together:
        yield _joined(together)


def _joined(files: Sequence[tuple[TreeEntry, bytes]]) -> Blob:
    fields = {"files": [[entry.digest, len(data)] for entry, data in files]}
    return fields, b"".join(data for _, data in files)


def _whole(entry: TreeEntry) -> bytes:
    with entry.open() as file:
        data = file.read(entry.size) if entry.size else b""
    if hashlib.blake2b(data, digest_size=DIGEST_SIZE).hexdigest() != entry.digest:
        raise _changed(entry)
    return data


def _pieces(entry: TreeEntry, start: int) -> Iterator[Blob]:
    state = hashlib.blake2b(digest_size=DIGEST_SIZE)
    offset = 0
    with entry.open() as file:
        while offset < entry.size:
            data = file.read(min(CHUNK, entry.size - offset))
            if not data:
                raise _changed(entry)
            state.update(data)
            end = offset + len(data)
            last = end == entry.size
            if last and state.hexdigest() != entry.digest:
                raise _changed(entry)
            if end > start:
                rest = data[max(0, start - offset) :]
                yield {"digest": entry.digest, "offset": end - len(rest), "last": last}, rest
            offset = end


def _start(entry: TreeEntry, said: object) -> int:
    """The offset that a node said, if it makes sense."""
    return said if isinstance(said, int) and 0 <= said < entry.size else 0


def _changed(entry: TreeEntry) -> ChangedError:
    return ChangedError(f"{entry.path} changed while it was sent; let nothing write to it and start again")
