# SPDX-License-Identifier: Apache-2.0
"""The wire format: what goes in comes out, and nothing else comes in."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import WireError
from paddle.pserver.message import Frame, Message, Section, Verb, decode, encode

MESSAGE = Message(
    Verb.PUSH_PULL,
    trainer=3,
    session=2**64 - 1,
    request=17,
    stamp=5,
    value=32,
    extra=1,
    sections=(
        Section("", np.arange(7, dtype=np.float32)),
        Section("emb", np.array([1, 5], np.int64)),
        Section("emb", np.ones((2, 3), np.float32)),
        Section("empty", np.zeros((0, 3), np.float32)),
        Section.text("text", "größer"),
    ),
)


def frames(*, checksum: bool = True) -> list[bytes]:
    return [bytes(frame) for frame in encode(MESSAGE, checksum=checksum)]


def test_a_message_comes_back_as_it_was() -> None:
    back = decode(frames(), checksum=True)
    for name in ("verb", "trainer", "session", "request", "stamp", "value", "extra"):
        assert getattr(back, name) == getattr(MESSAGE, name)
    for ours, theirs in zip(MESSAGE.sections, back.sections, strict=True):
        assert (ours.name, ours.array.dtype, ours.array.shape) == (
            theirs.name,
            theirs.array.dtype,
            theirs.array.shape,
        )
        assert np.array_equal(ours.array, theirs.array)
    assert back.section("text").as_text() == "größer"


def test_arrays_are_views_on_what_was_sent_and_received() -> None:
    array = np.arange(4, dtype=np.float32)
    out = encode(Message(Verb.PULL, sections=(Section("", array),)), checksum=False)
    assert isinstance(out[1], memoryview)
    assert np.shares_memory(np.frombuffer(out[1], np.float32), array)
    assert np.shares_memory(decode(out, checksum=False).section("").array, array)


@pytest.mark.parametrize("checksum", [True, False])
def test_no_single_flipped_bit_passes_the_checksum_and_none_crashes(checksum: bool) -> None:
    good = frames(checksum=checksum)
    for number, frame in enumerate(good):
        for bit in range(8 * len(frame)):
            bad = bytearray(frame)
            bad[bit // 8] ^= 1 << bit % 8
            spoiled: list[Frame] = [*good[:number], bytes(bad), *good[number + 1 :]]
            if checksum:
                with pytest.raises(WireError):
                    decode(spoiled, checksum=True)
            else:
                try:
                    decode(spoiled, checksum=False)
                except WireError:
                    continue


def test_mutated_frames_end_in_a_message_or_a_wire_error() -> None:
    rng = random.Random(20)
    good = frames(checksum=False)
    for _ in range(3000):
        bad = [bytearray(frame) for frame in good]
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
        try:
            decode([bytes(frame) for frame in bad], checksum=False)
        except WireError:
            continue


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
def test_what_is_no_message_is_refused(garbage: list[Frame]) -> None:
    with pytest.raises(WireError, match="not a message"):
        decode(garbage, checksum=False)


def test_a_peer_of_another_wire_version_is_told_both_versions() -> None:
    header, *rest = frames(checksum=False)
    other = header[:4] + b"\x63" + header[5:]
    with pytest.raises(WireError, match="this side speaks 1, the peer 99"):
        decode([other, *rest], checksum=False)


def test_a_frame_more_or_less_than_announced_is_refused() -> None:
    for wrong in (frames()[:-1], [*frames(), b""]):
        with pytest.raises(WireError, match="array frames"):
            decode(wrong, checksum=False)


def test_no_pickle_is_read_anywhere_in_the_package() -> None:
    package = Path(__file__).resolve().parents[3] / "runtime" / "paddle" / "pserver"
    sources = list(package.glob("*.py"))
    assert sources
    assert [path.name for path in sources if "import pickle" in path.read_text(encoding="utf-8")] == []
