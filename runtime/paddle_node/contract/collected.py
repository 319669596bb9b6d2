# SPDX-License-Identifier: Apache-2.0
"""The messages from an agent to its launcher about collected files, directories and links: one record per kind."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Type

from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.records import Bytes, Mode, RelativePath


class File(NamedTuple):
    """A chunk of a collected file, in the body, starting at byte `offset`; a gap after the previous chunk is a hole.

    `reset`: the file is sent again from its beginning; `eof`: the chunk reaches its end; `mtime` in ns since 1970;
    `mode`: its permission bits.
    """

    path: RelativePath
    offset: Bytes
    reset: bool = False
    eof: bool = True
    mtime: Optional[int] = None
    mode: Mode = 0o600


class Directory(NamedTuple):
    """A collected directory, with its permission bits and its modification time in nanoseconds since 1970."""

    path: RelativePath
    mode: Mode
    mtime: Optional[int] = None


class Link(NamedTuple):
    """A collected symbolic link, with its target and its modification time in nanoseconds since 1970."""

    path: RelativePath
    target: str
    mtime: Optional[int] = None


class Removed(NamedTuple):
    """Reports that a link, a directory or a partly sent file was removed on the node."""

    path: RelativePath


class Moved(NamedTuple):
    """Reports that a log was renamed on the node, from `path` to `to`."""

    path: RelativePath
    to: RelativePath


class Listed(NamedTuple):
    """A part of the final list of collected items, as rows in the body; `last` marks the last part."""

    last: bool = True


COLLECTED: Mapping[str, Type[Any]] = {
    "file": File,
    "directory": Directory,
    "link": Link,
    "removed": Removed,
    "moved": Moved,
    "listed": Listed,
}
"""Kind of a message -> its record."""
