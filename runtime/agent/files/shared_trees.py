# SPDX-License-Identifier: Apache-2.0
"""The trees of a job as other nodes get files of them and give files to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Dict, List, Optional

from agent.files.arrivals import Arrivals
from agent.files.cache import Cache
from agent.files.tree import Tree
from agent.link.fields import texts
from agent.link.loop import Loop
from agent.link.protocol import Fields

if TYPE_CHECKING:
    from agent.relay.relay import Relay


class Depot:
    """Opens the relay, and stands between it and the trees.

    Args:
        trees: those that are between manifest and commit, by name; their owner changes them.
        lacking: called with a tree that other nodes have given all to, or not all: what it still lacks.
        broken: called with a tree whose files cannot be written.

    Attributes:
        offered: sizes of every file of the job's manifests.
    """

    def __init__(
        self,
        loop: Loop,
        cache: Cache,
        arrivals: Arrivals,
        trees: Dict[str, Tree],
        send: Callable[..., None],
        lacking: Callable[[str, Tree, List[str]], None],
        broken: Callable[[str, Tree, OSError], None],
    ) -> None:
        self.offered: Dict[str, int] = {}
        self._loop = loop
        self._cache = cache
        self._arrivals = arrivals
        self._trees = trees
        self._send = send
        self._lacking = lacking
        self._broken = broken
        self._relay: Optional[Relay] = None

    def relay(self, fields: Fields) -> None:
        """Open the way to other nodes, or close it."""
        self.close()
        if not fields.get("open", True):
            return
        try:
            from agent.relay.relay import Relay  # with TLS, which many jobs can do without

            relay = Relay(self._loop, self._arrivals, self, self._send)
            relay.open(fields)
        except (ImportError, OSError, ValueError) as error:  # the launcher finds another way
            self._send("relaying", address="", port=0, problem=str(error))
            return
        self._relay = relay

    def fetch(self, fields: Fields) -> None:
        """Get what some trees lack from other nodes."""
        if self._relay is None:
            raise ValueError("relay comes first")
        wanted: Dict[str, int] = {}
        for name in texts(fields, "trees"):
            tree = self._trees.get(name)
            if tree is None or tree.failed:
                continue
            lacking = [digest for digest, size in tree.files.items() if not self._cache.has(digest, size)]
            tree.missing = set(lacking)
            wanted.update((digest, tree.files[digest]) for digest in lacking)
            if not lacking:
                self._lacking(name, tree, [])
        self._relay.fetch(fields, wanted)

    def close(self) -> None:
        """End every connection."""
        if self._relay is not None:
            self._relay.close()
            self._relay = None

    def relayed(self, tree: Tree) -> int:
        """Bytes of a tree that other nodes gave."""
        return self._relay.received(tree.files) if self._relay is not None else 0

    # What the relay asks and tells

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

    def arrived(self, digest: str) -> None:
        """Another node gave a file."""
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
