# SPDX-License-Identifier: Apache-2.0
"""The baseline: plain blocking sockets in pieces of 256 KB, with the same sum and the same update as a server.

    python -m benchmarks.serving.raw server <trainers> [<congestion control> [checked]]    prints its port, then serves
    python -m benchmarks.serving.raw trainer <port> <bytes> [<congestion control> [checked]]

The fastest known form with one thread on each side: pieces are received into one buffer that remains in the cache, a
trainer sends `AHEAD` pieces before it receives them back, the sum and the update are one compiled loop; nothing else is
done. `checked`: arrays are sent whole, and both ends inspect every array as `paddle pserver` does, a trainer before it
sends: the lower limit for a server that uses a gradient only after all of it was checked.
"""

from __future__ import annotations

import socket
import struct
import sys

import numpy as np

from benchmarks.serving.contest import LEARNING_RATE, Step, take_turns
from paddle.pserver.wire.arithmetic import descend, inspect

PIECE = 256 << 10
AHEAD = 4
_INSPECTED = 128 << 10
_SIZE = struct.Struct("<Q")
_ACCEPT_S = 60.0


def serve(trainers: int, congestion: str = "", checked: str = "") -> None:
    """Serve one step after the other; every trainer announces each step's size."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(_ACCEPT_S)
    print(listener.getsockname()[1], flush=True)
    peers = [listener.accept()[0] for _ in range(trainers)]
    for peer in peers:
        peer.settimeout(None)
        _prepare(peer, congestion)
    w = after = np.zeros(0, np.float32)
    while True:
        sizes = [peer.recv(_SIZE.size, socket.MSG_WAITALL) for peer in peers]
        if not all(sizes):
            return
        size = _SIZE.unpack(sizes[0])[0]
        if w.nbytes != size:
            w, after = np.zeros(size // 4, np.float32), np.empty(size // 4, np.float32)
            count = (size if checked else PIECE) // 4
            scratch = np.empty(count, np.float32)
            pieces = [np.zeros(count, np.float32) for _ in peers]
        for start in range(0, size // 4, count):
            part, out = (each[start : start + count] for each in (w, after))
            gradients = [piece[: part.size] for piece in pieces]
            for peer, gradient in zip(peers, gradients, strict=True):
                _receive(peer, gradient.data.cast("B"), checked)
            descend(part, gradients, LEARNING_RATE, out, scratch, check=not checked)
            for peer in peers:
                peer.sendall(out.data)
        w, after = after, w


def _prepare(sock: socket.socket, congestion: str) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if congestion:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())


def _receive(sock: socket.socket, into: memoryview, checked: str) -> int:
    """Receive a whole piece; return its size. If it is checked, its parts are inspected while they are in the cache."""
    if not checked:
        return sock.recv_into(into, 0, socket.MSG_WAITALL)
    for start in range(0, len(into), _INSPECTED):
        part = into[start : start + _INSPECTED]
        sock.recv_into(part, 0, socket.MSG_WAITALL)
        inspect(part)
    return len(into)


def step_of(port: int, size: int, congestion: str = "", checked: str = "") -> Step:
    """Return a trainer's step of `size` bytes."""
    sock = socket.create_connection(("127.0.0.1", port))
    _prepare(sock, congestion)
    gradient = np.full(size // 4, 1e-3, np.float32).data.cast("B")
    value = np.zeros(size // 4, np.float32).data.cast("B")
    header, piece = _SIZE.pack(size), size if checked else PIECE

    def step() -> None:
        if checked:
            inspect(gradient)
        sock.sendall(header)
        received = 0
        for start in range(0, size, piece):
            sock.sendall(gradient[start : start + piece])
            if start >= AHEAD * piece:
                received += _receive(sock, value[received : received + piece], checked)
        while received < size:
            received += _receive(sock, value[received : received + piece], checked)

    return step


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(int(sys.argv[2]), *sys.argv[3:])
    else:
        take_turns(step_of(int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
