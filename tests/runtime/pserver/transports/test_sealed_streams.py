# SPDX-License-Identifier: Apache-2.0
"""Sealed streams over real sockets: what comes through, and what somebody between can do, which is to end it."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from paddle.errors import WireError
from paddle.pserver.transports.byte_stream import StreamReader, StreamWriter
from paddle.pserver.wire.codec import decode
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import Ping, Values
from paddle.sealed_stream import Handshake, SealedSink, SealedSource
from paddle.sealing import (
    CALLED,
    CALLER,
    HEADER_BYTES,
    MOST_PIECES,
    OVERHEAD,
    PIECE,
    REKEY_EVERY,
    Opener,
    Sealer,
    SealError,
)
from tests.runtime.pserver.transports.man_in_the_middle import (
    ANSWER_S,
    JOB,
    OTHER_WORD,
    WORD,
    End,
    Middle,
    connection,
    waiting,
    went_on,
)

SIZES = [
    (),
    (0,),
    (1,),
    (5,),
    (4090,),
    (PIECE // 4,),
    (PIECE // 4 + 1,),
    (PIECE,),
    (3, 0, 300_000, 1),
    (2000,) * 9,
]


@pytest.fixture
def middle() -> Iterator[Middle]:
    with contextlib.closing(Middle()) as found:
        found.greet()
        yield found


@pytest.fixture
def joined() -> Iterator[tuple[End, End]]:
    """A trainer and a server without anybody between."""
    near, far = connection()
    with near, far:
        trainer, server = End(near, Handshake(near, JOB, WORD)), End(far, Handshake(far, JOB))
        went_on(server.handshake)
        assert went_on(trainer.handshake)
        assert went_on(server.handshake)
        yield trainer, server


def message(sizes: tuple[int, ...], number: int = 0) -> Message:
    arrays = [np.random.default_rng(n + number).standard_normal(n).astype(np.float32) for n in sizes]
    return Message(Values(number), sections=tuple(Section(f"s{i}", array) for i, array in enumerate(arrays)))


def through(writer: StreamWriter, reader: StreamReader) -> Message:
    while (frames := reader.read()) is None:
        writer.flush()
    return decode(frames, reader.found)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_messages_of_any_size_arrive_whole_and_in_order(
    joined: tuple[End, End], sizes: tuple[int, ...]
) -> None:
    for one, other in (joined, joined[::-1]):
        writer, reader = one.writer(), other.reader()
        for number in range(3):
            assert writer.put(message(sizes, number))
        for number in range(3):
            found, expected = through(writer, reader), message(sizes, number)
            assert found.record == expected.record
            assert [s.array.tobytes() for s in found.sections] == [
                s.array.tobytes() for s in expected.sections
            ]
        assert writer.is_empty


@pytest.mark.parametrize("size", [50_000, 4096, 1 << 18, (1 << 18) + 2])
def test_an_array_is_opened_where_it_belongs_and_looked_at_meanwhile(
    joined: tuple[End, End], size: int
) -> None:
    home = np.zeros(size, np.float32)
    writer, reader = joined[0].writer(), joined[1].reader(home.data.cast("B"))
    sent = message((size,))
    writer.put(sent)
    got = through(writer, reader).sections[0]
    assert got.checksum == sent.sections[0].checksum
    assert np.shares_memory(got.array, home)
    assert np.array_equal(home, sent.sections[0].array)


def test_what_waits_for_room_is_sealed_when_there_is_some_and_too_much_is_refused(
    joined: tuple[End, End],
) -> None:
    writer, reader = joined[0].writer(), joined[1].reader()
    sections = message((PIECE,)).sections
    accepted = 0
    while writer.put(Message(Values(accepted), sections=sections)):
        accepted += 1
    assert not writer.is_empty
    for number in range(accepted):
        assert through(writer, reader).expect(Values).number == number
    assert writer.is_empty


def test_a_short_message_is_told_of_after_one_that_came_in_halves(middle: Middle) -> None:
    """The socket waited for a whole half: who did not look again would not hear of less."""
    writer, reader = middle.trainer.writer(), middle.server.reader()
    writer.put(message((3000,)))
    (piece,) = middle.pieces(CALLER, 1)
    middle.give(CALLED, piece[:100])
    while waiting(middle.server.sock):
        assert reader.read() is None
    middle.give(CALLED, piece[100:])
    while (frames := reader.read()) is None:
        assert select.select([middle.server.sock], [], [], ANSWER_S)[0]
    assert decode(frames).sections[0].array.size == 3000
    while reader.has_more:
        assert reader.read() is None
    writer.put(message((1,), 7))
    middle.give(CALLED, middle.pieces(CALLER, 1)[0])
    assert select.select([middle.server.sock], [], [], ANSWER_S)[0]
    assert decode(reader.read() or []).expect(Values).number == 7


def swapped(pieces: list[bytes]) -> list[bytes]:
    return [pieces[1], pieces[0], *pieces[2:]]


def flipped(at: int) -> Callable[[list[bytes]], list[bytes]]:
    def flip(pieces: list[bytes]) -> list[bytes]:
        changed = bytearray(pieces[1])
        changed[at] ^= 1
        return [pieces[0], bytes(changed), *pieces[2:]]

    return flip


TAMPERED: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "flips a length": flipped(0),
    "flips a kind": flipped(HEADER_BYTES - 1),
    "flips what is within": flipped(HEADER_BYTES + 100),
    "flips a tag": flipped(-1),
    "replays": lambda pieces: [pieces[0], *pieces],
    "reorders": swapped,
    "leaves out the first": lambda pieces: pieces[1:],
    "leaves out one within": lambda pieces: [pieces[0], *pieces[2:]],
    "puts a piece of nothing before": lambda pieces: [bytes(OVERHEAD), *pieces],
    "puts noise before": lambda pieces: [b"\xff" * 64, *pieces],
}


@pytest.mark.parametrize("by", [CALLER, CALLED], ids=["up", "down"])
@pytest.mark.parametrize("what", TAMPERED)
def test_tampering_ends_the_connection_and_delivers_no_message(middle: Middle, what: str, by: int) -> None:
    sender, receiver = (middle.trainer, middle.server)[:: 1 if by == CALLER else -1]
    sender.writer().put(message((PIECE // 4 * 2,)))
    reader = receiver.reader()
    middle.give(1 - by, b"".join(TAMPERED[what](middle.pieces(by, 3))))
    with pytest.raises(SealError, match=r"cannot decrypt piece|nonempty piece|not a piece"):
        read_until_told(reader)


def read_until_told(reader: StreamReader) -> None:
    while reader.read() is None:
        pass
    raise AssertionError("a message came out of what was tampered with")


@pytest.mark.parametrize("by", [CALLER, CALLED], ids=["up", "down"])
def test_a_reflected_piece_is_not_decrypted(middle: Middle, by: int) -> None:
    sender = middle.trainer if by == CALLER else middle.server
    sender.writer().put(Message(Ping()))
    middle.give(by, b"".join(middle.pieces(by, 1)))
    with pytest.raises(SealError, match="cannot decrypt piece"):
        read_until_told(sender.reader())


@pytest.mark.parametrize("word", [WORD, OTHER_WORD], ids=["same word", "another word"])
def test_a_piece_of_another_connection_of_the_job_does_not_open(middle: Middle, word: bytes) -> None:
    with contextlib.closing(Middle(word=word)) as other:
        other.greet()
        for each in (middle, other):
            each.trainer.writer().put(Message(Ping()))
        middle.give(CALLED, b"".join(other.pieces(CALLER, 1)))
        with pytest.raises(SealError, match="cannot decrypt piece"):
            read_until_told(middle.server.reader())


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        (lambda pieces: b"".join(pieces[:2]), "closed in the middle of a message"),
        (lambda pieces: b"".join(pieces)[:-1], "closed in the middle of a message"),
        (lambda pieces: pieces[0] + pieces[1][:3], "closed in the middle of a message"),
        (lambda pieces: b"", "closed"),
    ],
    ids=["between pieces", "within the last", "within a length", "before the message"],
)
def test_a_truncated_message_is_reported(
    middle: Middle, cut: Callable[[list[bytes]], bytes], why: str
) -> None:
    middle.trainer.writer().put(message((PIECE // 4 * 2,)))
    middle.give(CALLED, cut(middle.pieces(CALLER, 3)))
    middle.to_server.close()
    with pytest.raises(ConnectionResetError, match=why):
        read_until_told(middle.server.reader())


# -- counters


@pytest.mark.parametrize("first", [REKEY_EVERY - 3, MOST_PIECES - 3], ids=["2^22", "2^32"])
def test_keys_follow_each_other_within_a_message(first: int) -> None:
    near, far = connection()
    with near, far:
        key = b"k" * 32
        writer = StreamWriter(SealedSink(near, Sealer(key, CALLER, WORD, count=first)))
        reader = StreamReader(SealedSource(far, Opener(key, CALLER, WORD, count=first)))
        for number in range(3):
            expected = message((PIECE,), number)
            writer.put(expected)
            found = through(writer, reader)
            assert np.array_equal(found.sections[0].array, expected.sections[0].array)


def test_a_stream_whose_key_is_used_up_ends_before_it_is_used_again() -> None:
    near, far = connection()
    with near, far:
        at = {"count": MOST_PIECES - 1, "rekey_every": 1 << 40}
        writer = StreamWriter(SealedSink(near, Sealer(b"k" * 32, CALLER, WORD, **at)))
        assert writer.put(Message(Ping()))
        with pytest.raises(WireError, match="must not be used again"):
            writer.put(Message(Ping()))
