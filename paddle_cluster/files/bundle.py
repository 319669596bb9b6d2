# SPDX-License-Identifier: Apache-2.0
"""A tree of hundreds of small files as one: what travels, is kept and is checked on a node is a single file.

A bundle is, compressed by zlib: the length of the tree's manifest (8 bytes, the most significant first), the manifest,
and the contents of its files in the manifest's order. It is kept for the next job that sends the same tree.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

from paddle_cluster.errors import WorkspaceError
from paddle_cluster.files.package import Package, TreeEntry
from paddle_cluster.system import file_cache
from paddle_cluster.system.digests import DIGEST_SIZE

NAME = "bundle"
_KEPT_AS = "bundle-2"  # the form, in the names of those that are kept
_LENGTH = 8


@dataclass(frozen=True)
class Bundle:
    """A tree, and the file that it travels as.

    Attributes:
        tree: what it is on a node once it is unpacked.
        package: a tree of that one file.
    """

    tree: Package
    package: Package

    @property
    def unpacked_bytes(self) -> int:
        """What it takes on a node: the file and all that comes of it."""
        return self.tree.total_bytes + self.package.total_bytes


def bundle(tree: Package, folder: Path) -> Bundle:
    """Pack a tree without links, or take what an earlier job packed.

    Args:
        folder: where bundles are kept; one that cannot be written costs the next job time, nothing else.

    Raises:
        WorkspaceError: a file cannot be read, or has just changed.
    """
    path = folder / f"{tree.digest}.{_KEPT_AS}"
    packed = file_cache.load(path)
    if packed is None:
        packed = _pack(tree)
        file_cache.keep(path, packed)
    digest = _digest(packed)
    return Bundle(tree, Package((TreeEntry(NAME, 0o600, len(packed), digest, content=packed),)))


def _pack(tree: Package) -> bytes:
    manifest = json.dumps([entry.manifest_item() for entry in tree.entries], separators=(",", ":")).encode()
    parts = [len(manifest).to_bytes(_LENGTH, "big"), manifest]
    for entry in tree.files:
        try:
            content = Path(entry.source).read_bytes()
        except OSError as error:
            raise WorkspaceError(f"{entry.source} cannot be read: {error.strerror}") from error
        if _digest(content) != entry.digest:
            raise WorkspaceError(f"{entry.source} changes just now; start again")
        parts.append(content)
    return zlib.compress(b"".join(parts))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=DIGEST_SIZE).hexdigest()
