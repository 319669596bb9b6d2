# SPDX-License-Identifier: Apache-2.0
"""A tree of files that is being received, once its manifest has arrived, and the pieces of files in a `blob`."""

from __future__ import annotations

from typing import Dict, List, Optional, Set, Tuple

from paddle_node.agent.files.manifest import Entry, ManifestError
from paddle_node.contract.to_agent import Blob, Extras, File

Piece = Tuple[str, int, memoryview, bool]


class Tree:
    """A tree of files in transfer: its manifest, and the files that are still missing.

    Attributes:
        unpacked: the unpacked size of its files in bytes; None if the tree consists of the files themselves.
        is_wheels: whether the files are wheels, which are unpacked over each other; otherwise, the only file is a
            bundle.
        files: the sizes by digest; known once the manifest is complete.
        missing: files that were requested from other nodes and have not arrived.
        there: whether the node already has the tree.
        extras: the additions that a `commit` would bring, if the tree is built without a `commit` when nothing is
            missing.
    """

    def __init__(self, dest: str, unpacked: Optional[int] = None, is_wheels: bool = False) -> None:
        self.dest = dest
        self.unpacked = unpacked
        self.is_wheels = is_wheels
        self.entries: Dict[str, Entry] = {}
        self.files: Dict[str, int] = {}
        self.missing: Set[str] = set()
        self.failed = False
        self.there = False
        self.extras: Optional[Extras] = None

    def size(self) -> int:
        """Return the total size of all files in bytes."""
        if self.unpacked is not None:
            return self.unpacked
        return sum(entry.size for entry in self.entries.values() if isinstance(entry, File))

    def check(self) -> None:
        """Check that the files suit the kind of tree: a bundle, wheels, or the files themselves.

        Raises:
            ManifestError: a bundle has other files, or wheels have no size limit.
        """
        if self.is_wheels and self.unpacked is None:
            raise ManifestError("the unpacked size of the wheels is missing")
        if self.is_wheels:
            self.wheels()
        elif self.unpacked is not None:
            self.bundle()

    def wheels(self) -> List[Tuple[str, str]]:
        """Return the names and digests of the tree's wheels, sorted by name.

        Raises:
            ManifestError: the tree also contains other files.
        """
        found = []
        for path, entry in sorted(self.entries.items()):
            if not isinstance(entry, File) or not path.endswith(".whl") or "/" in path:
                raise ManifestError("%.200r is not a wheel" % path)
            found.append((path, entry.digest))
        return found

    def bundle(self) -> str:
        """Return the digest of the tree's only file.

        Raises:
            ManifestError: the tree does not consist of exactly one file.
        """
        digests = [entry.digest for entry in self.entries.values() if isinstance(entry, File)]
        if len(digests) != 1 or len(self.entries) != 1:
            raise ManifestError("a bundle must be a single file, got %d entries" % len(self.entries))
        return digests[0]


def pieces(asked: Blob, body: bytes) -> List[Piece]:
    """Decode a `blob` and its body into pieces: (digest, offset, bytes, last).

    Raises:
        ValueError: the message names no file, or its lengths do not match the body.
    """
    view = memoryview(body)
    if asked.files is None:
        if asked.digest is None:
            raise ValueError("blob.digest and blob.files are both missing")
        return [(asked.digest, asked.offset, view, asked.last)]
    found: List[Piece] = []
    start = 0
    for digest, size in asked.files:
        found.append((digest, 0, view[start : start + size], True))
        start += size
    if start != len(body):
        raise ValueError("expected a body of %d bytes for the listed files, got %d" % (start, len(body)))
    return found
