# SPDX-License-Identifier: Apache-2.0
"""The trees of a job as other nodes get files of them and give files to them."""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Sequence

from paddle_node.agent.files.arrivals import Arrivals
from paddle_node.agent.files.cache import Cache
from paddle_node.agent.files.tree import Tree


class SharedTrees:
    """What the relay asks about the trees, and tells them.

    Args:
        trees: those that are between manifest and commit, by name; their owner changes them.
        lacking: called with a tree that other nodes have given all to, or not all: what it still lacks.
        broken: called with a tree whose files cannot be written.

    Attributes:
        arrivals: files on their way, from whomever.
        offered: sizes of every file of the job's manifests.
        given: sizes of the files that other nodes gave, as long as a relay is open.
    """

    def __init__(
        self,
        cache: Cache,
        arrivals: Arrivals,
        trees: Dict[str, Tree],
        lacking: Callable[[str, Tree, List[str]], None],
        broken: Callable[[str, Tree, OSError], None],
    ) -> None:
        self.arrivals = arrivals
        self.offered: Dict[str, int] = {}
        self.given: Dict[str, int] = {}
        self._cache = cache
        self._trees = trees
        self._lacking = lacking
        self._broken = broken

    def request(self, names: Sequence[str]) -> Dict[str, int]:
        """Count on other nodes for what these trees lack; returns its sizes by digest, in the order of need."""
        wanted: Dict[str, int] = {}
        for name in names:
            tree = self._trees.get(name)
            if tree is None or tree.failed:
                continue
            lacking = [digest for digest, size in tree.files.items() if not self._cache.has(digest, size)]
            tree.missing = set(lacking)
            wanted.update((digest, tree.files[digest]) for digest in lacking)
            if not lacking:
                self._lacking(name, tree, [])
        return wanted

    def relayed(self, tree: Tree) -> int:
        """Bytes of a tree that other nodes gave."""
        return sum(self.given.get(digest, 0) for digest in tree.files)

    def size_of(self, digest: str) -> Optional[int]:
        """Bytes of a file that this job was offered, or None."""
        return self.offered.get(digest)

    def path_of(self, digest: str) -> Optional[str]:
        """Where a file of this job lies whole, or None."""
        size = self.offered.get(digest)
        return self._cache.path(digest) if size is not None and self._cache.has(digest, size) else None

    def expects(self, digest: str) -> bool:
        """Whether a file that is not here will yet come."""
        return any(digest in tree.files for tree in self._trees.values() if not tree.failed)

    def arrived(self, digest: str, size: int) -> None:
        """Another node gave a file."""
        self.given[digest] = size
        for name, tree in list(self._trees.items()):
            if digest in tree.missing:
                tree.missing.discard(digest)
                if not tree.missing:
                    self._lacking(name, tree, [])

    def fetched(self) -> None:
        """Other nodes gave what they could."""
        for name, tree in list(self._trees.items()):
            if tree.missing and not tree.failed:
                lacking = [digest for digest in tree.files if digest in tree.missing]
                tree.missing = set()
                self._lacking(name, tree, lacking)

    def not_stored(self, error: OSError) -> None:
        """What another node gave could not be written."""
        for name, tree in list(self._trees.items()):
            if tree.missing and not tree.failed:
                self._broken(name, tree, error)
