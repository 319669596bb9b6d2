# SPDX-License-Identifier: Apache-2.0
"""Sends one tree of files to one node: offers the manifest, streams the missing files, and has the tree published.

`start`, `handle` and `send*` belong to the job's loop; the link's writer thread reads the files, one piece at a time
(`blobs`).
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any

from paddle_cluster.connection.link import Link
from paddle_cluster.connection.send_queue import Frame
from paddle_cluster.errors import DispatchError
from paddle_cluster.files.package import Package, TreeEntry
from paddle_cluster.system.digests import DIGEST_SIZE
from paddle_cluster.text.sizes import size_text
from paddle_node.contract.classes import dataclass, field
from paddle_node.contract.records import RecordError
from paddle_node.contract.to_launcher import Committed, Failed, Lacking

WORKSPACE = "workspace"
RUNTIME = "runtime"
ENVIRONMENT = "environment"
CHUNK = 1 << 20  # bytes of a large file in one frame
SMALL = 1 << 16  # files up to this size are sent together
RATE_S = 5.0  # time span over which a rate is measured
TOGETHER = 1 << 19  # approximate bytes of small files in one frame

Blob = tuple[dict[str, Any], bytes]


class ChangedError(Exception):
    """Raised when a file changed after it was hashed; the message names it."""


def blobs(entries: Sequence[TreeEntry], offsets: Mapping[str, int]) -> Iterator[Blob]:
    """Yield the `blob` messages that carry the content of files.

    Args:
        offsets: the position from which to send a large file, by digest.

    Raises:
        ChangedError: a file has changed, or can no longer be read.
    """
    together: list[tuple[TreeEntry, bytes]] = []
    size = 0
    for entry in entries:
        try:
            if entry.size > SMALL:
                yield from _pieces(entry, offsets.get(entry.digest, 0))
                continue
            together.append((entry, _whole(entry)))
        except OSError as error:
            raise ChangedError(
                f"{entry.path} is no longer readable: {error.strerror}; make sure nothing changes it, and start again"
            ) from error
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
    start = start if start < entry.size else 0
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


def _changed(entry: TreeEntry) -> ChangedError:
    return ChangedError(
        f"{entry.path} changed while it was being sent; make sure nothing writes to it, and start again"
    )


class DispatchState(Enum):
    """The state of a tree's transfer to one node."""

    NEW = "new"
    OFFERED = "offered"
    HELD = "held"  # the node has reported the missing files; `send` or `send_for_fetch` is next
    FETCHING = "fetching"
    SENDING = "sending"
    DONE = "done"
    FAILED = "failed"


class Dispatch:
    """The transfer of one tree to one node.

    Args:
        link: the link to the node.
        package: the tree, or None to use the existing directory `dest` on the node.
        tree: WORKSPACE, RUNTIME or ENVIRONMENT.
        dest: the tree's path on the node, relative to ROOT_DIR; without a package, it can also be absolute or start
            with ~.
        files: small extra files by path, such as the nodefile.
        collect: directories of the tree that are created if missing, and whose files are sent back.
        unpacked_bytes: the unpacked size of a package that is a bundle or wheels; None if the package is the tree
            itself.
        hold: whether to stay HELD when the node lacks files, instead of sending them immediately.

    Attributes:
        state: changes in `start`, `handle` and `send*` only.
        path: the tree's absolute path on the node once it is DONE.
        error: why it FAILED.
        lacking: number of missing bytes by digest, as the node reported them.
        bytes_total: total size of the missing files, once reported.
        bytes_sent: number of bytes passed to the link.
        bytes_relayed: number of bytes that the node received from other nodes.
    """

    def __init__(
        self,
        link: Link,
        package: Package | None,
        *,
        tree: str,
        dest: str,
        files: Mapping[str, str] | None = None,
        collect: Sequence[str] = (),
        unpacked_bytes: int | None = None,
        hold: bool = False,
    ) -> None:
        self.tree = tree
        self.state = DispatchState.NEW
        self.path = ""
        self.error: DispatchError | None = None
        self.lacking: dict[str, int] = {}
        self.bytes_total = 0
        self.bytes_sent = 0
        self.bytes_relayed = 0
        self._link = link
        self._package = package
        self._dest = dest
        self._files = dict(files or {})
        self._collect = list(collect)
        self._unpacked_bytes = unpacked_bytes
        self._hold = hold
        self._is_there = False
        self._named: dict[str, None] = {}
        self._offsets: dict[str, int] = {}

    @property
    def offered(self) -> AbstractSet[str]:
        """The digests of the files that the node can relay as soon as it has received them."""
        return frozenset() if self._package is None or self._is_there else self._package.by_digest.keys()

    def start(self) -> None:
        """Offer the tree to the node, which answers with the files that it lacks."""
        if self._package is None:
            self.state = DispatchState.OFFERED
            self._link.send_stream([self._commit()])
        else:
            self.state = DispatchState.OFFERED
            self._link.send_stream(self._manifest(self._package))

    def handle(self, answer: Lacking | Committed | Failed) -> None:
        """Update the transfer after a node's answer about this tree."""
        if isinstance(answer, Committed):
            self.path, self.state = answer.job_dir, DispatchState.DONE
            self._is_there |= answer.have_tree
        elif isinstance(answer, Failed):
            text = f"the {self.tree} did not arrive: {answer.detail}"
            if answer.missing_bytes:
                text += f"; free {size_text(answer.missing_bytes)} there, or set a different ROOT_DIR"
            self._fail(text)
        else:
            self._on_lacking(answer)

    def send(self) -> None:
        """Send all missing files to the node, which then publishes the tree."""
        assert self._package is not None
        self.state = DispatchState.SENDING
        self._link.send_stream(self._stream(self._package, list(self.lacking), [self._commit()]))

    def send_for_fetch(self, direct: Collection[str]) -> None:
        """Send some missing files; the node fetches the rest from other nodes, and reports `lacking` again."""
        assert self._package is not None
        self.state = DispatchState.FETCHING
        self._link.send_stream(
            self._stream(self._package, [digest for digest in self.lacking if digest in direct], [])
        )

    def _fail(self, text: str) -> None:
        self.error, self.state = DispatchError(self._link.name, text), DispatchState.FAILED

    def _on_lacking(self, answer: Lacking) -> None:
        if self._package is None:
            return
        files = self._package.by_digest
        unknown = next((digest for digest in answer.digests if digest not in files), None)
        if unknown is not None:
            self._fail(f"cannot read the node's 'lacking' message: it lists {unknown}, which was not offered")
            return
        self._named.update(dict.fromkeys(answer.digests))
        self._offsets.update(answer.offsets)
        if not answer.final:
            return
        named, self._named = self._named, {}
        self._is_there = answer.have_tree
        self.lacking = {digest: files[digest].size for digest in named}
        if self.state is DispatchState.FETCHING:
            self.bytes_relayed = answer.relayed
        else:
            self.bytes_total = sum(self.lacking.values())
        if not self.lacking:
            self.state = DispatchState.SENDING  # no files: the node builds the tree by itself
        elif self._hold and self.state is not DispatchState.FETCHING:
            self.state = DispatchState.HELD
        else:
            self.send()

    def _manifest(self, package: Package) -> Iterator[Frame]:
        fields = {"tree": self.tree, "dest": self._dest, "unpacked": self._unpacked_bytes}
        fields["wheels"] = self.tree == ENVIRONMENT
        first = True
        waiting: bytes | None = None
        for part in package.manifest_parts():
            if waiting is not None:
                yield "manifest", {**fields, "first": first, "final": False}, waiting
                first = False
            waiting = part
        assert waiting is not None
        commit = {"files": self._files, "collect": self._collect}
        yield "manifest", {**fields, "first": first, "final": True, "commit": commit}, waiting

    def _stream(self, package: Package, digests: Sequence[str], after: Sequence[Frame]) -> Iterator[Frame]:
        entries = [package.by_digest[digest] for digest in digests]
        try:
            for fields, body in blobs(entries, self._offsets):
                yield "blob", {"tree": self.tree, **fields}, body
                self.bytes_sent += len(body)
        except ChangedError as error:
            # on the writer's thread: report it to the loop like any other failure
            self._link.post("failed", request="blob", tree=self.tree, reason="changed", detail=str(error))
            return
        yield from after

    def _commit(self) -> Frame:
        fields = {"tree": self.tree, "dest": self._dest, "files": self._files, "collect": self._collect}
        return "commit", fields, b""


