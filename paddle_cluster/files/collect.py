# SPDX-License-Identifier: Apache-2.0
"""Writes the logs and output files that agents send to <workspace>/log/node_<id>/ and <workspace>/output/.

Logs grow in place; when a log is rotated on its node, its copy is renamed, so that both match. Under output/, a file
appears only when it is complete: it is written next to its target as `.NAME.DIGEST.part` until a chunk reaches its end.
Holes are preserved. Data lost to a full disk, to a limit, or because a local log was removed is counted and reported,
and never fails the job. Used by one thread.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from paddle_cluster.files.collect_limits import CollectLimits, NodeShare
from paddle_cluster.files.collected_copy import Copy, date
from paddle_cluster.files.collected_folders import Folders, is_of_an_earlier_job
from paddle_cluster.files.collected_paths import SAVED, check, check_link, check_move, within
from paddle_cluster.files.collected_places import Places, link_target, renaming
from paddle_cluster.files.ledger import Difference, Ledger, ListedRow, rows_of
from paddle_cluster.text.sizes import counted, size_text
from paddle_node.contract.collected import Directory, File, Link, Listed, Moved, Removed
from paddle_node.contract.names import OUTPUT

MAX_OPEN = 64
MOST_REPORTED = 20  # files that are named; only the number of further ones is reported

Collected = File | Directory | Link | Moved | Removed | Listed


class Collector:
    """The receiver of the files of all nodes, which writes them to disk. Used by one thread.

    Args:
        root: the directory that receives log/ and output/.
    """

    def __init__(self, root: Path, limits: CollectLimits | None = None) -> None:
        self._root = root
        self._limits = limits or CollectLimits()
        self._copies: dict[Path, Copy] = {}
        self._links: dict[Path, str] = {}
        self._folders: set[Path] = set()  # no component of their path is a file or a link
        self._open: OrderedDict[Path, Copy] = OrderedDict()
        self._made = Folders()
        self._nodes: dict[int, NodeShare] = {}
        self._ledgers: dict[int, Ledger] = {}
        self._renamed = 0
        self._losses = 0
        self._is_permitted = True  # no file has other permissions than on its node
        self._places = Places(root)

    def take(self, node_id: int, what: Collected, body: bytes) -> str:
        """Handle a message about collected files from a node; return a message for the user, or "".

        Raises:
            RecordError: a path is outside the allowed directories, or the node's list is malformed.
        """
        match what:
            case File():
                about = (what.eof, what.mtime, what.mode)
                return self.store(node_id, what.path, what.offset, what.reset, body, *about)
            case Directory():
                return self.make_folder(node_id, what)
            case Link():
                return self.link(node_id, what.path, what.target, what.mtime)
            case Moved():
                return self.move(node_id, what.path, what.to)
            case Removed():
                return self.remove(node_id, what.path)
        for row in rows_of(body):
            self.compare(node_id, row)
        return ""

    def store(
        self,
        node_id: int,
        path: str,
        offset: int,
        reset: bool,
        body: bytes,
        eof: bool = True,
        mtime_ns: int | None = None,
        mode: int = 0o600,
    ) -> str:
        """Store one chunk of a collected file.

        Args:
            path: path relative to the job directory, starting with log/, output/ or checkpoints/.
            offset: position of the chunk in the file; if it is beyond the end of the last chunk, a hole precedes it.
            reset: whether the file starts again from scratch.
            eof: whether the chunk reaches the current end of the file.
            mtime_ns: the file's modification time; not used for logs, whose copies have the time of their last line.
            mode: the file's permission bits.

        Returns:
            A message for the user when data is lost for the first time, otherwise "".

        Raises:
            RecordError: the path or the offset is invalid.
        """
        check(node_id, path, offset)
        target, whole_only = self._places.of(node_id, path)
        node = self._share(node_id)
        copy = self._copies.get(target)
        if copy is None and node.is_full:
            return node.leave(node_id, path)
        if copy is None or reset:
            if copy is not None:
                copy.close()
                node.size -= copy.stored
                node.files -= 1
            self._remove_blocking(node, target)
            copy = self._copies[target] = Copy(node_id, target, whole_only, start=0 if reset else offset)
            node.files += 1
        was_lost, before = copy.lost, copy.stored
        is_whole = eof and whole_only
        if not is_whole:
            self._make_room(target, copy)
        copy.write(offset, reset, body, node.room, mode)
        node.size += copy.stored - before
        if eof:
            copy.publish(mtime_ns)
        if is_whole:  # most are never written again
            copy.close()
        if copy.lost and not was_lost and self._losses < MOST_REPORTED:
            self._losses += 1
            return f"{target}: {copy.problem}; this copy is incomplete, but the node still has the file"
        if not copy.is_permitted and self._is_permitted:
            self._is_permitted = False
            return f"{target}: this file system cannot store the permissions of collected files (here {mode:04o})"
        return node.warning(node_id) or (self._other_name(path, target) if reset else "")

    def make_folder(self, node_id: int, folder: Directory) -> str:
        """Create a directory; return a message for the user if that is not possible, otherwise "".

        Raises:
            RecordError: the path is outside the allowed directories.
        """
        check(node_id, folder.path)
        target = self._places.of_directory(node_id, folder.path)
        node = self._share(node_id)
        if target not in self._made:
            if node.is_full:
                return node.leave(node_id, folder.path)
            node.files += 1
        self._make_way(node, target)
        try:
            self._made.make(target, folder)
        except OSError as error:
            node.files -= 1
            return f"cannot create the directory {target}: {error.strerror or error}"
        return ""

    def link(self, node_id: int, path: str, to: str, mtime_ns: int | None = None) -> str:
        """Create a symbolic link in output/; return a message for the user if that is not possible, otherwise "".

        Raises:
            RecordError: the path or the target is outside output/.
        """
        check_link(node_id, path, to)
        target, _ = self._places.of(node_id, path)
        node = self._share(node_id)
        if target not in self._links and node.is_full:
            return node.leave(node_id, path)
        top = self._root / OUTPUT
        self._drop(node, target)
        self._remove_blocking(node, target)
        hidden = target.with_name(f".{os.getpid()}.link")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.parent.resolve() != top.resolve() / target.parent.relative_to(top):
                return f"{target}: not created because its path contains a link"
            hidden.unlink(missing_ok=True)
            hidden.symlink_to(link_target(to, target.parent))
            if mtime_ns is not None:
                date(hidden, mtime_ns)
            os.replace(hidden, target)
        except OSError as error:
            with contextlib.suppress(OSError):
                hidden.unlink()
            return f"{target}: this link to {to} cannot be created here: {error.strerror or error}"
        self._links[target] = to
        self._folders.clear()
        node.files += 1
        return self._other_name(path, target)

    def remove(self, node_id: int, path: str) -> str:
        """Remove the copy of a link, an empty directory or a partly sent file that was removed on its node.

        Raises:
            RecordError: the path is outside the allowed directories.
        """
        check(node_id, path)
        target, whole_only = self._places.of(node_id, path)
        copy = self._copies.get(target)
        if target in self._links or (copy is not None and whole_only and copy.is_partial):
            self._drop(self._share(node_id), target)
        elif self._made.remove(target):
            self._share(node_id).files -= 1
        return ""

    def _share(self, node_id: int) -> NodeShare:
        if node_id not in self._nodes:
            self._nodes[node_id] = NodeShare(self._limits)
        return self._nodes[node_id]

    def move(self, node_id: int, path: str, to: str) -> str:
        """Rename the local copy of a log; a copy that already has the new name is replaced."""
        check_move(node_id, path, to)
        (source, _), (target, _) = self._places.of(node_id, path), self._places.of(node_id, to)
        node = self._share(node_id)
        copy = self._copies.pop(source, None)
        for name in (source, target):
            known = self._open.pop(name, None)
            if known is not None:
                known.close()
        if copy is None:
            return ""
        over = self._copies.pop(target, None)
        if over is not None:
            node.size -= over.stored
            node.files -= 1
        self._copies[target] = copy
        self._folders.clear()
        copy.rename(target)
        return ""

    @property
    def has_output(self) -> bool:
        """Return whether a file in output/ was received."""
        return any(target.is_relative_to(self._root / OUTPUT) for target in self._copies)

    def unmatched(self, patterns: Sequence[str]) -> list[str]:
        """Return the patterns that match no received checkpoint, as agents match them."""
        top = self._root / OUTPUT / SAVED
        saved = [target.relative_to(top) for target in self._copies if target.is_relative_to(top)]
        names = ["/".join(path.parts[1:]) for path in saved]
        return [one for one in patterns if not any(fnmatch.fnmatchcase(name, one) for name in names)]

    def compare(self, node_id: int, row: ListedRow) -> None:
        """Compare a row of a node's list with the local copy; record the result.

        Raises:
            RecordError: the path is not valid, or the row was not requested.
        """
        if row.kind != "lost":
            check(node_id, row.path)
        self.ledger(node_id).enter(row, self._difference(node_id, row))

    def end_of_list(self, node_id: int) -> tuple[str, ...]:
        """Complete the list of a node; return the paths that the node must send again."""
        ledger = self.ledger(node_id)
        if ledger.was_requested_again:  # a file sent again may have replaced another one
            for target, copy in self._copies.items():
                if copy.is_verified and copy.node_id == node_id and (why := copy.changed()):
                    ledger.revoke(str(target), why)
        return ledger.close()

    def ledger(self, node_id: int) -> Ledger:
        """Return a node's ledger, which compares its listed files with the received ones."""
        return self._ledgers.setdefault(node_id, Ledger())

    def _difference(self, node_id: int, row: ListedRow) -> Difference | None:
        if row.kind == "lost":
            return Difference(row.text, again=False)
        if row.kind == "link":
            made = self._links.get(self._places.of(node_id, row.path)[0])
            return None if made == row.text else Difference("cannot create this link")
        if row.kind == "directory":
            target = self._places.of_directory(node_id, row.path)
            return None if target in self._made else self._missing(node_id, "cannot create this directory")
        target, _ = self._places.of(node_id, row.path)
        copy = self._copies.get(target)
        if copy is None:
            return self._missing(node_id, "not received")
        return copy.verify(row.size, row.text, self._free_bytes() if copy.lost else 0)

    def _missing(self, node_id: int, why: str) -> Difference:
        node = self._share(node_id)
        return Difference(node.limit_text, again=False) if node.left_there else Difference(why)

    def _free_bytes(self) -> int:
        try:
            free = os.statvfs(self._root)
            return free.f_bavail * free.f_frsize
        except OSError:
            return 0

    def close(self) -> list[str]:
        """Close every file; return one message per incomplete file, and per node with uncollected files."""
        missing = []
        for target, copy in sorted(self._copies.items()):
            copy.close()
            if self.ledger(copy.node_id).is_complete:
                continue  # the ledger reports the differences
            copy.recheck()
            if copy.lost:
                missing.append(f"{target}: {size_text(copy.lost)} missing: {copy.problem}")
            elif copy.is_partial:
                missing.append(
                    f"{target}: incomplete: its end was not received; the received part is in {copy.partial.name}"
                )
        self._open.clear()
        self._made.close()
        if len(missing) > MOST_REPORTED:
            missing[MOST_REPORTED:] = [
                f"and {counted(len(missing) - MOST_REPORTED, 'more file')} are incomplete"
            ]
        return (
            missing
            + [
                f"node {node_id}: {node.chunks_left} pieces of files were not collected, such as {node.left_there}: "
                f"{node.limit_text}"
                for node_id, node in sorted(self._nodes.items())
                if node.left_there and not self.ledger(node_id).is_complete
            ]
            + [line for node_id, ledger in sorted(self._ledgers.items()) for line in ledger.lines(node_id)]
        )

    def _other_name(self, path: str, target: Path) -> str:
        told = renaming(path, target) if self._renamed < MOST_REPORTED else ""
        self._renamed += bool(told)
        return told

    def _remove_blocking(self, node: NodeShare, target: Path) -> None:
        """Remove what blocks the path to a file: non-folders among its parents, and a received folder in its place."""
        if target in self._folders:
            self._folders.clear()
        if target.parent in self._folders and target not in self._links:
            return
        self._make_way(node, target.parent)
        if target in self._links:
            self._drop(node, target)
        elif is_of_an_earlier_job(target, self._root / OUTPUT, is_target=True):
            with contextlib.suppress(OSError):
                target.unlink()
        if target.is_dir() and not target.is_symlink() and target.is_relative_to(self._root / OUTPUT):
            self._clear_folder(node, target)

    def _make_way(self, node: NodeShare, folder: Path) -> None:
        """Remove the files and links in the place of a folder and of its parents."""
        self._folders.update(within(folder, self._root))
        for place in within(folder, self._root):
            if place in self._links or place in self._copies:
                self._drop(node, place)
            elif not is_of_an_earlier_job(place, self._root / OUTPUT, is_target=False):
                continue
            with contextlib.suppress(OSError):
                place.unlink()

    def _clear_folder(self, node: NodeShare, folder: Path) -> None:
        """Remove the files that the node sent into a folder, and then the folder if it is empty."""
        for place in [place for place in (*self._copies, *self._links) if folder in place.parents]:
            if place in self._links or self._nodes.get(self._copies[place].node_id) is node:
                self._drop(node, place)
                with contextlib.suppress(OSError):
                    place.unlink()
        for path, _, _ in os.walk(folder, topdown=False):
            node.files -= self._made.forget(Path(path))
            with contextlib.suppress(OSError):
                os.rmdir(path)

    def _drop(self, node: NodeShare, target: Path) -> None:
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
