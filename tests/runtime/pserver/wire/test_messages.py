# SPDX-License-Identifier: Apache-2.0
"""The wire format: what goes in comes out, and nothing else comes in."""

from __future__ import annotations

import contextlib
import pickle
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import WireError
from paddle.pserver.wire.arithmetic import SMALL_BYTES
from paddle.pserver.wire.codec import decode, encode, parse
from paddle.pserver.wire.message import WIRE_VERSION, DamagedError, Frame, Message, Section
from paddle.pserver.wire.verbs import LAYOUTS, Chunk, Pull, PushPull, Status, Step, Values, Verb

MESSAGE = Message(
    PushPull(32, chunks=1),
    trainer=3,
    session=2**64 - 1,
    request=17,
    stamp=5,
    sections=(
        Section("", np.arange(7, dtype=np.float32)),
        Section("emb", np.array([1, 5], np.int64)),
        Section("emb", np.ones((2, 3), np.float32)),
        Section("empty", np.zeros((0, 3), np.float32)),
        Section.text("text", "größer"),
    ),
)


def frames() -> list[bytes]:
    return [bytes(frame) for frame in encode(MESSAGE)]


def test_a_message_comes_back_as_it_was() -> None:
    back = decode(frames())
    for name in ("verb", "record", "trainer", "session", "request", "stamp"):
        assert getattr(back, name) == getattr(MESSAGE, name)
    for ours, theirs in zip(MESSAGE.sections, back.sections, strict=True):
        assert (ours.name, ours.array.dtype, ours.array.shape) == (
            theirs.name,
            theirs.array.dtype,
            theirs.array.shape,
        )
        assert np.array_equal(ours.array, theirs.array)
    assert back.section("text").as_text() == "größer"


@pytest.mark.parametrize("verb", Verb)
def test_the_record_of_every_verb_comes_back_as_it_was(verb: Verb) -> None:
    kind, fields = LAYOUTS[verb]
    highest = {"Q": 2**64 - 1, "q": 2**63 - 1, "?": True}
    for record in (kind(), kind._make(highest[code] for code in fields)):
        back = decode(encode(Message(record)))
        assert (type(back.record), back.record, back.verb) == (kind, record, verb)
        assert all(type(ours) is type(theirs) for ours, theirs in zip(record, back.record, strict=True))


def test_a_field_that_cannot_have_its_value_is_refused_by_name() -> None:
    flagged, signed = (bytes(encode(Message(record))[0]) for record in (Step(), Status()))
    with pytest.raises(WireError, match="STEP: expected a flag of 0 or 1, got 2"):
        decode(sealed(flagged[:-1] + b"\x02", []))
    with pytest.raises(WireError, match="STATUS: expected a number of at least -1, got -2"):
        decode(sealed(signed[:-8] + struct.pack("<q", -2), []))
    with pytest.raises(WireError, match=r"at least 48 bytes, got 47"):
        decode(sealed(signed[:-1], []))
    with pytest.raises(WireError, match=r"header: expected 48 bytes, got 49"):
        decode(sealed(signed + b"\0", []))
    with pytest.raises(WireError, match=r"PushPull\(num_samples=18446744073709551616"):
        encode(Message(PushPull(2**64)))


def test_a_message_is_not_taken_for_one_of_another_verb() -> None:
    assert Message(Values(3)).expect(Values).number == 3
    with pytest.raises(WireError, match="expected a message CHUNK, got VALUES"):
        Message(Values(3)).expect(Chunk)


def test_arrays_are_views_of_what_is_received_and_large_ones_of_what_was_sent() -> None:
    for size in (4, SMALL_BYTES // 4):
        array = np.arange(size, dtype=np.float32)
        out = encode(Message(Pull(), sections=(Section("", array),)))
        sent, received = np.frombuffer(out[1], np.float32), decode(out).section("").array
        assert np.shares_memory(sent, array) is (size > 4)
        assert np.shares_memory(received, sent)
        assert np.array_equal(received, array)


def test_no_single_flipped_bit_gets_through() -> None:
    for spoiled in with_one_bit_flipped():
        with pytest.raises(WireError):
            decode(spoiled)


def test_even_behind_a_right_checksum_a_flipped_bit_does_no_harm() -> None:
    for spoiled in with_one_bit_flipped():
        with contextlib.suppress(WireError):
            parse(spoiled)


def with_one_bit_flipped() -> Iterator[list[Frame]]:
    good = frames()
    for number, frame in enumerate(good):
        for bit in range(8 * len(frame)):
            bad = bytearray(frame)
            bad[bit // 8] ^= 1 << bit % 8
            yield [*good[:number], bytes(bad), *good[number + 1 :]]


def test_mutated_frames_end_in_a_message_or_a_wire_error() -> None:
    rng = random.Random(20)
    for _ in range(3000):
        bad = [bytearray(frame) for frame in frames()]
        for _ in range(rng.randint(1, 6)):
            victim = rng.choice(bad)
            kind = rng.randrange(4)
            if kind == 0 and victim:
                victim[rng.randrange(len(victim))] = rng.randrange(256)
            elif kind == 1 and victim:
                del victim[rng.randrange(len(victim)) :]
            elif kind == 2:
                victim += rng.randbytes(rng.randint(1, 20))
            else:
                rng.shuffle(bad)
        with contextlib.suppress(WireError):
            parse([bytes(frame) for frame in bad])


def test_frames_of_two_messages_make_none() -> None:
    one, two = (
        encode(Message(Pull(), request=n, sections=(Section("", np.full(3, n, np.float32)),))) for n in (1, 2)
    )
    with pytest.raises(DamagedError):
        decode([one[0], two[1]])


@pytest.mark.parametrize(
    "garbage",
    [
        [],
        [b""],
        [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 5],
        [b"\x16\x03\x01" + bytes(200)],
        [bytes(1 << 21)],
        [pickle.dumps({"a": 1}) * 20],
    ],
)
def test_a_malformed_message_is_refused(garbage: list[Frame]) -> None:
    with pytest.raises(WireError, match="not a message"):
        decode(garbage)


def test_a_peer_of_another_wire_version_is_told_both_versions() -> None:
    with pytest.raises(WireError, match=f"this side uses {WIRE_VERSION}.* peer uses 99") as caught:
        decode(sealed(frames()[0][:4] + b"\x63" + frames()[0][5:], frames()[1:]))
    assert not isinstance(caught.value, DamagedError)


def sealed(header: bytes, rest: list[bytes]) -> list[Frame]:
    """Put the right checksum into a header."""
    bare = header[:12] + bytes(4) + header[16:]
    return [header[:12] + struct.pack("<I", zlib.crc32(bare)) + header[16:], *rest]


def test_a_frame_more_or_less_than_announced_is_refused() -> None:
    for rest in (frames()[1:-1], [*frames()[1:], b""]):
        with pytest.raises(WireError, match="array frames"):
            decode(sealed(frames()[0], rest))


def test_no_pickle_is_read_anywhere_in_the_package() -> None:
    package = Path(__file__).resolve().parents[4] / "runtime" / "paddle" / "pserver"
    sources = list(package.rglob("*.py"))
    assert sources
    assert [path.name for path in sources if "import pickle" in path.read_text(encoding="utf-8")] == []
