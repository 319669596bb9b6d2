# SPDX-License-Identifier: Apache-2.0
"""The baseline: plain blocking sockets in pieces of 256 KB, with the same sum and the same update as a server.

    python -m benchmarks.serving.raw server <trainers> [<congestion control>]    prints its port, then serves
    python -m benchmarks.serving.raw trainer <port> <bytes> [<congestion control>]

The fastest known form with one thread on each side: pieces are received into one buffer that remains in the cache, a
trainer sends `AHEAD` pieces before it receives them back, the sum and the update are one compiled loop; nothing else is
done.
"""

from __future__ import annotations

import socket
import struct
import sys

import numpy as np

from benchmarks.serving.contest import LEARNING_RATE, Step, take_turns
from paddle.pserver.wire.arithmetic import descend

PIECE = 256 << 10
AHEAD = 4
_SIZE = struct.Struct("<Q")
_ACCEPT_S = 60.0


def serve(trainers: int, congestion: str = "") -> None:
    """Serve one step after the other; every trainer announces each step's size."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(_ACCEPT_S)
    print(listener.getsockname()[1], flush=True)
    peers = [listener.accept()[0] for _ in range(trainers)]
    for peer in peers:
        peer.settimeout(None)
        _prepare(peer, congestion)
    scratch = np.empty(PIECE // 4, np.float32)
    pieces = [np.zeros(PIECE // 4, np.float32) for _ in peers]
    w = after = np.zeros(0, np.float32)
    while True:
        sizes = [peer.recv(_SIZE.size, socket.MSG_WAITALL) for peer in peers]
        if not all(sizes):
            return
        size = _SIZE.unpack(sizes[0])[0]
        if w.nbytes != size:
            w, after = np.zeros(size // 4, np.float32), np.empty(size // 4, np.float32)
        for start in range(0, size // 4, PIECE // 4):
            part, out = (each[start : start + PIECE // 4] for each in (w, after))
            gradients = [piece[: part.size] for piece in pieces]
            for peer, gradient in zip(peers, gradients, strict=True):
                peer.recv_into(gradient.data.cast("B"), part.nbytes, socket.MSG_WAITALL)
            descend(part, gradients, LEARNING_RATE, out, scratch, check=True)
            for peer in peers:
                peer.sendall(out.data)
        w, after = after, w


def _prepare(sock: socket.socket, congestion: str) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if congestion:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())


def step_of(port: int, size: int, congestion: str = "") -> Step:
    """Return a trainer's step of `size` bytes."""
    sock = socket.create_connection(("127.0.0.1", port))
    _prepare(sock, congestion)
    gradient = np.full(size // 4, 1e-3, np.float32).data.cast("B")
    value = np.zeros(size // 4, np.float32).data.cast("B")
    header = _SIZE.pack(size)

    def step() -> None:
        sock.sendall(header)
        received = 0
        for start in range(0, size, PIECE):
            sock.sendall(gradient[start : start + PIECE])
            if start >= AHEAD * PIECE:
                received += sock.recv_into(value[received : received + PIECE], 0, socket.MSG_WAITALL)
        while received < size:
            received += sock.recv_into(value[received : received + PIECE], 0, socket.MSG_WAITALL)

    return step


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(int(sys.argv[2]), *sys.argv[3:])
    else:
        take_turns(step_of(int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
