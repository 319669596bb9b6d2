# SPDX-License-Identifier: Apache-2.0
"""Examines a folder's file system: free space, inodes, type and flags; detects other nodes that write to it.

Every call in this module may hang on a dead file server, so it runs outside the agent's loop. `Marks` leaves one empty
file for the duration of the preflight: another node that sees it there writes to the same folder.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional

from paddle_node.agent.files import disk
from paddle_node.agent.files.digests import blake2b
from paddle_node.contract.classes import NamedTuple
from paddle_node.linux import proc

STALE_S = 24 * 3600.0
_MARK = ".paddle-mark-"


class Mount(NamedTuple):
    """A mount point with its file system's type, source and options."""

    point: str
    kind: str
    source: str
    options: List[str]


def mount_of(path: str) -> Optional[Mount]:
    """Return the innermost mount above a path, as listed in /proc, without accessing any file system."""
    found = None
    for line in proc.lines("/proc/self/mountinfo"):
        fields = line.split(" ", 6)
        point = _unescaped(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and (found is None or len(point) >= len(found.point)):  # a later one covers an earlier one
            about, options = line.partition(" - ")[2].split(" "), fields[5].split(",")
            found = Mount(point, about[0], _unescaped(about[1]) if len(about) > 1 else "", options)
    return found


def examine(path: str, write: bool) -> Dict[str, Any]:
    """Return the free space, type and flags of the file system of `path`, which need not exist.

    With `write`, also try to write there.

    Raises:
        OSError: the file system does not respond properly.
    """
    parent = os.path.realpath(disk.deepest(path))
    free_bytes, free_inodes = disk.room(parent)
    mount = mount_of(parent)
    found: Dict[str, Any] = {
        "path": path,
        "parent": parent,
        "free_bytes": free_bytes,
        "free_inodes": free_inodes,
        "kind": mount.kind if mount else "",
        "source": mount.source if mount else "",
        "noexec": bool(mount and "noexec" in mount.options),
    }
    if write:
        missing = os.path.relpath(path, disk.deepest(path)).split("/")[0]
        in_the_way = os.path.join(parent, missing)
        is_blocked = missing != "." and os.path.lexists(in_the_way)
        found["write_problem"] = (
            "%s is not a directory" % in_the_way if is_blocked else _write_problem(parent)
        )
    return found


def leave_mark(path: str, token: str, node_id: int) -> str:
    """Create an empty file that marks this node as a writer of `path`; return its path, or "" if that fails."""
    parent = os.path.realpath(disk.deepest(path))
    mark = "%s/%s%s-%s-%d" % (parent, _MARK, token, _rest(path), node_id)
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    except OSError:
        return ""
    return mark


def marks_of_others(mark: str) -> List[int]:
    """Return the IDs of the nodes with marks in the same directory; remove old marks of killed agents."""
    parent, own = os.path.split(mark)
    beginning = own.rpartition("-")[0] + "-"
    found = []
    for name in os.listdir(parent):
        if name.startswith(beginning) and name != own and name[len(beginning) :].isdigit():
            found.append(int(name[len(beginning) :]))
        elif name.startswith(_MARK) and not name.startswith(beginning):
            _remove_if_stale(parent + "/" + name)
    return sorted(found)


def remove_mark(mark: str) -> None:
    """Remove this node's mark from a folder; a missing mark is not an error."""
    try:
        os.unlink(mark)
    except OSError:
        return


def _rest(path: str) -> str:
    """Return an ID of the missing part of a path: nodes collide only if they would create the same folder."""
    missing = os.path.relpath(path, disk.deepest(path))
    return blake2b(os.fsencode(missing), digest_size=4).hexdigest()


def _remove_if_stale(path: str) -> None:
    try:
        if os.lstat(path).st_mtime < time.time() - STALE_S:
            os.unlink(path)
    except OSError:
        return


def _write_problem(parent: str) -> Optional[str]:
    try:
        path = "%s/.paddle-probe-%s" % (parent, os.urandom(8).hex())
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, b"x")
        finally:
            os.close(fd)
            os.unlink(path)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _unescaped(text: str) -> str:
    if "\\" in text:
        for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            text = text.replace(code, character)
    return text
