# SPDX-License-Identifier: Apache-2.0
"""What a tree of files is to look like, checked before anything is written.

An entry is a JSON list: [path, "d", mode], [path, "f", mode, size, digest], with a time of modification in ns behind
them where it is to be kept, or [path, "l", target]. Paths and targets come from another machine and are not trusted:
nothing may lie outside the tree, or lead there but for [path, "l", target, true], below which nothing lies.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Union

from paddle_node.agent.files.cache import is_digest
from paddle_node.contract import checked_json
from paddle_node.contract.text import relative_path

_PERMISSIONS = 0o777  # setuid, setgid and sticky never arrive
_MAX_LINKS = 40


class Folder(NamedTuple):
    """A directory."""

    mode: int


class File(NamedTuple):
    """A regular file; size in bytes, time of modification in ns, 0: any."""

    mode: int
    size: int
    digest: str
    changed_ns: int = 0


class Symlink(NamedTuple):
    """A symbolic link; `leaves`: its absolute target is meant."""

    target: str
    leaves: bool = False


Entry = Union[Folder, File, Symlink]


class ManifestError(ValueError):
    """A manifest asks for something that is never made."""


def parse(body: bytes) -> Dict[str, Entry]:
    """One part of a manifest.

    Raises:
        ManifestError: an entry of another form, a path that leaves the tree, a path twice.
    """
    try:
        items = checked_json.loads(body)
    except ValueError as error:
        raise ManifestError("a manifest is no JSON: %s" % error) from error
    if not isinstance(items, list):
        raise ManifestError("a manifest is no list")
    entries: Dict[str, Entry] = {}
    for item in items:
        add(entries, *_entry(item))
    return entries


def add(entries: Dict[str, Entry], path: str, entry: Entry) -> None:
    """Add an entry to a tree.

    Raises:
        ManifestError: the tree has this path.
    """
    if path in entries:
        raise ManifestError("%r is there twice" % path)
    entries[path] = entry


def check_tree(entries: Dict[str, Entry]) -> None:
    """Check a whole tree.

    Raises:
        ManifestError: something lies below a file or a link, or a link leads outside.
    """
    for path, entry in entries.items():
        parent = path.rpartition("/")[0]
        while parent:
            if not isinstance(entries.get(parent, Folder(0)), Folder):
                raise ManifestError("%r lies below %r, which is no directory" % (path, parent))
            parent = parent.rpartition("/")[0]
        if isinstance(entry, Symlink):
            _follow(entries, path)


def _entry(item: Any) -> "tuple[str, Entry]":
    if not isinstance(item, list) or len(item) < 3 or not isinstance(item[0], str):
        raise ManifestError("%.200r is no manifest entry" % (item,))
    path, kind = item[0], item[1]
    try:
        relative_path(path)
    except ValueError as error:
        raise ManifestError(str(error)) from error
    if kind == "d" and _is_count(item[2]):
        return path, Folder(item[2] & _PERMISSIONS)
    if kind == "f" and len(item) in (5, 6) and is_digest(str(item[4])):
        numbers = [*item[2:4], *item[5:]]
        if all(map(_is_count, numbers)):
            return path, File(item[2] & _PERMISSIONS, item[3], str(item[4]), *item[5:])
    if kind == "l" and isinstance(item[2], str) and item[2] and "\0" not in item[2]:
        return path, Symlink(item[2], item[3:] == [True])
    raise ManifestError("%.200r is no manifest entry" % (item,))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _follow(entries: Dict[str, Entry], link: str) -> None:
    """Walk a link as the kernel would, links on the way included."""
    links = 0
    at: List[str] = []
    todo = link.split("/")[::-1]
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not at:
                raise ManifestError("the link %r leads outside" % link)
            at.pop()
            continue
        at.append(part)
        entry = entries.get("/".join(at))
        if isinstance(entry, Symlink):
            links += 1
            if entry.leaves and entry.target.startswith("/"):
                return
            if entry.target.startswith("/") or links > _MAX_LINKS:
                raise ManifestError("the link %r is absolute or never ends" % link)
            at.pop()
            todo.extend(entry.target.split("/")[::-1])
