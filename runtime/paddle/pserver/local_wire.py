# SPDX-License-Identifier: Apache-2.0
"""What both ends of a node's own wire have in common: its name, who may use it, and a message as one packet.

A packet is, for each frame, its length (I, little-endian) and its bytes.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
from collections.abc import Sequence

import numpy as np

from paddle.errors import WireError
from paddle.pserver.keys import WireKeys
from paddle.pserver.message import Frame, Message, Section, encode

IN_PLACE = 1 << 63
"""`extra` of a push whose gradient lies in shared memory."""

MAX_PACKET = 1 << 16
_CREDENTIALS = struct.Struct("3i")
_LENGTH = struct.Struct("<I")


def local_name(endpoint: str, keys: WireKeys | None) -> bytes:
    """Return the name of the socket beside "ip:port", which only those know who have the job's key."""
    key = keys.server.secret if keys is not None else b""
    return (
        b"\0paddle-pserver-"
        + hashlib.blake2b(endpoint.encode(), key=key, digest_size=16).hexdigest().encode()
    )


def is_our_user(sock: socket.socket) -> bool:
    """Return whether the process at the other end is the same user's."""
    got = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(got)[1] == os.geteuid())


def slab_name(which: int) -> Section:
    """Return the section that tells in which of a server's two slabs values are."""
    return Section("slab", np.array([which], np.uint8))


def pack(message: Message) -> bytes:
    """Return a message as a packet; one of more than `MAX_PACKET` bytes cannot be sent."""
    return b"".join(part for frame in encode(message) for part in (_LENGTH.pack(len(frame)), frame))


def unpack(packet: bytes) -> Sequence[Frame]:
    """Return the frames of a packet.

    Raises:
        WireError: it was cut off.
    """
    frames, rest = [], memoryview(packet)
    while len(rest) >= _LENGTH.size:
        length = _LENGTH.unpack_from(rest)[0]
        frames.append(rest[_LENGTH.size : _LENGTH.size + length])
        if len(frames[-1]) != length:
            raise WireError("a packet that was cut off")
        rest = rest[_LENGTH.size + length :]
    return frames
