# SPDX-License-Identifier: Apache-2.0
"""Authenticated encryption of a stream where the job has a key: AES-256-GCM in pieces, and how both sides get there.

    caller                                                           called
      greeting: "PDSS" | version B | 0 B | token 16s | nonce 32s  ->    in the clear; whose connection it is: see below
             <-  greeting: "PDSS" | version B | 1 B | token 16s | nonce 32s
             <-  piece 0, empty: the called side knows the key         looked at before anything else
      piece 0, empty: the caller knows it  ->                          nothing of a caller is read before
      piece 1, 2, ... of messages  <->

    keys:   HKDF-SHA256(salt = caller's nonce | called one's, input = key, info = name | version | sender B | token)
    piece:  length I | kind B | ciphertext, of that length | tag 16s        (little-endian)
    nonce:  how many pieces of this sender came before on this connection, 96 bits, big-endian; it does not travel
    associated data:  version B | sender B | token 16s | length I | kind B

The key is one of the job's: what its parameter server and its ranks make theirs from differ. The token says which of
the job's connections this is: a pserver's invitation, or a session of ranks and two of them.
Each direction of each connection has a key of its own, so that a piece opens at one place alone: not for its sender
(reflection), not on another connection (splicing, replay of a whole one), not at another number (replay, reordering,
loss). Both nonces are random: who knows no key gets nothing but a greeting, and an empty piece that he cannot make.
A key serves 2^22 pieces, then HKDF makes the next one of it, at both ends at once: what was sealed before stays sealed
when that is found out. No key seals 2^32 pieces. Nothing here knows of sockets: see `sealed_stream`.
"""

from __future__ import annotations

import functools
import importlib
import struct
from typing import Any, NamedTuple

from paddle.errors import WireError

PIECE = 256 << 10
"""Most bytes of plaintext in a piece: sealed and opened within the nearest caches."""

MORE, LAST, CONFIRMS = 0, 1, 2
"""Kinds of a piece: its message goes on, ends with it; the one that a handshake ends with."""

CALLER, CALLED = 0, 1
"""Senders."""

TOKEN_BYTES = 16
NONCE_BYTES = 32
MOST_PIECES = 1 << 32

# At most 2^22 * 2^14 blocks of the cipher for each key: 2^36, far from where GCM's bounds wear thin (2^64 of them
# tell it from chance; TLS 1.3 asks for new keys after 2^38).
REKEY_EVERY = 1 << 22

_NAME = b"paddle sealed stream"
_VERSION = 2
_MAGIC = b"PDSS"
_KEY_BYTES = 32
_COUNT_BYTES = 12
_TAG_BYTES = 16
_GREETING = struct.Struct(f"<4sBB{TOKEN_BYTES}s{NONCE_BYTES}s")
_HEADER = struct.Struct("<IB")

GREETING_BYTES = _GREETING.size
HEADER_BYTES = _HEADER.size
OVERHEAD = HEADER_BYTES + _TAG_BYTES
"""Bytes by which a piece is longer than its plaintext."""


class SealError(WireError):
    """A peer that does not know the job's key, or something on the way that changed what it sent."""


class Greeting(NamedTuple):
    """What a connection begins with, in the clear."""

    sender: int
    token: bytes
    nonce: bytes

    def to_bytes(self) -> bytes:
        """Return what travels."""
        return _GREETING.pack(_MAGIC, _VERSION, *self)

    @classmethod
    def read(cls, data: bytes, sender: int) -> Greeting | None:
        """Return what `sender` says; None if it may become a greeting with more bytes.

        Raises:
            SealError: it is none: of another protocol, a plain stream for instance, or version, or our own.
        """
        if data[: len(_MAGIC)] != _MAGIC[: len(data)]:
            raise SealError(f"not a sealed stream: expected {_MAGIC!r}, got {data[: len(_MAGIC)]!r}")
        if len(data) < GREETING_BYTES:
            return None
        _, version, who, token, nonce = _GREETING.unpack(data[:GREETING_BYTES])
        if version != _VERSION:
            raise SealError(f"sealed streams: this side speaks version {_VERSION}, the peer {version}")
        if who != sender:
            raise SealError(
                f"a greeting of sender {who}, expected {sender}: it was sent back, or goes the wrong way"
            )
        return cls(sender, token, nonce)


