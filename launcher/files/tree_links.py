# SPDX-License-Identifier: Apache-2.0
"""Where a symlink of a tree leads, judged on the tree alone, as it will be on a node."""

from __future__ import annotations

from collections.abc import Container, Mapping

_MAX_LINKS = 40  # as the kernel's


def link_problem(link: str, links: Mapping[str, str], tree: Container[str]) -> str:
    """What is wrong with a link, or nothing.

    Args:
        link: its path in the tree.
        links: path -> target of every link of the tree.
        tree: paths of everything in the tree.
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
                return f"to {target!r}, outside the workspace"
            at.pop()
            continue
        at.append(part)
        path = "/".join(at)
        if path not in tree:
            return f"to {target!r}, where nothing travels"
        if path in links:
            followed += 1
            if links[path].startswith("/"):
                return f"to {target!r}, an absolute path"
            if followed > _MAX_LINKS:
                return f"to {target!r}, which leads in a circle"
            at.pop()
            todo.extend(links[path].split("/")[::-1])
    return ""
