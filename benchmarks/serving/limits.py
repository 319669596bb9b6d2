# SPDX-License-Identifier: Apache-2.0
"""The machine's own limits: copying memory, and a loopback connection in one direction and in both."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time

import numpy as np

PIECE = 256 << 10
_FAR_END = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
sock, _ = listener.accept()
piece = memoryview(bytearray(int(sys.argv[2])))
while count := sock.recv_into(piece):
    if sys.argv[1] == "echo":
        sock.sendall(piece[:count])
"""


def copied(size: int) -> float:
    """GB/s of `numpy.copyto`, bytes of the source."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    at = time.perf_counter()
    np.copyto(target, source)
    return size / (time.perf_counter() - at) / 1e9


def sent(size: int, back: bool) -> float:
    """GB/s through a loopback connection to another process, both directions counted if it sends all back."""
    with subprocess.Popen(
        [sys.executable, "-c", _FAR_END, "echo" if back else "take", str(PIECE)],
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        sock = socket.create_connection(("127.0.0.1", int(child.stdout.readline())))
        piece = memoryview(bytes(PIECE))
        at = time.perf_counter()
        sending = threading.Thread(target=_send, args=(sock, piece, size))
        sending.start()
        received, inbox = 0, memoryview(bytearray(PIECE))
        while count := sock.recv_into(inbox):
            received += count
        sending.join()
        took_s = time.perf_counter() - at
        sock.close()
        assert received == (size if back else 0)
    return size * (2 if back else 1) / took_s / 1e9


def _send(sock: socket.socket, piece: memoryview, size: int) -> None:
    for start in range(0, size, PIECE):
        sock.sendall(piece[: min(PIECE, size - start)])
    sock.shutdown(socket.SHUT_WR)
