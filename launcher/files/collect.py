# SPDX-License-Identifier: Apache-2.0
"""Writes the file chunks that agents send into <workspace>/log/node_<id>/ and <workspace>/output/.

Logs grow in place; one that was rotated on its node is renamed here, so that here is what is there. Under output/
a file appears whole: it is written beside as `.NAME.part` until a chunk reaches its end. Holes stay holes. A full
disk costs bytes, and so does a limit that is reached, or somebody who removes a log here; they are counted and told,
and never cost the job. `check*` may be called from any thread, the rest from one.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launcher.files.collected_copy import Copy, fitting, link_target
from launcher.text.fields import FieldError
from launcher.text.sizes import counted, size_text

MAX_OPEN = 64
LOG = "log"
OUTPUT = "output"
SAVED = "checkpoints"  # what scripts saved on any node; comes below output/
OUTPUT_NODE = 0
LARGEST = 1 << 62  # bytes of a file
TOLD = 20  # files that are named; of the others it is told how many
WARN_AT = 0.8
PLACES = 65_536  # of files that are remembered


@dataclass(frozen=True)
class CollectLimits:
    """What one node may have collected: bytes but for holes, and files."""

    most_bytes: int = 100 << 30
    most_files: int = 100_000


@dataclass
class _Node:
    """What came of one node.

    Attributes:
        left_there: the first file that was one too many; of all such files `chunks_left` came.
    """

    files: int = 0
    size: int = 0
    warned: bool = False
    left_there: str = ""
    chunks_left: int = 0


class Collector:
    """Receives the files of all nodes.

    Args:
        root: the directory that gets log/ and output/.
    """

    def __init__(self, root: Path, limits: CollectLimits | None = None) -> None:
        self._root = root
        self._limits = limits or CollectLimits()
        self._copies: dict[Path, Copy] = {}
        self._links: dict[Path, str] = {}
        self._open: OrderedDict[Path, Copy] = OrderedDict()
        self._nodes: dict[int, _Node] = {}
        self._renamed = 0
        self._losses = 0
        self._place = functools.lru_cache(maxsize=PLACES)(self._placed)  # a log grows by many chunks

    def store(self, node_id: int, path: str, offset: int, reset: bool, body: bytes, eof: bool = True) -> str:
        """Store one chunk.

        Args:
            path: relative to the job directory, beginning with log/ or output/; or with checkpoints/.
            offset: where in the file the chunk begins; a hole is before it, if it begins later than the last one ended.
            reset: the file begins anew.
            eof: the chunk reaches the file's end as it is now.

        Returns:
            A sentence for the user when something is lost for the first time, else nothing.

        Raises:
            FieldError: the path leads elsewhere, or the offset is none.
        """
        target, whole_only = self.check(node_id, path, offset)
        node = self._nodes.setdefault(node_id, _Node())
        copy = self._copies.get(target)
        if copy is None and node.files >= self._limits.most_files:
            return self._leave_there(node_id, node, path)
        if copy is None or reset:
            if copy is not None:
                copy.close()
                node.size -= copy.stored
                node.files -= 1
            self._clear_way(node, target)
            lost, start = (copy.lost if copy else 0), (0 if reset else offset)
            copy = self._copies[target] = Copy(target, whole_only, lost=lost, start=start)
            node.files += 1
        told, before = copy.lost, copy.stored
        self._make_room(target, copy)
        copy.write(offset, reset, body, room=max(0, self._limits.most_bytes - node.size))
        node.size += copy.stored - before
        if eof:
            copy.publish()
        if copy.lost and not told and self._losses < TOLD:
            self._losses += 1
            return f"{target}: {copy.problem}; bytes of it are lost here, the node still has them"
        return self._warning(node_id, node) or self._other_name(path, target, reset)

    def link(self, node_id: int, path: str, to: str) -> str:
        """Make a link in output/; returns a sentence when that cannot be done.

        Raises:
            FieldError: the path or the target leads elsewhere.
        """
        target = self.check_link(node_id, path, to)
        node = self._nodes.setdefault(node_id, _Node())
        if target not in self._links and node.files >= self._limits.most_files:
            return self._leave_there(node_id, node, path)
        top = self._root / OUTPUT
        self._drop(node, target)
        self._clear_way(node, target)
        hidden = target.with_name(f".{os.getpid()}.link")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.parent.resolve() != top.resolve() / target.parent.relative_to(top):
                return f"{target}: not made: a link is on the way to it"
            hidden.unlink(missing_ok=True)
            hidden.symlink_to(link_target(to, target.parent))
            os.replace(hidden, target)
        except OSError as error:
            with contextlib.suppress(OSError):
                hidden.unlink()
            return f"{target}: this link to {to} cannot be made here: {error.strerror or error}"
        self._links[target] = to
        node.files += 1
        return ""

    def remove(self, node_id: int, path: str) -> None:
        """A link is gone on its node, or a file that was sent in part: what came of that is of no use.

        Raises:
            FieldError: the path leads elsewhere.
        """
        target, whole_only = self.check(node_id, path)
        copy = self._copies.get(target)
        if target in self._links or (copy is not None and whole_only and copy.is_partial):
            self._drop(self._nodes.setdefault(node_id, _Node()), target)

    def check(self, node_id: int, path: str, offset: int = 0) -> tuple[Path, bool]:
        """Where a node's file goes here, and whether it may appear only whole.

        Raises:
            FieldError: the path leads elsewhere, or the offset is none.
        """
        if not 0 <= offset < LARGEST:
            raise FieldError(f"{path!r:.80} at {offset}")
        return self._place(node_id, path)

    def _placed(self, node_id: int, path: str) -> tuple[Path, bool]:
        top, *rest = path.split("/")
        if not (rest and _is_name(path)) or any(part in ("", ".", "..") or "\0" in part for part in rest):
            raise FieldError(f"no file has the name {path!r:.80}")
        if top == LOG:
            return fitting("/".join(rest), self._root / LOG / f"node_{node_id}"), False
        if top == SAVED:
            return fitting("/".join(rest), self._root / OUTPUT / SAVED / f"node_{node_id}"), True
        if top == OUTPUT and node_id == OUTPUT_NODE:
            return fitting("/".join(rest), self._root / OUTPUT), True
        raise FieldError(f"{path!r:.80} is not collected from this node")

    def check_move(self, node_id: int, path: str, to: str) -> tuple[Path, Path]:
        """Where a log is here and where it goes.

        Raises:
            FieldError: it is no log, or a path leads elsewhere.
        """
        (source, source_whole), (target, target_whole) = self.check(node_id, path), self.check(node_id, to)
        if source_whole or target_whole:
            raise FieldError(f"{path!r:.80} was renamed to {to!r:.80}, which is no log")
        return source, target

    def check_link(self, node_id: int, path: str, to: str) -> Path:
        """Where a link goes here.

        Raises:
            FieldError: it would lead out of output/, or is elsewhere itself.
        """
        target, whole_only = self.check(node_id, path)
        whole_only = whole_only and path.startswith(f"{OUTPUT}/")
        up = 0
        parts = to.split("/")
        while up < len(parts) and parts[up] == "..":
            up += 1
        inside = up <= path.count("/") - 1 and up < len(parts)
        if not (whole_only and inside and _is_name(to)) or any(
            part in ("", ".", "..") or "\0" in part for part in parts[up:]
        ):
            raise FieldError(f"no link in output/ is {path!r:.80} to {to!r:.80}")
        return target

    def move(self, node_id: int, path: str, to: str) -> None:
        """Rename the copy of a log; what had the new name is gone."""
        source, target = self.check_move(node_id, path, to)
        node = self._nodes.setdefault(node_id, _Node())
        copy = self._copies.pop(source, None)
        for name in (source, target):
            known = self._open.pop(name, None)
            if known is not None:
                known.close()
        if copy is None:
            return
        over = self._copies.pop(target, None)
        if over is not None:
            node.size -= over.stored
            node.files -= 1
        self._copies[target] = copy
        copy.rename(target)

    @property
    def has_output(self) -> bool:
        """Whether a file of output/ came."""
        return any(target.is_relative_to(self._root / OUTPUT) for target in self._copies)

    def close(self) -> list[str]:
        """Close every file; returns a sentence for each one that is not complete, and for each node that kept some."""
        missing = []
        for target, copy in sorted(self._copies.items()):
            copy.close()
            copy.look_again()
            if copy.lost:
                missing.append(f"{target}: {size_text(copy.lost)} missing: {copy.problem}")
            elif copy.is_partial:
                missing.append(f"{target}: its end did not arrive; what did is in {copy.partial.name}")
        self._open.clear()
        if len(missing) > TOLD:
            missing[TOLD:] = [f"and {counted(len(missing) - TOLD, 'more file')} not complete"]
        return missing + [
            f"node {node_id}: {node.chunks_left} pieces of files were left there, such as {node.left_there}: more "
            f"than COLLECT_LIMIT_FILES = {self._limits.most_files} files"
            for node_id, node in sorted(self._nodes.items())
            if node.left_there
        ]

    def _leave_there(self, node_id: int, node: _Node, path: str) -> str:
        node.chunks_left += 1
        if node.left_there:
            return ""
        node.left_there = path[:80]
        return f"node {node_id}: COLLECT_LIMIT_FILES = {self._limits.most_files} is reached: further files stay there"

    def _warning(self, node_id: int, node: _Node) -> str:
        limits = self._limits
        is_near = node.size >= WARN_AT * limits.most_bytes or node.files >= WARN_AT * limits.most_files
        if node.warned or not is_near:
            return ""
        node.warned = True
        return (
            f"node {node_id}: {node.size / (1 << 30):.3g} GB in {node.files} files were collected; it keeps what goes "
            f"beyond COLLECT_LIMIT_GB ({limits.most_bytes / (1 << 30):.3g}) or "
            f"COLLECT_LIMIT_FILES ({limits.most_files})"
        )

    def _other_name(self, path: str, target: Path, reset: bool) -> str:
        if not reset or self._renamed >= TOLD or target.as_posix().endswith(path.partition("/")[2]):
            return ""
        self._renamed += 1
        return f"{path[:80]}...: a name too long for this machine; the file is {target}"

    def _clear_way(self, node: _Node, target: Path) -> None:
        """What was a link or a file and is none any more, on the way to a file, is gone."""
        for place in _within(target, self._root):
            if place in self._links or (place in self._copies and place != target):
                self._drop(node, place)
                with contextlib.suppress(OSError):
                    place.unlink()

    def _drop(self, node: _Node, target: Path) -> None:
        copy = self._copies.pop(target, None)
        self._open.pop(target, None)
        if copy is not None:
            node.size -= copy.stored
            node.files -= 1
            copy.discard()
        if self._links.pop(target, None) is not None:
            node.files -= 1
            with contextlib.suppress(OSError):
                target.unlink()

    def _make_room(self, target: Path, copy: Copy) -> None:
        self._open[target] = copy
        self._open.move_to_end(target)
        while len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)[1].close()


def _within(target: Path, root: Path) -> Iterator[Path]:
    """A path and its parents below another one."""
    while target != root:
        yield target
        target = target.parent


def _is_name(path: str) -> bool:
    """Whether a file can have this name: a lone surrogate is no byte."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True
