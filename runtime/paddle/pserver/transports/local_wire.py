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

from paddle.errors import WireError
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Frame, Message, Section, encode
from paddle.pserver.wire.verbs import Pull, PushPull

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


def in_place(message: Message, sections: tuple[Section, ...]) -> Message:
    """Return a push in place, as it travels: without sections, or as it is understood: with the slab where it lies."""
    record = message.record
    if isinstance(record, PushPull | Pull):
        record = record._replace(in_place=True)
    return message._replace(record=record, sections=sections)


def pack(message: Message) -> bytes:
    """Return a message as a packet; one of more than `MAX_PACKET` bytes cannot be sent."""
    parts: list[Frame] = []
    for frame in encode(message):
        parts += (_LENGTH.pack(len(frame)), frame)
    return b"".join(parts)


def unpack(packet: bytes) -> Sequence[Frame]:
    """Return the frames of a packet.

    Raises:
        WireError: it was cut off.
    """
    frames, start = [], _LENGTH.size
    while start <= len(packet):
        stop = start + _LENGTH.unpack_from(packet, start - _LENGTH.size)[0]
        if stop > len(packet):
            raise WireError("a packet that was cut off")
        frames.append(packet[start:stop])
        start = stop + _LENGTH.size
    return frames
