# SPDX-License-Identifier: Apache-2.0
"""The rules for paths that a node may send, rename and link to, and where copies are stored. Accesses no disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paddle_node.contract.names import LOG, OUTPUT
from paddle_node.contract.records import RecordError

SAVED = "checkpoints"  # checkpoints that scripts saved on any node; stored below output/
OUTPUT_NODE = 0
LARGEST = (1 << 63) - 1  # maximum size of a file in bytes


def check(node_id: int, path: str, offset: int = 0) -> None:
    """Check that a node is allowed to send a file with this path. Does not access the disk.

    Raises:
        RecordError: the path or the offset is not valid.
    """
    if not 0 <= offset <= LARGEST:
        raise RecordError(f"{path!r:.80}: offset: expected 0 to {LARGEST}, got {offset}")
    top, *rest = path.split("/")
    if not (rest and _is_name(path)) or any(part in ("", ".", "..") or "\0" in part for part in rest):
        raise RecordError(f"{path!r:.80} is not a valid path")
    if not (top in (LOG, SAVED) or (top == OUTPUT and node_id == OUTPUT_NODE)):
        raise RecordError(f"{path!r:.80} is not collected from this node")


def check_move(node_id: int, path: str, to: str) -> None:
    """Check that a node is allowed to rename a log.

    Raises:
        RecordError: the file is not a log, or a path is not valid.
    """
    check(node_id, path)
    check(node_id, to)
    if not (path.startswith(f"{LOG}/") and to.startswith(f"{LOG}/")):
        raise RecordError(f"{path!r:.80} was renamed to {to!r:.80}, which is not a log")


def check_link(node_id: int, path: str, to: str) -> None:
    """Check that a node is allowed to create a symbolic link.

    Raises:
        RecordError: the link or its target is outside output/.
    """
    check(node_id, path)
    up = 0
    parts = to.split("/")
    while up < len(parts) and parts[up] == "..":
        up += 1
    names = [] if parts == ["."] else parts[up:]
    depth = path.count("/") - 1 - up  # depth below output/ of the folder that contains the names
    inside = path.startswith(f"{OUTPUT}/") and (depth > 0 or (depth == 0 and names))
    if not (inside and _is_name(to)) or any(part in ("", ".", "..") or "\0" in part for part in names):
        raise RecordError(f"{path!r:.80} with the target {to!r:.80} is not a valid link in output/")


def within(target: Path, root: Path) -> Iterator[Path]:
    """Yield a path and those of its parents that are below `root`."""
    while target != root:
        yield target
        target = target.parent


def _is_name(path: str) -> bool:
    """Return whether a file can have this name in any locale: a lone surrogate does not encode a byte."""
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
