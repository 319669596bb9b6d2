# SPDX-License-Identifier: Apache-2.0
"""The first bytes of a stream: the marker line, and the framing of frames.

This module is part of an agent's greeting, so it imports nothing.
"""

PROTOCOL_VERSION = 2
WELCOME = b"+"  # an agent has accepted a connection that a login passed on
PREFIX_SIZE = 12  # lengths of the header (4 bytes) and the body (8 bytes), big-endian


def marker(nonce: str) -> bytes:
    """Return the line that separates a login shell's output from the frames that follow it."""
    return ("PADDLE-AGENT-%d %s\n" % (PROTOCOL_VERSION, nonce)).encode()


def frame(header: bytes) -> bytes:
    """Encode a frame without a body."""
    return len(header).to_bytes(4, "big") + bytes(8) + header


def body_start(data: "bytes | bytearray") -> int:
    """Return the offset at which the body of the first frame in `data` begins."""
    return PREFIX_SIZE + int.from_bytes(data[:4], "big")


def frame_size(data: "bytes | bytearray") -> int:
    """Return the total size of the frame at the start of the data; PREFIX_SIZE while its lengths are incomplete."""
    if len(data) < PREFIX_SIZE:
        return PREFIX_SIZE
    return body_start(data) + int.from_bytes(data[4:PREFIX_SIZE], "big")
