# SPDX-License-Identifier: Apache-2.0
"""Writes the file chunks that agents send into <workspace>/log/node_<id>/ and <workspace>/output/.

Logs grow in place; one that was rotated on its node is renamed here, so that here is what is there. Under output/
a file appears whole: it is written beside as `.NAME.part` until a chunk reaches its end. A full disk costs bytes,
and so does somebody who removes a log here; they are counted and told, and never cost the job. `check` and
`check_move` may be called from any thread, the rest from one.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from pathlib import Path

from launcher.errors import ProtocolError

MAX_OPEN = 64
LOG = "log"
OUTPUT = "output"
OUTPUT_NODE = 0
LARGEST = 1 << 62  # bytes of a file


class Collector:
    """Receives the files of all nodes.

    Args:
        root: the directory that gets log/ and output/.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._copies: dict[Path, _Copy] = {}
        self._open: OrderedDict[Path, _Copy] = OrderedDict()

    def store(self, node_id: int, path: str, offset: int, reset: bool, body: bytes, eof: bool = True) -> str:
        """Store one chunk.

        Args:
            path: relative to the job directory, beginning with log/ or output/.
            offset: where in the file the chunk begins.
            reset: the file begins anew; offset is 0.
            eof: the chunk reaches the file's end as it is now.

        Returns:
            A sentence for the user when something is lost for the first time, else nothing.

        Raises:
            ProtocolError: the path leads elsewhere, or the offset is none.
        """
        target, whole_only = self.check(node_id, path, offset)
        copy = self._copies.get(target)
        if copy is None or reset:
            if copy is not None:
                copy.close()
            copy = self._copies[target] = _Copy(target, whole_only, lost=copy.lost if copy else 0)
        told = copy.lost
        self._make_room(target, copy)
        copy.write(offset, reset, body)
        if eof:
            copy.publish()
        if copy.lost and not told:
            return f"{target}: {copy.problem}; bytes of it are lost here, the node still has them"
        return ""

    def check(self, node_id: int, path: str, offset: int = 0) -> tuple[Path, bool]:
        """Where a node's file goes here, and whether it may appear only whole.

        Raises:
            ProtocolError: the path leads elsewhere, or the offset is none.
        """
        if not 0 <= offset < LARGEST:
            raise ProtocolError(f"node {node_id}", f"it sent {path!r} at {offset}")
        return self._place(node_id, path)

    def check_move(self, node_id: int, path: str, to: str) -> tuple[Path, Path]:
        """Where a log is here and where it goes.

        Raises:
            ProtocolError: it is no log, or a path leads elsewhere.
        """
        (source, source_whole), (target, target_whole) = self.check(node_id, path), self.check(node_id, to)
        if source_whole or target_whole:
            raise ProtocolError(f"node {node_id}", f"it renamed {path!r} to {to!r}, which is no log")
        return source, target

    def move(self, node_id: int, path: str, to: str) -> None:
        """Rename the copy of a log; what had the new name is gone."""
        source, target = self.check_move(node_id, path, to)
        copy = self._copies.pop(source, None)
        for name in (source, target):
            known = self._open.pop(name, None)
            if known is not None:
                known.close()
        if copy is None:
            return
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(source, target)
        except OSError as error:
            copy.lost, copy.problem = copy.lost + 1, error.strerror or str(error)
        self._copies[target] = copy.renamed(target)

    @property
    def has_output(self) -> bool:
        """Whether a file of output/ came."""
        return any(target.is_relative_to(self._root / OUTPUT) for target in self._copies)

    def close(self) -> list[str]:
        """Close every file; returns a sentence for each one that is not complete."""
        missing = []
        for target, copy in sorted(self._copies.items()):
            copy.close()
            copy.look_again()
            if copy.lost:
                missing.append(f"{target}: {copy.lost} bytes are missing: {copy.problem}")
            elif copy.is_partial:
                missing.append(f"{target}: its end did not arrive; what did is in {copy.partial.name}")
        self._open.clear()
        return missing

    def _place(self, node_id: int, path: str) -> tuple[Path, bool]:
        """Where a node's file goes here, and whether it may appear only whole."""
        top, *rest = path.split("/")
        if not (rest and _is_name(path)) or any(part in ("", ".", "..") or "\0" in part for part in rest):
            raise ProtocolError(f"node {node_id}", f"it sent a file of the name {path!r}")
        if top == LOG:
            return self._root.joinpath(LOG, f"node_{node_id}", *rest), False
        if top == OUTPUT and node_id == OUTPUT_NODE:
            return self._root.joinpath(OUTPUT, *rest), True
        raise ProtocolError(f"node {node_id}", f"it sent {path!r}, which is not collected")

    def _make_room(self, target: Path, copy: _Copy) -> None:
        self._open[target] = copy
        self._open.move_to_end(target)
        while len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)[1].close()


def _is_name(path: str) -> bool:
    """Whether a file can have this name: a lone surrogate is no byte."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


class _Copy:
    """One file as it grows here.

    Attributes:
        lost: bytes that could not be written.
        problem: why.
    """

    def __init__(self, target: Path, whole_only: bool, lost: int) -> None:
        self.partial = target.with_name(f".{target.name}.part")
        self.lost = lost
        self.problem = ""
        self.is_partial = whole_only
        self._target = target
        self._whole_only = whole_only
        self._broken = False
        self._gap = False
        self._size = 0  # of a log, as it should be here
        self._fd: int | None = None

    def write(self, offset: int, reset: bool, body: bytes) -> None:
        """Write a chunk; what cannot be written is counted."""
        if self._broken:  # half a model is worse than none
            self.lost += len(body)
            return
        view = memoryview(body)
        try:
            fd = self._descriptor(reset)
            if self._gap and not self._whole_only:
                self._append(fd, b"\n[bytes are missing here]\n")
                self._gap = False
            while view:
                view = view[os.pwrite(fd, view, offset) if self._whole_only else self._append(fd, view) :]
                offset = offset + len(body) - len(view) if self._whole_only else offset
        except OSError as error:
            self.problem = error.strerror or str(error)
            self.lost += len(view)
            self._gap = True
            self._broken = self._whole_only

    def renamed(self, target: Path) -> _Copy:
        """The same copy at another place."""
        self.close()
        self._target, self.partial = target, target.with_name(f".{target.name}.part")
        return self

    def publish(self) -> None:
        """Let a file that is whole appear under its name."""
        if not self.is_partial or self._broken:
            return
        try:
            os.replace(self.partial, self._target)
            self.is_partial = False
        except OSError as error:
            self.problem = error.strerror or str(error)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None

    def look_again(self) -> None:
        """Count what somebody removed of a log here; models may be taken away at any time."""
        if not self._whole_only:
            self._expect(self._target.stat().st_size if self._target.is_file() else 0)

    def _expect(self, size: int) -> None:
        if size < self._size:
            self.lost += self._size - size
            self.problem = "it was removed or cut here while the job ran"
            self._gap = True
        self._size = size

    def _append(self, fd: int, data: bytes | memoryview) -> int:
        written = os.write(fd, data)
        self._size += written
        return written

    def _descriptor(self, reset: bool) -> int:
        if self._fd is not None and not self._whole_only and not os.fstat(self._fd).st_nlink:
            self.close()  # somebody removed it
        if self._fd is None:
            path = self.partial if self.is_partial else self._target
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (0 if self._whole_only else os.O_APPEND)
            self._fd = os.open(path, flags | (os.O_TRUNC if reset else 0), 0o644)
            if not self._whole_only:
                self._expect(os.fstat(self._fd).st_size)
        return self._fd
