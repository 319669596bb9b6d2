# SPDX-License-Identifier: Apache-2.0
"""Ports for servers whose port must be known before they start."""

from __future__ import annotations

import contextlib
import random
import socket

FROM, TO = 10_000, 20_000  # below those of outgoing connections, and of jobs
TRIES = 100


def free_range(count: int) -> int:
    """The first of so many ports in a row that nobody listens on, nor is given by the system to anybody else."""
    for _ in range(TRIES):
        first = random.randrange(FROM, TO - count)
        with contextlib.suppress(OSError), contextlib.ExitStack() as taken:
            for port in range(first, first + count):
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError(f"no {count} ports in a row are free between {FROM} and {TO}")
