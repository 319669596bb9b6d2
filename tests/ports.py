# SPDX-License-Identifier: Apache-2.0
"""Ports for servers whose port must be known before they start."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading

FROM, TO = 10_000, 20_000  # below those of outgoing connections, and of jobs
WORKERS = 8  # each has ports of its own
TRIES = 100
_EACH = (TO - FROM) // WORKERS
_BEGIN = FROM + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % WORKERS * _EACH
_lock = threading.Lock()
_next = random.SystemRandom().randrange(_EACH)  # another run of tests may go on beside this one


def free_range(count: int) -> int:
    """The first of so many ports in a row that nobody listens on, nor is given by the system to anybody else.

    A later call gives other ports, and so do those of other workers.
    """
    global _next
    for _ in range(TRIES):
        with _lock:
            first = _BEGIN + (_next if _next + count <= _EACH else 0)
            _next = first - _BEGIN + count
        with contextlib.suppress(OSError), contextlib.ExitStack() as taken:
            for port in range(first, first + count):
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError(f"no {count} ports in a row are free between {FROM} and {TO}")


def free_endpoints(count: int) -> list[str]:
    """So many endpoints of this machine at which nobody listens."""
    first = free_range(count)
    return [f"127.0.0.1:{port}" for port in range(first, first + count)]
