# SPDX-License-Identifier: Apache-2.0
"""Checks and escapes text sent by another process: lines, paths, addresses. Pure."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Tuple

from paddle_node.contract.classes import regex

PATH_LIMIT = 4096  # bytes, the kernel's limit
_NAME_LIMIT = 255
LINE_LIMIT = 2000  # characters
_ADDRESS_LIMIT = 64  # characters, with a zone
_TERMINAL_SEQUENCE = regex(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_CONTROL = regex("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SPACES = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


def visible(text: str) -> str:
    """Remove terminal escape sequences from a text, and escape its other control characters."""
    if text.isprintable():
        return text
    return "".join(map(_visible_character, _TERMINAL_SEQUENCE.sub("", text.expandtabs())))


def visible_line(text: str) -> str:
    """Return the beginning of a text as one line of at most LINE_LIMIT characters, without control characters."""
    return visible(text[:LINE_LIMIT])[:LINE_LIMIT]


def is_relative_path(path: Any) -> bool:
    """Return whether a path is in canonical form and stays below its base folder."""
    return (
        type(path) is str
        and len(path) <= PATH_LIMIT
        and "\0" not in path
        and not any(part in ("", ".", "..") for part in path.split("/"))
    )


def relative_path(path: str) -> str:
    """Check that a path stays below its base folder, and return it.

    Raises:
        ValueError: the path is not relative, or contains `..`.
    """
    if not is_relative_path(path):
        raise ValueError("%.200r is not a relative path without `..`" % path)
    return path


def is_local_path(path: Any) -> bool:
    """Return whether a value is a well-formed path or empty; the path need not exist."""
    if type(path) is not str or "\0" in path:
        return False
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return len(encoded) <= PATH_LIMIT and max(map(len, encoded.split(b"/"))) <= _NAME_LIMIT


def is_node_path(path: Any) -> bool:
    """Return whether a value is a well-formed path that fits on one line."""
    return is_local_path(path) and path != "" and (path.isprintable() or not _CONTROL.search(path))


_addresses: Dict[str, str] = {}  # every node names all the others
_MOST_ADDRESSES = 1 << 12


def address(text: str) -> str:
    """Check that a text is an IP address, and return it in canonical form.

    Raises:
        ValueError: the text is not an IP address.
    """
    found = _addresses.get(text)
    if found is None:
        from ipaddress import ip_address  # agents need none

        if len(text) > _ADDRESS_LIMIT:
            raise ValueError("%.100r is not an IP address" % text)
        if len(_addresses) >= _MOST_ADDRESSES:
            _addresses.clear()
        found = _addresses[text] = str(ip_address(text))
    return found


def is_address(value: Any) -> bool:
    """Return whether a value is the text of an IP address."""
    try:
        return type(value) is str and bool(address(value))
    except ValueError:
        return False


def _visible_character(character: str) -> str:
    if character.isprintable() or character in _SPACES:
        return character
    return character.encode("unicode_escape").decode("ascii")


def module_files(module: str, exists: Callable[[str], bool]) -> Tuple[str, ...]:
    """Return the files that `python -m` would search in a folder for a module, the one that it runs first.

    No files are returned for a module of Python or of an installed package.

    Args:
        exists: whether the folder has a path.
    """
    path = module.replace(".", "/")
    top = path.partition("/")[0]
    if not exists(top + "/") and not exists(top + ".py"):
        return ()
    script, main = path + ".py", path + "/__main__.py"
    if exists(path + "/__init__.py"):  # preferred to a script with the same name
        return (main,)
    return (main, script) if exists(main) and not exists(script) else (script, main)