class _Counted:
    """One direction: its key, and the number of the next piece, which is never used twice."""

    def __init__(
        self, key: bytes, sender: int, token: bytes, *, count: int = 0, rekey_every: int = REKEY_EVERY
    ) -> None:
        """Begin with piece `count`; both ends must have the same arguments."""
        self._where = bytes([_VERSION, sender]) + token
        self._count, self._rekey_every = count, rekey_every
        self._set(key)

    def _set(self, key: bytes) -> None:
        self._key = key
        self._cipher = _library().AESGCM(key)

    def _next(self) -> bytes:
        """Return the nonce of the next piece; from now on its cipher is the one to use.

        Raises:
            SealError: the key is used up.
        """
        count = self._count
        used = count % self._rekey_every
        if used >= MOST_PIECES:
            raise SealError(f"a key of this stream sealed {MOST_PIECES} pieces; it must not be used again")
        if count and not used:
            self._set(_derived(self._key, b"", b"next" + self._where))
        self._count = count + 1
        return count.to_bytes(_COUNT_BYTES, "big")


class Sealer(_Counted):
    """What one side sends on one connection. Not thread-safe."""

    def seal(self, plain: memoryview | bytes, kind: int, into: memoryview) -> int:
        """Write a piece to the beginning of `into`; return how long it is.

        Args:
            plain: at most `PIECE` bytes, contiguous.
            kind: see `LAST`.
            into: `OVERHEAD` more bytes, or more than that.
        """
        length = len(plain)
        header = _HEADER.pack(length, kind)
        into[:HEADER_BYTES] = header
        stop = length + OVERHEAD
        nonce = self._next()
        self._cipher.encrypt_into(nonce, plain, self._where + header, into[HEADER_BYTES:stop])
        return stop


class Opener(_Counted):
    """What one side receives on one connection. Not thread-safe; of no use any more after an error."""

    _is_over = False

    def open(self, piece: memoryview, into: memoryview) -> None:
        """Write the plaintext of a whole piece to `into`, of that very length.

        The library writes before it has looked at the tag: if that is wrong, `into` is all zeros.

        Raises:
            SealError: it is not the next piece that the other side sealed for this one.
        """
        header = bytes(piece[:HEADER_BYTES])
        nonce = self._next()
        try:
            if self._is_over:
                raise SealError("a piece behind one that did not open")
            self._cipher.decrypt_into(nonce, piece[HEADER_BYTES:], self._where + header, into)
        except _library().InvalidTag:
            into[:] = bytes(len(into))
            self._is_over = True
            raise SealError(
                f"piece {self._count - 1} of a stream does not open: it was changed, repeated, left out or put"
                " elsewhere on its way, or sealed with another job's key"
            ) from None


def piece_of(buffer: memoryview, start: int) -> tuple[int, int]:
    """Return (bytes of plaintext, kind) of the piece that begins with these bytes; they are not authentic yet.

    Raises:
        SealError: it is longer than any may be.
    """
    length, kind = _HEADER.unpack_from(buffer, start)
    if length > PIECE or kind > CONFIRMS:
        raise SealError(
            f"not a piece: {length} bytes of kind {kind}, expected at most {PIECE} of 0 to {CONFIRMS}"
        )
    return length, kind


def keys_of(key: bytes, caller: Greeting, called: Greeting) -> tuple[bytes, bytes]:
    """Return the keys of a connection: of what the caller sends, of what the called side sends.

    Raises:
        SealError: the greetings are not of one connection.
    """
    if caller.token != called.token:
        raise SealError("the other side answers for another connection")
    salt = caller.nonce + called.nonce
    of_caller, of_called = (
        _derived(key, salt, bytes([_VERSION, sender]) + caller.token) for sender in (CALLER, CALLED)
    )
    return of_caller, of_called


def is_possible() -> bool:
    """Return whether this Python has what seals: `cryptography`, of a version that writes where it is told."""
    return _library() is not None


def _derived(key: bytes, salt: bytes, info: bytes) -> bytes:
    library = _library()
    hkdf = library.HKDF(library.SHA256(), length=_KEY_BYTES, salt=salt or None, info=_NAME + info)
    return bytes(hkdf.derive(key))


class _Library(NamedTuple):
    AESGCM: Any
    InvalidTag: Any
    HKDF: Any
    SHA256: Any


@functools.cache
def _library() -> Any:
    """Return what we need of `cryptography`, loaded when first asked for; None where there is none."""
    try:
        found = _Library(
            importlib.import_module("cryptography.hazmat.primitives.ciphers.aead").AESGCM,
            importlib.import_module("cryptography.exceptions").InvalidTag,
            importlib.import_module("cryptography.hazmat.primitives.kdf.hkdf").HKDF,
            importlib.import_module("cryptography.hazmat.primitives.hashes").SHA256,
        )
    except ImportError:
        return None
    return found if hasattr(found.AESGCM, "encrypt_into") else None
