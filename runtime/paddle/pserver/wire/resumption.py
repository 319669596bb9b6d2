# SPDX-License-Identifier: Apache-2.0
"""From where a job goes on that begins with a checkpoint: what servers say and what a trainer makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paddle.errors import PserverError
from paddle.pserver.wire.message import Message, Section

_NAME = "resumed"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in training.

    Attributes:
        version: batches applied; in asynchronous training every trainer's count.
        in_pass: those of them in the pass that is not over.
    """

    version: int
    in_pass: int


def position(version: int, pass_version: int) -> Section:
    """Return what a server says: it holds the values of a checkpoint, and nothing came after."""
    return Section.text(_NAME, f"{version} {version - pass_version}")


def read_positions(
    replies: Mapping[int, Message], endpoints: Sequence[str], *, is_async: bool
) -> Position | None:
    """Return where a job goes on from, by what all servers said; None: it does not begin with a checkpoint.

    Of the last batch of a pass, a server may have saved its values before it heard of the end of the pass, and another
    one after that: the pass is over, and `rejoin` ends it on the servers that are behind.

    Raises:
        PserverError: in synchronous training, servers have checkpoints of different batches, or only some have one.
    """
    found = {index: _read(reply) for index, reply in replies.items()}
    if len({at.version if at else None for at in found.values()}) > 1 and not is_async:
        said = "; ".join(
            f"{endpoints[index]}: {f'batch {at.version}' if at else 'none'}"
            for index, at in sorted(found.items())
        )
        raise PserverError(
            "the pservers go on from checkpoints of different batches: "
            f"{said}; name one that all have with --resume=<batch>"
        )
    there = [at for at in found.values() if at is not None]
    return min(there, key=lambda at: (at.version, at.in_pass), default=None)


def _read(reply: Message) -> Position | None:
    for section in reply.sections:
        if section.name == _NAME:
            version, in_pass = map(int, section.as_text().split())
            return Position(version, in_pass)
    return None
