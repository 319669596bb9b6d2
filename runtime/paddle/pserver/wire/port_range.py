# SPDX-License-Identifier: Apache-2.0
"""How many ports a server's process has: it tells whoever says hello, who may have other numbers."""

from __future__ import annotations

from typing import NamedTuple

from paddle.pserver.wire.message import Message, Section

_NAME = "ports"
_DIGITS = 5


class PortRange(NamedTuple):
    """The flags ports_num and ports_num_for_sparse."""

    dense: int
    sparse: int

    def __str__(self) -> str:
        """Return the flags."""
        return f"ports_num={self.dense} and ports_num_for_sparse={self.sparse}"


def ports_section(dense: int, sparse: int) -> Section:
    """Return what the answer to HELLO says of a process with so many ports."""
    return Section.text(_NAME, f"{dense} {sparse}")


def told_range(reply: Message) -> PortRange | None:
    """Return what an answer to HELLO says; None if it says nothing."""
    for section in reply.sections:
        words = section.as_text().split() if section.name == _NAME else []
        if len(words) == len(PortRange._fields) and all(
            word.isascii() and word.isdigit() and len(word) <= _DIGITS for word in words
        ):
            return PortRange(*map(int, words))
    return None
