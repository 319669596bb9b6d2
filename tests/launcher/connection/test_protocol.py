# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_cluster.connection.carrier import MAX_NOISE, Decoder
from paddle_node.contract.frames import MAX_BODY, MAX_HEADER, FrameError, Message, encode
from paddle_node.contract.opening import marker
from paddle_node.contract.to_launcher import TO_LAUNCHER

NONCE = "0123456789abcdef"
TEXT = st.text(st.characters(codec=None), max_size=30)  # surrogates too: they stand for bytes
FIELDS = st.dictionaries(
    TEXT.filter(lambda name: name != "kind"), TEXT | st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=5
)
MESSAGES = st.lists(st.builds(Message, st.sampled_from(sorted(TO_LAUNCHER)), FIELDS, st.binary(max_size=200)))


def started() -> Decoder:
    decoder = Decoder(NONCE)
    assert decoder.feed(marker(NONCE)) == []
    return decoder


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


@given(messages=MESSAGES, noise=st.binary(max_size=100), cuts=st.lists(st.integers(0, 10_000), max_size=20))
def test_what_is_encoded_is_decoded_however_it_is_cut(
    messages: list[Message], noise: bytes, cuts: list[int]
) -> None:
    data = noise + marker(NONCE) + b"".join(encode(*message) for message in messages)
    decoder = Decoder(NONCE)
    assert [message for piece in in_pieces(data, cuts) for message in decoder.feed(piece)] == messages


@pytest.mark.parametrize(
    "noise", [b"", b"Welcome!\n", b"PADDLE-AGENT-2 else\n", b"PADDLE-AGENT-2 012345", b"\0\xff" * 5000]
)
def test_noise_before_the_marker_is_skipped(noise: bytes) -> None:
    decoder = Decoder(NONCE)
    messages = []
    for byte in noise + marker(NONCE) + encode("pong", {"seq": 1}):
        messages += decoder.feed(bytes((byte,)))
    assert messages == [Message("pong", {"seq": 1}, b"")]


def test_the_end_of_the_noise_is_kept_for_messages() -> None:
    decoder = Decoder(NONCE)
    decoder.feed(b"x" * 5000 + b"this account is closed\n")
    assert decoder.noise.endswith("this account is closed")
    assert len(decoder.noise) <= 500


def test_endless_noise_is_an_error() -> None:
    decoder = Decoder(NONCE)
    for _ in range(MAX_NOISE // 4096):
        decoder.feed(b"\n" * 4096)
    with pytest.raises(FrameError, match="the agent's first line"):
        decoder.feed(b"\n" * 4096)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (struct.pack("!IQ", MAX_HEADER + 1, 0), "a frame announces"),
        (struct.pack("!IQ", 2, MAX_BODY + 1), "a frame announces"),
        (struct.pack("!IQ", 2, 2**63), "a frame announces"),
        (struct.pack("!IQ", 1, 0) + b"{", "not JSON"),
        (struct.pack("!IQ", 2, 0) + b"\xff\xff", "not JSON"),
        (struct.pack("!IQ", 100_000, 0) + b"[" * 100_000, "not JSON"),
        (struct.pack("!IQ", 2, 0) + b"[]", "not JSON: expected a JSON object"),
        (struct.pack("!IQ", 2, 0) + b"{}", "the agent must not send"),
        (struct.pack("!IQ", 16, 0) + b'{"kind":"launch"', "not JSON"),
        (struct.pack("!IQ", 15, 0) + b'{"kind":"spam"}', "the agent must not send messages of kind 'spam'"),
        (struct.pack("!IQ", 11, 0) + b'{"kind":[]}', "the agent must not send"),
        (struct.pack("!IQ", 15, 0) + b'{"kind":"stop"}', "the agent must not send messages of kind 'stop'"),
    ],
)
def test_what_the_protocol_does_not_allow_is_an_error(data: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=why):
        started().feed(data)


def test_a_frame_over_the_limits_is_not_sent() -> None:
    with pytest.raises(FrameError, match="too long"):
        encode("line", {}, b"x" * (MAX_BODY + 1))
    with pytest.raises(FrameError, match="too long"):
        encode("line", {"x": "x" * MAX_HEADER})


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_mutated_frames_cause_only_messages_or_frame_errors(seed: int) -> None:
    generator = random.Random(seed)
    good = b"".join(
        encode("line", {"proc": "p", "n": [1, None, {"a": "b"}]}, b"some bytes\n") for _ in range(20)
    )
    for _ in range(50):
        data = bytearray(good)
        for _ in range(generator.randrange(1, 10)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        decoder = started()
        try:
            for start in range(0, len(data), 97):
                decoder.feed(bytes(data[start : start + 97]))
        except FrameError:
            continue
