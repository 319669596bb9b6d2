# SPDX-License-Identifier: Apache-2.0
"""Brings one tree to one node: offers the manifest, streams the files that the node lacks, has it published.

`start` and `handle` belong to the job's loop; the files are read on the link's writer thread, a chunk at a
time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from launcher.errors import DispatchError
from launcher.link import Frame, Link, MessageEvent
from launcher.package import CHUNK, DIGEST_SIZE, Entry, Package

WORKSPACE = "workspace"
RUNTIME = "runtime"


class DispatchState(Enum):
    """How far a tree is."""

    NEW = "new"
    OFFERED = "offered"
    SENDING = "sending"
    DONE = "done"
    FAILED = "failed"


class Dispatch:
    """One tree on its way to one node.

    Args:
        link: to the node.
        package: the tree, or None to take the directory `dest` as it is on the node.
        tree: WORKSPACE or RUNTIME.
        dest: where it appears: relative to ROOT_DIR; without a package also absolute or beginning with ~.
        files: small extra files by path, such as the nodefile.
        collect: directories of the tree that are made if need be, and whose files are sent back.

    Attributes:
        state: changes in `start` and `handle` only.
        path: the tree's absolute path on the node once it is DONE.
        error: why it FAILED.
        bytes_total: what the node lacked, once it has said so.
        bytes_sent: how much of that was handed to the link.
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
    ) -> None:
        self.tree = tree
        self.state = DispatchState.NEW
        self.path = ""
        self.error: DispatchError | None = None
        self.bytes_total = 0
        self.bytes_sent = 0
        self._link = link
        self._package = package
        self._dest = dest
        self._files = dict(files or {})
        self._collect = list(collect)
        self._lacking: list[str] = []

    def start(self) -> None:
        """Offer the tree."""
        self.state = DispatchState.OFFERED
        if self._package is None:
            self._link.send_stream([self._commit()])
        else:
            self._link.send_stream(self._manifest(self._package))

    def handle(self, event: MessageEvent) -> bool:
        """Take a `lacking`, `committed` or `failed` of this tree; False when it is about something else."""
        fields = event.fields
        if fields.get("tree") != self.tree:
            return False
        if event.kind == "lacking":
            self._on_lacking(fields)
        elif event.kind == "committed":
            self.path = str(fields["job_dir"])
            self.state = DispatchState.DONE
        elif event.kind == "failed":
            self.error = self._error(fields)
            self.state = DispatchState.FAILED
        else:
            return False
        return True

    def _on_lacking(self, fields: Mapping[str, Any]) -> None:
        digests = fields.get("digests")
        self._lacking += [str(digest) for digest in digests] if isinstance(digests, list) else [repr(digests)]
        if self._package is None or not fields.get("final", True):
            return
        files = self._package.by_digest
        unknown = [digest for digest in self._lacking if digest not in files]
        if unknown:
            self.error = DispatchError(self._link.name, f"it asked for {unknown[0]!r}, which was not offered")
            self.state = DispatchState.FAILED
            return
        self.bytes_total = sum(files[digest].size for digest in self._lacking)
        self.state = DispatchState.SENDING
        self._link.send_stream(self._blobs([files[digest] for digest in self._lacking]))

    def _manifest(self, package: Package) -> Iterator[Frame]:
        fields = {"tree": self.tree, "dest": self._dest}
        first = True
        waiting: bytes | None = None
        for part in package.manifest_parts():
            if waiting is not None:
                yield "manifest", {**fields, "first": first, "final": False}, waiting
                first = False
            waiting = part
        assert waiting is not None
        yield "manifest", {**fields, "first": first, "final": True}, waiting

    def _blobs(self, entries: Sequence[Entry]) -> Iterator[Frame]:
        for entry in entries:
            try:
                yield from self._file(entry)
            except OSError as error:
                self._give_up(f"{entry.path} cannot be read any more: {error.strerror}")
                return
            except _ChangedError:
                self._give_up(
                    f"{entry.path} changed while it was sent; let nothing write to it and start again"
                )
                return
        yield self._commit()

    def _file(self, entry: Entry) -> Iterator[Frame]:
        state = hashlib.blake2b(digest_size=DIGEST_SIZE)
        offset = 0
        with open(entry.source, "rb", buffering=0) as file:
            while True:
                data = file.read(min(CHUNK, entry.size - offset)) if offset < entry.size else b""
                state.update(data)
                end = offset + len(data)
                last = end == entry.size
                # before the last piece: a node must not publish what nobody offered
                if (not data and not last) or (last and state.hexdigest() != entry.digest):
                    raise _ChangedError
                fields = {"tree": self.tree, "digest": entry.digest, "offset": offset, "last": last}
                yield "blob", fields, data
                self.bytes_sent += len(data)
                offset = end
                if last:
                    return

    def _commit(self) -> Frame:
        fields = {"tree": self.tree, "dest": self._dest, "files": self._files, "collect": self._collect}
        return "commit", fields, b""

    def _give_up(self, detail: str) -> None:
        """From the writer's thread: let the loop hear of it like of any other failure."""
        self._link.post("failed", request="blob", tree=self.tree, reason="changed", detail=detail)

    def _error(self, fields: Mapping[str, Any]) -> DispatchError:
        text = f"the {self.tree} did not arrive: {fields.get('detail')}"
        missing = fields.get("missing_bytes")
        if missing:
            text += f"; free {missing} bytes there, or set another ROOT_DIR"
        return DispatchError(self._link.name, text)


class _ChangedError(Exception):
    """A file is not what it was when it was hashed."""
