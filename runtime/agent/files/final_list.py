# SPDX-License-Identifier: Apache-2.0
"""The list of what an agent has collected, in frames of bounded size.

A row is [path, what, size, text]: "file" with its digest, "link" with its target, "lost" with the reason why something
that the job wrote cannot be collected whole.
"""

from __future__ import annotations

import json
from typing import Any, Iterable, Iterator, List, Tuple

from agent.link.protocol import encode

PART = 1 << 15  # bytes; a row is smaller than that
Row = List[Any]


def file_row(path: str, size: int, digest: str) -> Row:
    """A file that was sent whole."""
    return [path, "file", size, digest]


def link_row(path: str, target: str) -> Row:
    """A link in output/."""
    return [path, "link", 0, target]


def lost_row(path: str, reason: str) -> Row:
    """Something that cannot be collected whole."""
    return [path, "lost", 0, reason]


def parts(rows: Iterable[Row]) -> Iterator[Tuple[bytes, bytes]]:
    """The frames and their bodies; the last one says that it is the last."""
    texts: List[str] = []
    size = 0
    for row in rows:
        text = json.dumps(row, separators=(",", ":"))
        if size + len(text) > PART and texts:
            yield _part(texts, False)
            texts, size = [], 0
        texts.append(text)
        size += len(text) + 1
    yield _part(texts, True)


def _part(texts: List[str], is_last: bool) -> Tuple[bytes, bytes]:
    body = ("[%s]" % ",".join(texts)).encode()
    return encode("listed", {"last": is_last}, body), body
