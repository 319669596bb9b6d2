# SPDX-License-Identifier: Apache-2.0
"""Parses and validates the entries of a file tree, before anything is written.

Paths and link targets come from a different machine and are not trusted. No path may be outside the tree, and no link
may lead out of it, except a Symlink with `leaves`.
"""

from __future__ import annotations

from typing import Dict, List, Union

from paddle_node.contract.records import RecordError, read_text
from paddle_node.contract.to_agent import Entries, File, Folder, Symlink

_MAX_LINKS = 40
Entry = Union[Folder, File, Symlink]


class ManifestError(ValueError):
    """Raised when a manifest contains something that is not allowed."""


def parse(body: bytes) -> Dict[str, Entry]:
    """Parse one part of a manifest, and return its entries by path.

    Raises:
        ManifestError: an entry is malformed, a path leaves the tree, or a path occurs twice.
    """
    try:
        found = read_text(Entries, body, "manifest", "the launcher")
    except RecordError as error:
        raise ManifestError(str(error)) from None
    entries: Dict[str, Entry] = {}
    for entry in found.entries:
        add(entries, entry)
    return entries


def add(entries: Dict[str, Entry], entry: Entry) -> None:
    """Add an entry to the entries of a tree, by path.

    Raises:
        ManifestError: the tree already has this path.
    """
    if entry.path in entries:
        raise ManifestError("%r is listed twice" % entry.path)
    entries[entry.path] = entry


def check_tree(entries: Dict[str, Entry]) -> None:
    """Check that the entries of a whole tree fit together.

    Raises:
        ManifestError: a path is below a file or a link, or a link leads out of the tree.
    """
    for path, entry in entries.items():
        parent = path.rpartition("/")[0]
        while parent:
            if parent in entries and not isinstance(entries[parent], Folder):
                raise ManifestError("%r is below %r, which is not a directory" % (path, parent))
            parent = parent.rpartition("/")[0]
        if isinstance(entry, Symlink):
            _follow(entries, path)


def _follow(entries: Dict[str, Entry], link: str) -> None:
    """Resolve a link as the kernel would, including links on its path."""
    links = 0
    at: List[str] = []
    todo = link.split("/")[::-1]
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not at:
                raise ManifestError("the link %r points outside the directory" % link)
            at.pop()
            continue
        at.append(part)
        entry = entries.get("/".join(at))
        if isinstance(entry, Symlink):
            links += 1
            if entry.leaves and entry.target.startswith("/"):
                return
            if entry.target.startswith("/") or links > _MAX_LINKS:
                raise ManifestError("the link %r must be relative and must not form a loop" % link)
            at.pop()
            todo.extend(entry.target.split("/")[::-1])
