# SPDX-License-Identifier: Apache-2.0
"""Makes a tree of a bundle: hundreds of small files that travel, are kept and are checked as one.

A bundle is, compressed by zlib: the length of a manifest (8 bytes, the most significant first), the manifest, and the
contents of its files in the manifest's order.
"""

from __future__ import annotations

import os
import zlib
from typing import Iterator

from agent.files import disk
from agent.files.manifest import File, Symlink, check_tree, parse

_LENGTH = 8


def unpack(bundle: str, folder: str) -> Iterator[None]:
    """Write the files of a bundle below an empty directory, a step at a time.

    Raises:
        OSError: the disk is full, for one.
        ValueError: it is no bundle.
    """
    with open(bundle, "rb", buffering=0) as packed:
        try:
            data = memoryview(zlib.decompress(packed.read()))
        except zlib.error as error:
            raise ValueError("a bundle cannot be unpacked: %s" % error) from error
    start = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    entries = parse(bytes(data[_LENGTH:start]))
    check_tree(entries)
    made = {""}
    for path, entry in entries.items():
        if isinstance(entry, Symlink):
            raise ValueError("a bundle has no links, got %r" % path)
        parent = path.rpartition("/")[0] if isinstance(entry, File) else path
        if parent not in made:
            os.makedirs(folder + "/" + parent, exist_ok=True)
            made.add(parent)
        if isinstance(entry, File):
            end = start + entry.size
            _write(folder + "/" + path, entry.mode, data[start:end])
            start = end
            yield
    if start != len(data):
        raise ValueError("a bundle has %d bytes, its manifest says %d" % (len(data), start))


def _write(path: str, mode: int, content: memoryview) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        disk.write_at(fd, content, 0)
    finally:
        os.close(fd)
