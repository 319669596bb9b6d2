# SPDX-License-Identifier: Apache-2.0
"""Finds what cannot be sent with a workspace: private keys and passwords, and links that would not work on a node.

Keys are found by the names of files, and by the first line of a few of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping

from paddle_node.contract.classes import regex

_AT_HOME = {".ssh", ".gnupg", ".aws", ".kube", ".netrc", ".git-credentials"}  # in home directories
_KEY = regex(r"(?:.*/)?(?:id_\w+|[^/]+\.(?:pem|key|ppk)|[^/]*identity)")
_FIRST_LINE = regex(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----|PuTTY-User-Key-File")
_HEAD_BYTES = 64
_LARGEST = 16 << 10  # bytes
_MAX_LINKS = 40  # as in the kernel
_OUTSIDE = (
    "copy the data into the workspace; if the nodes have it, link to its absolute path and give --keep_links"
)
_ABSOLUTE = "copy the data into the workspace; if the nodes have it at that path, give --keep_links"


def secrets(
    files: Mapping[str, tuple[str, os.stat_result]], is_wanted: Callable[[str], bool]
) -> Iterator[str]:
    """Yield a sentence about each file, or directory at the top, with keys or passwords, which is not to be sent.

    Args:
        files: the source and status of each file, by its path.
        is_wanted: whether the user named a file as one to send.
    """
    for path in _AT_HOME & {path.partition("/")[0] for path in files}:
        yield f"{path} can hold private keys or passwords: do not use a home directory as a workspace"
    for path, (source, status) in files.items():
        is_likely = _KEY.fullmatch(path) or (status.st_size < _LARGEST and _is_private(path, status.st_mode))
        if is_likely and _FIRST_LINE.match(_head(source)) and not is_wanted(path):
            yield f"{path} is a private key (to send it nevertheless, add the line !{path} there)"


def _is_private(path: str, mode: int) -> bool:
    """Return whether a file is like a key of `ssh-keygen -f NAME`: without a suffix, and readable only by its owner."""
    return not mode & 0o077 and "." not in path.rpartition("/")[2]


def _head(source: str) -> bytes:
    try:
        with open(source, "rb") as opened:
            return opened.read(_HEAD_BYTES)
    except OSError:  # reported when its digest is computed
        return b""


def link_problem(link: str, links: Mapping[str, str], tree: Container[str], keep_links: bool = False) -> str:
    """Return why a symbolic link would not work in the tree on a node, or "".

    Args:
        link: the link's path in the tree.
        links: path -> target of every link of the tree.
        tree: paths of all items in the tree.
        keep_links: whether absolute targets may be anywhere on the node.
    """
    target = links[link]
    followed = 0
    at: list[str] = []
    todo = link.split("/")[::-1]
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not at:
                return f"to {target!r}, outside the workspace: {_OUTSIDE}"
            at.pop()
            continue
        at.append(part)
        path = "/".join(at)
        if path not in tree:
            return f"to {target!r}, which does not exist, or is not sent"
        if path in links:
            followed += 1
            if links[path].startswith("/"):
                return "" if keep_links else f"to {target!r}, an absolute path: {_ABSOLUTE}"
            if followed > _MAX_LINKS:
                return f"to {target!r}, which forms a loop"
            at.pop()
            todo.extend(links[path].split("/")[::-1])
    return ""
