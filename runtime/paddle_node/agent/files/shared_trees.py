# SPDX-License-Identifier: Apache-2.0
"""The relay's view of a job's trees: the files that other nodes can fetch, and the files that they provide."""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Sequence

from paddle_node.agent.files.arrivals import Arrivals
from paddle_node.agent.files.cache import Cache
from paddle_node.agent.files.tree import Tree


class SharedTrees:
    """The relay's interface to the trees of a job.

    Args:
        trees: the trees between manifest and commit, by name; changed by their owner.
        lacking: function that is called with a tree and its missing files when no other node can provide more of them.
        broken: function that is called with a tree whose files cannot be written.

    Attributes:
        arrivals: files being received, from any source.
        offered: the size of every file in the job's manifests.
        given: the sizes of the files that other nodes provided, while a relay is open.
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
        """Start requesting the missing files of these trees from other nodes.

        Return sizes by digest, in order of need.
        """
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
        """Return the number of bytes of a tree that other nodes have provided."""
        return sum(self.given.get(digest, 0) for digest in tree.files)

    def size_of(self, digest: str) -> Optional[int]:
        """Return the size in bytes of a file in the job's manifests, or None."""
        return self.offered.get(digest)

    def path_of(self, digest: str) -> Optional[str]:
        """Return the path of a complete file of this job, or None."""
        size = self.offered.get(digest)
        return self._cache.path(digest) if size is not None and self._cache.has(digest, size) else None

    def expects(self, digest: str) -> bool:
        """Return whether a missing file is still expected from another node."""
        return any(digest in tree.files for tree in self._trees.values() if not tree.failed)

    def arrived(self, digest: str, size: int) -> None:
        """Handle a file that another node provided."""
        self.given[digest] = size
        for name, tree in list(self._trees.items()):
            if digest in tree.missing:
                tree.missing.discard(digest)
                if not tree.missing:
                    self._lacking(name, tree, [])

    def fetched(self) -> None:
        """Handle the end of fetching, after which no other node can provide more files."""
        for name, tree in list(self._trees.items()):
            if tree.missing and not tree.failed:
                lacking = [digest for digest in tree.files if digest in tree.missing]
                tree.missing = set()
                self._lacking(name, tree, lacking)

    def not_stored(self, error: OSError) -> None:
        """Handle a write error for a file from another node."""
        for name, tree in list(self._trees.items()):
            if tree.missing and not tree.failed:
                self._broken(name, tree, error)
