# SPDX-License-Identifier: Apache-2.0
"""One tree between its manifest and its commit, and the pieces of files that a `blob` brings for it."""

from __future__ import annotations

from typing import Dict, List, Optional, Set, Tuple

from paddle_node.agent.files.manifest import Entry, ManifestError
from paddle_node.contract.to_agent import Blob, Extras, File

Piece = Tuple[str, int, memoryview, bool]


class Tree:
    """What is known of one tree.

    Attributes:
        unpacked: what its files are unpacked to, in bytes; None: it is built of its files.
        is_wheels: its files are wheels, which are unpacked over each other; else its only file is a bundle.
        files: sizes by digest; known once the manifest is complete.
        missing: what other nodes are asked for and has not come.
        there: the node has it already.
        extras: what a `commit` would add, if the tree is to be built without one when nothing is lacking.
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
        """Bytes of all files."""
        if self.unpacked is not None:
            return self.unpacked
        return sum(entry.size for entry in self.entries.values() if isinstance(entry, File))

    def check(self) -> None:
        """Check that the files can be what they are meant to be.

        Raises:
            ManifestError: a bundle with other files, or wheels that have no bound.
        """
        if self.is_wheels and self.unpacked is None:
            raise ManifestError("wheels without their unpacked size")
        if self.is_wheels:
            self.wheels()
        elif self.unpacked is not None:
            self.bundle()

    def wheels(self) -> List[Tuple[str, str]]:
        """Names and digests of its files, in the order of their names.

        Raises:
            ManifestError: something else is among them.
        """
        found = []
        for path, entry in sorted(self.entries.items()):
            if not isinstance(entry, File) or not path.endswith(".whl") or "/" in path:
                raise ManifestError("%.200r is not a wheel" % path)
            found.append((path, entry.digest))
        return found

    def bundle(self) -> str:
        """The digest of its only file.

        Raises:
            ManifestError: it has others.
        """
        digests = [entry.digest for entry in self.entries.values() if isinstance(entry, File)]
        if len(digests) != 1 or len(self.entries) != 1:
            raise ManifestError("a bundle is one file, got %d entries" % len(self.entries))
        return digests[0]


def pieces(asked: Blob, body: bytes) -> List[Piece]:
    """What a `blob` brings: (digest, offset, bytes, last) for each file.

    Raises:
        ValueError: it names no file, or other bytes than came.
    """
    view = memoryview(body)
    if asked.files is None:
        if asked.digest is None:
            raise ValueError("blob.digest is missing, and blob.files too")
        return [(asked.digest, asked.offset, view, asked.last)]
    found: List[Piece] = []
    start = 0
    for digest, size in asked.files:
        found.append((digest, 0, view[start : start + size], True))
        start += size
    if start != len(body):
        raise ValueError("files of %d bytes in a body of %d" % (start, len(body)))
    return found
