# SPDX-License-Identifier: Apache-2.0
"""What seals a stream: made as it is drawn, opens at one place alone, and never uses a nonce twice."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from paddle.sealing import (
    CALLED,
    CALLER,
    CONFIRMS,
    GREETING_BYTES,
    HEADER_BYTES,
    LAST,
    MORE,
    MOST_PIECES,
    NONCE_BYTES,
    OVERHEAD,
    PIECE,
    REKEY_EVERY,
    TOKEN_BYTES,
    Greeting,
    Opener,
    Sealer,
    SealError,
    keys_of,
    piece_of,
)

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
TOKEN, OTHER_TOKEN = bytes(range(TOKEN_BYTES)), bytes(TOKEN_BYTES)


def bytes_of(count: int) -> bytes:
    return np.random.default_rng(count).bytes(count)


def sealed(sealer: Sealer, plain: bytes, kind: int = LAST) -> bytes:
    piece = memoryview(bytearray(len(plain) + OVERHEAD))
    assert sealer.seal(plain, kind, piece) == len(piece)
    return bytes(piece)


def opened(opener: Opener, piece: bytes) -> bytes:
    into = memoryview(bytearray(len(piece) - OVERHEAD))
    opener.open(memoryview(piece), into)
    return bytes(into)


def ends(token: bytes = TOKEN, **more: int) -> tuple[Sealer, Opener]:
    return Sealer(KEY, CALLER, token, **more), Opener(KEY, CALLER, token, **more)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 4096, PIECE - 1, PIECE])
def test_what_was_sealed_opens_as_it_was(size: int) -> None:
    sealer, opener = ends()
    for kind in (MORE, LAST):
        piece = sealed(sealer, bytes_of(size), kind)
        assert piece_of(memoryview(piece), 0) == (size, kind)
        assert opened(opener, piece) == bytes_of(size)


def hkdf(key: bytes, salt: bytes, info: bytes) -> bytes:
    """RFC 5869, one block."""
    whole = hmac.digest(salt, key, hashlib.sha256)
    return hmac.digest(whole, info + b"\x01", hashlib.sha256)


def test_keys_and_pieces_are_made_as_they_are_drawn() -> None:
    greetings = [Greeting(sender, TOKEN, bytes([7 + sender]) * NONCE_BYTES) for sender in (CALLER, CALLED)]
    salt = b"\x07" * NONCE_BYTES + b"\x08" * NONCE_BYTES
    keys = keys_of(b"the job's", *greetings)
    name = b"paddle sealed stream\x02"
    assert keys == tuple(
        hkdf(b"the job's", salt, name + bytes([sender]) + TOKEN) for sender in (CALLER, CALLED)
    )
    sealer = Sealer(keys[CALLED], CALLED, TOKEN, count=258)
    piece = sealed(sealer, b"gradient", MORE)
    header = struct.pack("<IB", 8, 0)
    expected = AESGCM(keys[CALLED]).encrypt(
        bytes(10) + b"\x01\x02", b"gradient", b"\x02\x01" + TOKEN + header
    )
    assert piece == header + expected


def flipped(piece: bytes, at: int) -> bytes:
    return piece[:at] + bytes([piece[at] ^ 4]) + piece[at + 1 :]


def other_kind(piece: bytes) -> bytes:
    return piece[: HEADER_BYTES - 1] + bytes([MORE]) + piece[HEADER_BYTES:]


@pytest.mark.parametrize(
    "change",
    [
        lambda piece: flipped(piece, HEADER_BYTES),
        lambda piece: flipped(piece, len(piece) - 1),
        lambda piece: flipped(piece, len(piece) // 2),
        lambda piece: flipped(piece, 3),
        lambda piece: other_kind(piece),
        lambda piece: piece[:-1],
        lambda piece: piece + b"\0",
    ],
    ids=["first", "last", "middle", "length", "kind", "shorter", "longer"],
)
def test_a_piece_that_was_changed_gives_nothing_of_what_it_held_and_is_the_last(
    change: Callable[[bytes], bytes],
) -> None:
    sealer, opener = ends()
    piece, following = sealed(sealer, b"secret" * 9), sealed(sealer, b"more")
    changed = change(piece)
    into = memoryview(bytearray(b"x" * (len(changed) - OVERHEAD)))
    with pytest.raises(SealError, match="cannot decrypt piece 0 of a stream"):
        opener.open(memoryview(changed), into)
    assert bytes(into) == bytes(len(into))
    for each in (piece, following):
        with pytest.raises(SealError):
            opened(opener, each)


@pytest.mark.parametrize(
    "elsewhere",
    [
        Opener(KEY, CALLED, TOKEN),
        Opener(KEY, CALLER, OTHER_TOKEN),
        Opener(OTHER_KEY, CALLER, TOKEN),
        Opener(KEY, CALLER, TOKEN, count=1),
    ],
    ids=["its sender", "another connection", "another key", "another number"],
)
def test_a_piece_opens_at_one_place_alone(elsewhere: Opener) -> None:
    sealer, opener = ends()
    piece = sealed(sealer, b"gradient")
    with pytest.raises(SealError, match="cannot decrypt piece"):
        opened(elsewhere, piece)
    assert opened(opener, piece) == b"gradient"


@pytest.mark.parametrize(
    ("first", "then"), [((0,), 0), ((), 1), ((0, 1), 0)], ids=["replay", "loss", "older"]
)
def test_pieces_open_once_and_in_their_order(first: tuple[int, ...], then: int) -> None:
    sealer, opener = ends()
    pieces = [sealed(sealer, b"gradient") for _ in range(3)]
    assert all(opened(opener, pieces[number]) == b"gradient" for number in first)
    with pytest.raises(SealError, match="cannot decrypt piece"):
        opened(opener, pieces[then])


def test_keys_of_two_connections_and_directions_have_nothing_in_common() -> None:
    found: list[bytes] = []
    for n in range(2):
        for token in (TOKEN, OTHER_TOKEN):
            greetings = [Greeting(who, token, bytes([n + who]) * NONCE_BYTES) for who in (CALLER, CALLED)]
            found += keys_of(b"the job's", *greetings)
    found += keys_of(b"another", *greetings)
    assert len(set(found)) == 10


def test_another_connections_greeting_makes_no_key() -> None:
    with pytest.raises(SealError, match="different connection"):
        keys_of(
            b"",
            Greeting(CALLER, TOKEN, bytes(NONCE_BYTES)),
            Greeting(CALLED, OTHER_TOKEN, bytes(NONCE_BYTES)),
        )


@pytest.mark.parametrize("first", [REKEY_EVERY - 2, MOST_PIECES - 2, 1 << 64], ids=["2^22", "2^32", "2^64"])
def test_a_key_is_followed_by_the_next_one_at_both_ends(first: int) -> None:
    sealer, opener = ends(count=first)
    without = Opener(KEY, CALLER, TOKEN, count=first, rekey_every=1 << 90)
    pieces = [sealed(sealer, b"gradient") for _ in range(5)]
    assert [opened(opener, piece) for piece in pieces] == [b"gradient"] * 5
    if first % REKEY_EVERY:
        for piece in pieces[:2]:
            opened(without, piece)
    with pytest.raises(SealError):
        opened(without, pieces[2])


def test_no_nonce_is_used_twice_while_keys_follow_each_other() -> None:
    sealer, opener = ends(rekey_every=3)
    pieces = [sealed(sealer, b"the same") for _ in range(20)]
    assert len(set(pieces)) == 20
    assert [opened(opener, piece) for piece in pieces] == [b"the same"] * 20


def test_a_key_that_sealed_all_it_may_seals_and_opens_nothing_more() -> None:
    sealer, opener = ends(count=MOST_PIECES - 2, rekey_every=1 << 40)
    pieces = [sealed(sealer, b"gradient") for _ in range(2)]
    assert [opened(opener, piece) for piece in pieces] == [b"gradient"] * 2
    for _ in range(2):
        with pytest.raises(SealError, match="must not be used again"):
            sealed(sealer, b"gradient")
        with pytest.raises(SealError, match="must not be used again"):
            opened(opener, pieces[0])


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<IB", PIECE + 1, LAST),
        struct.pack("<IB", 0xFFFFFFFF, LAST),
        struct.pack("<IB", 4, CONFIRMS + 1),
    ],
    ids=["one too long", "4 GiB", "an unknown kind"],
)
def test_what_is_no_piece_is_refused_by_its_header(header: bytes) -> None:
    with pytest.raises(SealError, match="not a piece"):
        piece_of(memoryview(header), 0)


GREETING = Greeting(CALLER, TOKEN, b"n" * NONCE_BYTES)


@pytest.mark.parametrize("count", range(GREETING_BYTES))
def test_a_greeting_that_is_not_whole_is_waited_for(count: int) -> None:
    assert Greeting.read(GREETING.to_bytes()[:count], CALLER) is None
    assert Greeting.read(GREETING.to_bytes(), CALLER) == GREETING


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0" * 16, "not a sealed stream"),
        (b"PDST", "not a sealed stream"),
        (b"GET / HTTP/1.1", "not a sealed stream"),
        (flipped(GREETING.to_bytes(), 4), "version 2.* 6"),
        (GREETING._replace(sender=CALLED).to_bytes(), "it was reflected"),
    ],
    ids=["a plain word", "another magic", "HTTP", "another version", "another sender"],
)
def test_what_is_no_greeting_of_the_other_side_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(SealError, match=why):
        Greeting.read(data, CALLER)
