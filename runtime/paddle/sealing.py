# SPDX-License-Identifier: Apache-2.0
"""Encryption of the streams of jobs with a key: AES-256-GCM in pieces, and key derivation by HKDF (RFC 5869).

    caller                                                           called
      greeting: "PDSS" | version B | 0 B | token 16s | nonce 32s  ->    in the clear; identifies the connection
             <-  greeting: "PDSS" | version B | 1 B | token 16s | nonce 32s
             <-  piece 0, empty: the called side knows the key         checked before anything else
      piece 0, empty: the caller knows it  ->                          no data of a caller is read before
      piece 1, 2, ... of messages  <->

    keys:   HKDF-SHA256(salt = caller's nonce | called one's, input = key, info = name | version | sender B | token)
    piece:  length I | kind B | ciphertext, of that length | tag 16s        (little-endian)
    nonce:  number of earlier pieces of this sender on this connection, 96 bits, big-endian; it is not sent
    associated data:  version B | sender B | token 16s | length I | kind B

`key` is one of the job's keys; its parameter servers and its ranks use different ones. The token identifies the
connection within the job: it is a pserver's invitation, or a session of ranks and two of them. Each direction of each
connection has its own key, so that a piece opens in one place only: not at its sender (reflection), not on another
connection (splicing, replay of a whole one), not at another number (replay, reordering, loss). Both nonces are random:
a peer without the key gets only a greeting, and an empty piece that it cannot forge. A key seals 2^22 pieces; then both
ends derive the next one from it with HKDF at the same piece, so that earlier pieces stay secret if that key is
disclosed. No key seals 2^32 pieces. This module does not use sockets: see `sealed_stream`.
"""

from __future__ import annotations

import functools
import importlib
import struct
from typing import Any

from paddle.errors import WireError
from paddle_node.contract.classes import NamedTuple

PIECE = 256 << 10
"""The maximum number of plaintext bytes in a piece, which fits in the L1 and L2 caches."""

MORE, LAST, CONFIRMS = 0, 1, 2
"""The kinds of pieces: more of the message follows; the last piece of a message; the last piece of a handshake."""

CALLER, CALLED = 0, 1
"""The two sides of a connection."""

TOKEN_BYTES = 16
NONCE_BYTES = 32
MOST_PIECES = 1 << 32

# At most 2^22 * 2^14 = 2^36 cipher blocks for each key, far below GCM's limits (after 2^64 blocks, the output can be
# distinguished from random data; TLS 1.3 requires new keys after 2^38).
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
"""The number of bytes that sealing adds to the plaintext of a piece."""


class SealError(WireError):
    """Raised when the peer uses a different job key, protocol or version, or data was changed in transit."""


class Greeting(NamedTuple):
    """The unencrypted first message of each side of a connection: its token and nonce."""

    sender: int
    token: bytes
    nonce: bytes

    def to_bytes(self) -> bytes:
        """Encode the greeting for the wire."""
        return _GREETING.pack(_MAGIC, _VERSION, *self)

    @classmethod
    def read(cls, data: bytes, sender: int) -> Greeting | None:
        """Decode the greeting of `sender`; return None if more bytes may complete it.

        Raises:
            SealError: the greeting is of a different protocol (such as a plain stream) or version, or this side's own.
        """
        if data[: len(_MAGIC)] != _MAGIC[: len(data)]:
            raise SealError(f"not a sealed stream: expected {_MAGIC!r}, got {data[: len(_MAGIC)]!r}")
        if len(data) < GREETING_BYTES:
            return None
        _, version, who, token, nonce = _GREETING.unpack(data[:GREETING_BYTES])
        if version != _VERSION:
            raise SealError(f"sealed streams: this side uses version {_VERSION}, but the peer uses {version}")
        if who != sender:
            raise SealError(
                f"expected a greeting from sender {sender}, got one from {who}: it was reflected, or sent in the wrong "
                "direction"
            )
        return cls(sender, token, nonce)


class _Counted:
    """One direction of a connection: its key, and the number of the next piece, which is never used twice."""

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
        """Return the nonce of the next piece; afterwards its cipher is the current one.

        Raises:
            SealError: the key is used up.
        """
        count = self._count
        used = count % self._rekey_every
        if used >= MOST_PIECES:
            raise SealError(
                f"a key of this stream has sealed {MOST_PIECES} pieces and must not be used again"
            )
        if count and not used:
            self._set(_derived(self._key, b"", b"next" + self._where))
        self._count = count + 1
        return count.to_bytes(_COUNT_BYTES, "big")


class Sealer(_Counted):
    """Encrypts the pieces that one side sends on one connection. Not thread-safe."""

    def seal(self, plain: memoryview | bytes, kind: int, into: memoryview) -> int:
        """Encrypt a piece into the beginning of `into`; return its length in bytes.

        Args:
            plain: the plaintext: at most `PIECE` bytes, contiguous.
            kind: the kind of the piece; see `LAST`.
            into: memory of at least `OVERHEAD` more bytes than `plain`.
        """
        length = len(plain)
        header = _HEADER.pack(length, kind)
        into[:HEADER_BYTES] = header
        stop = length + OVERHEAD
        nonce = self._next()
        self._cipher.encrypt_into(nonce, plain, self._where + header, into[HEADER_BYTES:stop])
        return stop


class Opener(_Counted):
    """Decrypts the pieces that one side receives on one connection. Not thread-safe; unusable after an error."""

    _is_over = False

    def open(self, piece: memoryview, into: memoryview) -> None:
        """Authenticate and decrypt a whole piece into `into`, which has exactly the plaintext's length.

        The library writes the plaintext before it checks the tag; if the tag is wrong, `into` is filled with zeros.

        Raises:
            SealError: the piece is not the next piece that the other side sealed for this one.
        """
        header = bytes(piece[:HEADER_BYTES])
        nonce = self._next()
        try:
            if self._is_over:
                raise SealError(
                    "an earlier piece of this stream could not be decrypted, so no further ones are accepted"
                )
            self._cipher.decrypt_into(nonce, piece[HEADER_BYTES:], self._where + header, into)
        except _library().InvalidTag:
            into[:] = bytes(len(into))
            self._is_over = True
            raise SealError(
                f"cannot decrypt piece {self._count - 1} of a stream: it was changed, repeated, "
                "dropped or reordered in transit, or sealed with another job's key"
            ) from None


def piece_of(buffer: memoryview, start: int) -> tuple[int, int]:
    """Return the plaintext size in bytes and the kind of the piece that begins with these bytes, unauthenticated.

    Raises:
        SealError: the piece is longer than the maximum.
    """
    length, kind = _HEADER.unpack_from(buffer, start)
    if length > PIECE or kind > CONFIRMS:
        raise SealError(
            f"not a piece: expected at most {PIECE} bytes and a kind from 0 to {CONFIRMS}, got {length} bytes "
            f"of kind {kind}"
        )
    return length, kind


def keys_of(key: bytes, caller: Greeting, called: Greeting) -> tuple[bytes, bytes]:
    """Derive the two keys of a connection: for data of the caller, and for data of the called side.

    Raises:
        SealError: the greetings do not belong to one connection.
    """
    if caller.token != called.token:
        raise SealError("the peer's answer belongs to a different connection")
    salt = caller.nonce + called.nonce
    of_caller, of_called = (
        _derived(key, salt, bytes([_VERSION, sender]) + caller.token) for sender in (CALLER, CALLED)
    )
    return of_caller, of_called


def is_possible() -> bool:
    """Return whether this Python has a version of `cryptography` that can write into given buffers."""
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
    """Return the required parts of `cryptography`, loaded on first use; None if it is not available."""
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