@dataclass
class Delivery:
    """The transfers of all trees to one node.

    Attributes:
        dispatches: the transfers by tree, once the trees are offered.
        trees: tree name -> absolute path on the node, once committed.
        error: why the trees cannot be delivered.
        arrived: received bytes of the missing files, as regularly reported by the node.
    """

    dispatches: Mapping[str, Dispatch] = field(default_factory=dict)
    trees: Mapping[str, str] = field(default_factory=dict)
    error: DispatchError | None = None
    arrived: int = 0
    _samples: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def total(self) -> int:
        """The number of bytes that the node has reported as missing so far."""
        return sum(dispatch.bytes_total for dispatch in self.dispatches.values())

    @property
    def bytes_per_s(self) -> float:
        """Return the transfer rate over the last seconds, in bytes per second."""
        (then, before), (now, arrived) = self._samples[0], self._samples[-1]
        return max(0, arrived - before) / (now - then) if now > then else 0.0

    @property
    def is_over(self) -> bool:
        """Return whether the node has all trees, or has failed to receive them."""
        has_all = bool(self.dispatches) and self.trees.keys() == self.dispatches.keys()
        return self.error is not None or has_all

    def begin(self, dispatches: Mapping[str, Dispatch]) -> None:
        """Record that the trees were offered to the node; a repeated call starts again with new counts."""
        self.dispatches, self.trees, self.arrived = dispatches, {}, 0
        self._samples = deque([(time.monotonic(), 0)])

    def arrive(self, count: int) -> None:
        """Record how many bytes of the missing files have arrived so far, for the progress and the rate."""
        self.arrived = count
        now = time.monotonic()
        self._samples.append((now, count))
        while len(self._samples) > 2 and self._samples[1][0] < now - RATE_S:
            self._samples.popleft()

    def forget(self) -> None:
        """Reset the state: nothing can start on the node until all trees have been offered again."""
        self.trees = {}

    def answered(self, answer: Lacking | Committed | Failed) -> DispatchError | None:
        """Handle the node's answer about a tree; return the error if the tree could not be built, or None.

        Raises:
            RecordError: the answer is about a tree that was not offered.
        """
        dispatch = self.dispatches.get(answer.tree or "")
        if dispatch is None:
            raise RecordError(f"the tree {answer.tree!r:.80} was not offered")
        dispatch.handle(answer)
        if dispatch.state is DispatchState.DONE:
            self.trees = {**self.trees, dispatch.tree: dispatch.path}
        return dispatch.error

    def give_up(self, error: DispatchError) -> bool:
        """Record that the trees cannot be delivered; return False if this was already recorded."""
        if self.error is not None:
            return False
        self.error = error
        return True
