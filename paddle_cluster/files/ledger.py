# SPDX-License-Identifier: Apache-2.0
"""Compares a node's final list of files with the received copies; a job succeeds only if they match."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Literal

from paddle_cluster.text.sizes import counted
from paddle_node.contract.classes import NamedTuple, dataclass, field
from paddle_node.contract.records import Bytes, RecordError, read_text

MOST_NAMED = 1000  # files per node; only the number of further ones is reported
MOST_ROWS = 1 << 24  # per node; a longer list is malformed
_SHOWN = 300  # characters of a path
_PART = 1 << 20  # bytes of a frame of paths


class ListedRow(NamedTuple):
    """A row in a node's list of collected files.

    Attributes:
        kind: "file", "directory", "link", or "lost": an item that the node cannot send completely.
        text: the file's digest, the link's target, the reason, or empty.
    """

    path: str
    kind: Literal["file", "directory", "link", "lost"]
    size: Bytes
    text: str


class Difference(NamedTuple):
    """A difference between a listed file and its local copy.

    Attributes:
        again: whether sending the file again can help.
    """

    why: str
    again: bool = True


class _Rows(NamedTuple):
    rows: tuple[ListedRow, ...]


def rows_of(body: bytes) -> tuple[ListedRow, ...]:
    """Decode the rows of one `listed` frame.

    Raises:
        RecordError: the frame is malformed.
    """
    return read_text(_Rows, body, "listed", "the list of files").rows


def bodies_of(paths: Sequence[str]) -> Iterator[tuple[bytes, bool]]:
    """Yield (body, is_last) of the `verified` frames that request files again."""
    found: list[str] = []
    size = 0
    for path in paths:
        encoded = json.dumps(path)
        if size + len(encoded) > _PART:
            yield f"[{','.join(found)}]".encode(), False
            found, size = [], 0
        found.append(encoded)
        size += len(encoded) + 1
    yield f"[{','.join(found)}]".encode(), True


@dataclass
class Ledger:
    """The comparison of one node's list of files with the files received from it.

    Attributes:
        listed: rows of its list; `verified`: rows that match the local copy.
        differing: path (or a sentence) -> the difference.
        is_complete: whether the list has ended and no file is requested again.
    """

    listed: int = 0
    verified: int = 0
    differing: dict[str, str] = field(default_factory=dict)
    is_complete: bool = False
    _again: list[str] = field(default_factory=list)
    _requested: frozenset[str] | None = None

    @property
    def is_proven(self) -> bool:
        """Return whether every listed file matches its local copy."""
        return self.is_complete and self.verified == self.listed and not self.differing

    @property
    def was_requested_again(self) -> bool:
        """Return whether the node was asked to send a file again."""
        return bool(self._requested)

    def enter(self, row: ListedRow, difference: Difference | None) -> None:
        """Record a row of the node's list, and how the local copy differs from it; None means it does not.

        Raises:
            RecordError: the row was not requested.
        """
        name = row.path or row.text
        if self.is_complete or self.listed >= MOST_ROWS:
            raise RecordError("the node listed more files than expected")
        if self._requested is None:
            self.listed += 1
        elif name not in self._requested or name not in self.differing:
            raise RecordError(f"the node listed {name!r:.80} again, which was not requested")
        if difference is None:
            self.differing.pop(name, None)
            self.verified += 1
            return
        self.differing[name] = difference.why
        if difference.again and self._requested is None:
            self._again.append(row.path)

    def close(self) -> tuple[str, ...]:
        """End the list; return the paths that the node must send again."""
        again, self._again = tuple(self._again), []
        self._requested = frozenset(again)
        self.is_complete = not again
        return again

    def revoke(self, name: str, why: str) -> None:
        """Record that a verified file has changed since its verification."""
        self.verified -= 1
        self.differing[name] = why

    def lines(self, node_id: int) -> list[str]:
        """Return a message for each file whose copy differs from the node's file."""
        named = sorted(self.differing.items())
        more = len(named) - MOST_NAMED
        rest = [f"node {node_id}: and {counted(more, 'more file')}"] if more > 0 else []
        texts = (why if name == why else f"{_shown(name)}: {why}" for name, why in named[:MOST_NAMED])
        return [*(f"node {node_id}: {text}" for text in texts), *rest]


def _shown(path: str) -> str:
    """Return a path, or the beginning and end of a long one."""
    return path if len(path) <= _SHOWN else f"{path[: _SHOWN // 2]}...{path[-_SHOWN // 2 :]}"
