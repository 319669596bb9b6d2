# SPDX-License-Identifier: Apache-2.0
"""Chunks on a stream: their short form and the general one are the same, and they are looked at while they arrive."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import numpy as np
import pytest

from paddle.pserver.transports.byte_stream import PlainSink, PlainSource, StreamReader, StreamWriter
from paddle.pserver.wire.arithmetic import SMALL_BYTES, Findings, inspect
from paddle.pserver.wire.arrival import Arrival, ReusedMemory
from paddle.pserver.wire.codec import decode, decode_any, decode_short, encode_any, encode_short
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import Chunk, Ok, PullRows, PushPull, Record, Values

LARGE = 1 << 17
CHUNK = Message(Chunk(12), 3, 2**63 + 5, 7, 2**64 - 1)


def chunk(count: int, seed: int = 1) -> Message:
    values = np.random.default_rng(seed).standard_normal(count).astype(np.float32)
    return CHUNK._replace(sections=(Section("", values),))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    with left, right:
        yield left, right


@pytest.mark.parametrize("record", [Chunk(1 << 40), Values(12), PushPull(3, 0, False, True), Ok(9, 1)])
@pytest.mark.parametrize("count", [1, 7, LARGE])
def test_the_short_form_writes_and_reads_what_the_general_one_does(record: Record, count: int) -> None:
    message = chunk(count)._replace(record=record)
    header, frame = encode_any(message)
    assert encode_short(message) == header
    found = inspect(frame) if len(frame) >= SMALL_BYTES else None
    got, wanted = decode_short(header, frame, found), decode_any([header, frame])
    assert got is not None
    assert got.verb == wanted.verb == message.verb
    assert got[:5] == wanted[:5] == message[:5]
    assert np.array_equal(got.sections[0].array, message.sections[0].array)


@pytest.mark.parametrize(
    "other",
    [
        CHUNK,
        CHUNK._replace(record=PullRows(), sections=(Section("", np.zeros(4, np.float32)),)),
        CHUNK._replace(sections=(Section("name", np.zeros(4, np.float32)),)),
        CHUNK._replace(sections=(Section("", np.zeros(4, np.float64)),)),
        CHUNK._replace(sections=(Section("", np.zeros((2, 2), np.float32)),)),
        CHUNK._replace(sections=(Section("", np.zeros(2, np.float32)),) * 2),
    ],
    ids=["no array", "another verb", "a name", "doubles", "two dimensions", "two arrays"],
)
def test_every_other_message_is_left_to_the_general_form(other: Message) -> None:
    assert encode_short(other) is None
    header, *frames = encode_any(other)
    for frame in frames[:1]:
        assert decode_short(header, frame, inspect(frame)) is None


@pytest.mark.parametrize("count", [64, SMALL_BYTES // 4])
def test_whatever_bit_of_a_chunk_is_flipped_the_general_form_is_to_tell(count: int) -> None:
    header, frame = encode_any(chunk(count))
    assert decode_short(header, frame) is not None
    for at in range(len(header)):
        damaged = bytearray(header)
        damaged[at] ^= 1 << at % 8
        assert decode_short(bytes(damaged), frame, inspect(frame)) is None
        assert decode_short(bytes(damaged), frame) is None
    for at in range(len(frame)):
        other = bytearray(frame)
        other[at] ^= 1 << at % 8
        assert decode_short(header, memoryview(other)) is None
    found = inspect(frame)
    assert (decode_short(header, frame, found) is None) is (len(frame) < SMALL_BYTES)
    assert decode_short(header, frame, Findings(found.checksum ^ 1, is_finite=True)) is None
    assert decode_short(header, frame[:-4], found) is None


@pytest.mark.parametrize("strange", [None, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("first", [0, 8, 100_001, 4 * LARGE - 3])
def test_an_array_is_known_when_it_is_here_as_if_looked_at_as_a_whole(
    ends: tuple[socket.socket, socket.socket], strange: float | None, first: int
) -> None:
    message = chunk(LARGE)
    if strange is not None:
        message.sections[0].array[-1] = strange
    data = bytes(message.sections[0].frame)
    place = memoryview(bytearray(len(data)))
    arrival, behind = Arrival.begin(place), memoryview(bytearray(64))
    assert arrival is not None
    place[:first] = data[:first]
    got, more, rest = first, 0, data[first:] + b"behind"
    while got < len(data):
        rest = rest[ends[0].send(rest[:70_003]) :]
        got, more = arrival.receive(ends[1].fileno(), got, behind)
        assert (arrival.findings is None) == (got < len(data))
    assert arrival.findings == inspect(data)
    assert place == data
    ends[0].sendall(rest + b".")
    assert bytes(behind[:more]) + ends[1].recv(64) == b"behind."


def test_an_array_across_words_is_received_as_any_other(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    message = chunk(LARGE)
    memory = np.zeros(4 * LARGE + 64, np.uint8)
    start = -memory.ctypes.data % 64 + 4
    home = memory[start : start + 4 * LARGE].data
    writer, reader = StreamWriter(PlainSink(ends[0])), StreamReader(PlainSource(ends[1]), lambda header: home)
    writer.put(message)
    while (frames := reader.read()) is None:
        writer.flush()
    assert reader.found == inspect(message.sections[0].frame)
    assert np.array_equal(decode(frames).sections[0].array, message.sections[0].array)
    assert home == message.sections[0].frame


def test_messages_about_as_long_as_a_reader_takes_at_once_follow_each_other_on_a_stream(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    writer, reader = StreamWriter(PlainSink(ends[0])), StreamReader(PlainSource(ends[1]))
    for count in [*range(4060, 4100), 1, 2000, 2000, 2000, *range(4100, 4060, -1)]:
        sent = [chunk(count, count), CHUNK, chunk(3)._replace(record=PushPull())]
        for message in sent:
            assert writer.put(message)
        for message in sent:
            while (frames := reader.read()) is None:
                writer.flush()
            found = decode(frames, reader.found)
            assert found[:5] == message[:5]
            assert [s.array.tobytes() for s in found.sections] == [
                s.array.tobytes() for s in message.sections
            ]
        assert not reader.has_more


def test_chunks_and_other_messages_follow_each_other_on_a_stream(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    sent = [
        chunk(LARGE, 1),
        CHUNK,
        chunk(LARGE, 2),
        chunk(5),
        chunk(LARGE, 3)._replace(record=PullRows()),
        CHUNK,
    ]
    writer, reader = StreamWriter(PlainSink(ends[0])), StreamReader(PlainSource(ends[1]))
    for message in sent:
        assert writer.put(message)
    for message in sent:
        while (frames := reader.read()) is None:
            writer.flush()
        large = bool(message.sections) and message.sections[0].array.size == LARGE
        assert reader.found == (inspect(message.sections[0].frame) if large else None)
        got = decode(frames, reader.found)
        assert got.verb == message.verb
        assert got[:5] == message[:5]
        assert all(
            np.array_equal(a.array, b.array) for a, b in zip(got.sections, message.sections, strict=True)
        )


@pytest.mark.parametrize("record", [Chunk(1), Values(1), PushPull(), Ok()])
def test_only_after_a_large_chunk_a_reader_expects_the_next_message_before_the_socket_reports_it(
    ends: tuple[socket.socket, socket.socket], record: Record
) -> None:
    message = chunk(LARGE)._replace(record=record)
    many = CHUNK._replace(record=PullRows(), sections=(Section("x" * 200, np.zeros(1, np.int64)),) * 200)
    writer, reader = StreamWriter(PlainSink(ends[0])), StreamReader(PlainSource(ends[1]))
    for sent in (message, many, message):
        assert writer.put(sent)
        while (frames := reader.read()) is None:
            writer.flush()
        assert encode_any(decode(frames, reader.found)) == encode_any(sent)
    assert reader.has_more is isinstance(record, Chunk | Values)
    assert reader.read() is None


def test_memory_is_used_again_only_when_nobody_refers_to_it_any_more() -> None:
    memory = ReusedMemory()
    first, second = (np.frombuffer(memory.take(4096), np.float32) for _ in range(2))
    assert not np.shares_memory(first, second)
    part, place = first[5:9], first.ctypes.data
    del first
    third = np.frombuffer(memory.take(4096), np.float32)
    assert not np.shares_memory(part, third)
    del part
    assert np.frombuffer(memory.take(4096), np.float32).ctypes.data == place
    assert all(array.ctypes.data % 64 == 0 for array in (second, third))
    assert len(memory.take(100)) == 100


def test_where_references_cannot_be_told_apart_no_memory_is_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("paddle.pserver.wire.arrival._FREE", -1)
    memory = ReusedMemory()
    places = {memory.take(4096).obj.ctypes.data for _ in range(3)}  # type: ignore[attr-defined]
    kept = memory._kept
    assert len(places) == len(kept) == 3
