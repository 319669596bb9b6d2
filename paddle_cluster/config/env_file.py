# SPDX-License-Identifier: Apache-2.0
"""Reads a file of variables (.env). Nothing in it is ever run or expanded: `$` is a character like any other.

One NAME=VALUE a line, `export` before it is allowed; `#` begins a comment at the start of a line and after a blank.
A value in '...' is taken as it is; in "..." it may go over several lines, and \\n, \\r, \\t, \\", \\\\ and \\$ stand
for one character. No message ever holds a value: it may be secret.
"""

from __future__ import annotations

import re
from pathlib import Path

from paddle_cluster.errors import ConfError
from paddle_cluster.system import bounded_file

LIMIT = 8 << 20  # bytes
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEAD = re.compile(r"[ \t]*(?:export[ \t]+)?([^\s=#'\"]+)[ \t]*=[ \t]*")
_SINGLE = re.compile(r"'([^'\n]*)'")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE = re.compile(r"[^\n]*")
_COMMENT = re.compile(r"(?:^|[ \t]+)#.*")
_REST = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def read(path: Path, shown: str) -> list[tuple[str, str, str]]:
    """The variables of a file, in its order.

    Args:
        shown: the file's name in messages.

    Returns:
        (name, value, "file:line") of each.

    Raises:
        ConfError: the file cannot be read, or a line of it is no variable.
    """
    try:
        text = bounded_file.read(path, LIMIT).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfError(shown, "no such file; name a file of NAME=VALUE lines") from None
    except OSError as error:
        raise ConfError(shown, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfError(shown, f"expected UTF-8, byte {error.start} is none") from None
    return parse(text.replace("\r\n", "\n"), shown)


def parse(text: str, shown: str) -> list[tuple[str, str, str]]:
    """The variables in a text; see `read`."""
    found = []
    position, line = 0, 1
    while position < len(text):
        where = f"{shown}:{line}"
        blank = _REST.match(text, position)
        if blank is not None:
            end = blank.end()
        else:
            name, value, end = _variable(text, position, where)
            found.append((name, value, where))
        line += text.count("\n", position, end)
        position = end
    return found


def _variable(text: str, position: int, where: str) -> tuple[str, str, int]:
    """Name, value, and where the next line begins."""
    head = _HEAD.match(text, position)
    if head is None or "\n" in head[0]:
        raise ConfError(where, "expected NAME=VALUE, a comment or nothing")
    name = head[1]
    if NAME.fullmatch(name) is None:
        raise ConfError(where, f"{name[:80]!r} is no name: expected letters, digits and _, no digit first")
    value, end = _value(text, head.end(), name, where)
    if "\0" in value:
        raise ConfError(where, f"{name}: expected text, got a NUL byte")
    return name, value, end


def _value(text: str, position: int, name: str, where: str) -> tuple[str, int]:
    quote = text[position : position + 1]
    if quote not in ("'", '"'):
        bare = _BARE.match(text, position)
        assert bare is not None  # it may be empty
        return _COMMENT.sub("", bare[0]).strip(" \t"), min(bare.end() + 1, len(text))
    quoted = (_SINGLE if quote == "'" else _DOUBLE).match(text, position)
    if quoted is None:
        hint = " on this line" if quote == "'" else " in the rest of the file"
        raise ConfError(where, f"{name}: the {quote} that opens its value has no partner{hint}")
    rest = _REST.match(text, quoted.end())
    if rest is None:
        raise ConfError(where, f"{name}: expected nothing but a comment after the closing {quote}")
    value = quoted[1] if quote == "'" else _ESCAPE.sub(_unescape, quoted[1])
    return value, rest.end()


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[1], match[0])
