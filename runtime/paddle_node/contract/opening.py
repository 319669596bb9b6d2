# SPDX-License-Identifier: Apache-2.0
"""The first bytes of a stream: the marker line, and frames as far as their lengths.

Part of an agent's first word, so that it imports nothing.
"""

PROTOCOL_VERSION = 2
WELCOME = b"+"  # an agent has taken a connection that a login brought
PREFIX_SIZE = 12  # lengths of header (4 bytes) and body (8 bytes), the most significant byte first


def marker(nonce: str) -> bytes:
    """The line that parts a login shell's noise from the frames."""
    return ("PADDLE-AGENT-%d %s\n" % (PROTOCOL_VERSION, nonce)).encode()


def frame(header: bytes) -> bytes:
    """A frame without a body."""
    return len(header).to_bytes(4, "big") + bytes(8) + header


def body_start(data: "bytes | bytearray") -> int:
    """Where the body of the frame begins that begins here."""
    return PREFIX_SIZE + int.from_bytes(data[:4], "big")


def frame_size(data: "bytes | bytearray") -> int:
    """How many bytes the frame has that begins here, its lengths included; PREFIX_SIZE while they are not there."""
    if len(data) < PREFIX_SIZE:
        return PREFIX_SIZE
    return body_start(data) + int.from_bytes(data[4:PREFIX_SIZE], "big")
