# SPDX-License-Identifier: Apache-2.0
"""Tells a traceback that many processes write once, with who wrote it too.

What a process writes from a traceback on is held until it is quiet for a moment, so that the traceback is whole when
it is compared; numbers in messages and paths may differ, as ranks and addresses do. Not thread-safe.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from paddle_cluster.text.sizes import spans

QUIET_S = 0.3
HELD_S = 1.0  # a process that goes on writing is shown after so long
GATHERED_S = 0.5  # who follows within this time is told in the same line
HELD_SIZE = 1 << 16
MOST_TOLD = 100

_RANK = rb"(?:\[rank\d+\]: ?)?"  # PyTorch puts it before each line
_HEAD = _RANK + rb"Traceback \(most recent call last\):\r?\n"
_ONE = _HEAD + rb"(?:" + _RANK + rb"[ \t].*\n)*" + _RANK + rb"\S.*\n?"
_BETWEEN = _RANK + rb"\n" + _RANK + rb"(?:During handling of|The above exception).*\n" + _RANK + rb"\n"
_RANKED = re.compile(r"(\S+) (\d{1,9}) ")
_BEGIN = re.compile(rb"^" + _HEAD, re.MULTILINE)
_WHOLE = re.compile(_ONE + rb"(?:" + _BETWEEN + _ONE + rb")*")
_NUMBERS = re.compile(rb'^\s+File "[^"\n]*"|^(?!\s+File ).*', re.MULTILINE)  # not those of lines of code


@dataclass
class _Held:
    data: bytes
    begun: float
    heard: float


@dataclass
class _Told:
    """A traceback that was shown.

    Attributes:
        first: who wrote it first.
        again: who wrote it since: the ranks by role, or none by a name that has no rank.
        since: when the first of these did.
    """

    first: str
    again: dict[str, list[int]] = field(default_factory=dict)
    since: float = 0.0


class Tracebacks:
    """What processes wrote on its way to the screen."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._told: dict[bytes, _Told] = {}

    def take(self, who: str, data: bytes) -> bytes:
        """Whole lines of a process, named as "trainer 2 node-c"; what of them may be shown now."""
        now = time.monotonic()
        held = self._held.get(who)
        if held is not None:
            held.data, held.heard = held.data + data, now
            return b""
        begin = _BEGIN.search(data)
        if begin is None:
            return data
        self._held[who] = _Held(data[begin.start() :], now, now)
        return data[: begin.start()]

    def due(self, everything: bool = False) -> list[tuple[str, bytes]]:
        """What was held for long enough, by process, and what the launcher says of it: those lines have no process."""
        now = time.monotonic()
        shown = []
        for who, held in list(self._held.items()):
            is_over = now - held.heard >= QUIET_S or now - held.begun >= HELD_S or len(held.data) > HELD_SIZE
            if everything or is_over:
                del self._held[who]
                shown.append((who, self._unless_told(who, held.data, now)))
        for told in self._told.values():
            if told.again and (everything or now - told.since >= GATHERED_S):
                who = "; ".join(_ranks(role, ranks) for role, ranks in told.again.items())
                shown.append(("", f"({who}: the same traceback as {told.first})".encode()))
                told.again = {}
        return shown

    def _unless_told(self, who: str, data: bytes, now: float) -> bytes:
        """The text without a traceback that was shown before."""
        whole = _WHOLE.match(data)
        if whole is None:
            return data
        plain = re.sub(rb"^" + _RANK, b"", whole[0], flags=re.MULTILINE)
        alike = _NUMBERS.sub(lambda line: re.sub(rb"0x[0-9a-f]+|\d+", b"#", line[0]), plain).strip()
        told = self._told.get(alike)
        if told is None:
            if len(self._told) == MOST_TOLD:
                del self._told[next(iter(self._told))]
            self._told[alike] = _Told(who)
            return data
        if not told.again:
            told.since = now
        name = _RANKED.match(who)
        if name is None:
            told.again.setdefault(who, [])
        else:
            told.again.setdefault(name[1], []).append(int(name[2]))
        return data[whole.end() :]


def _ranks(role: str, ranks: list[int]) -> str:
    return f"{role}{'s' * (len(ranks) > 1)} {spans(ranks)}".rstrip()
