# SPDX-License-Identifier: Apache-2.0
"""The replay buffer: over however many connections a stream goes, what comes out is what went in."""

from __future__ import annotations

import random

import pytest

from paddle_node.contract.replay import KEPT, ReplayBuffer


def test_what_was_said_can_be_read_from_any_position_that_is_not_acknowledged() -> None:
    buffer = ReplayBuffer()
    for part in (b"abc", b"", b"defg", b"h"):
        buffer.append(part)
    for position in range(9):
        read = b""
        while chunk := bytes(buffer.read(position + len(read), 2)):
            read += chunk
        assert read == b"abcdefgh"[position:]


def test_what_is_acknowledged_is_forgotten() -> None:
    buffer = ReplayBuffer()
    buffer.append(b"abcdef")
    buffer.acknowledge(4)
    buffer.acknowledge(2)
    assert bytes(buffer.read(4, 10)) == b"ef"
    with pytest.raises(ValueError, match="bytes 4 to 6"):
        buffer.read(3, 1)


@pytest.mark.parametrize("position", [7, -1])
def test_what_was_never_said_cannot_have_come(position: int) -> None:
    buffer = ReplayBuffer()
    buffer.append(b"abcdef")
    with pytest.raises(ValueError, match="6 were sent"):
        buffer.acknowledge(position)
    with pytest.raises(ValueError, match="bytes 0 to 6"):
        buffer.read(position, 1)


def test_a_buffer_is_full_until_enough_has_come() -> None:
    buffer = ReplayBuffer()
    buffer.append(b"x" * KEPT)
    assert buffer.is_full
    buffer.acknowledge(1)
    assert not buffer.is_full


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_or_doubled_over_connections_that_break_anywhere(seed: int) -> None:
    dice = random.Random(seed)
    buffer, said, heard = ReplayBuffer(), b"", b""
    position = told = 0
    for _ in range(400):
        match dice.randrange(4):
            case 0:
                part = dice.randbytes(dice.randrange(50))
                buffer.append(part)
                said += part
            case 1:  # some bytes are on their way, and come
                part = bytes(buffer.read(position, dice.randrange(1, 60)))
                position += len(part)
                heard += part
            case 2:  # some are on their way, and are lost with the connection
                position += len(buffer.read(position, dice.randrange(1, 60)))
                buffer.acknowledge(len(heard))
                position = len(heard)
            case 3:
                told = dice.randint(told, len(heard))
                buffer.acknowledge(told)
                told = max(told, buffer.acked)
    while part := bytes(buffer.read(position, 7)):
        position, heard = position + len(part), heard + part
    assert heard == said
