# SPDX-License-Identifier: Apache-2.0
"""The heartbeat of the agent proper, which states each second how long the guard must wait for the next one.

A process that hangs in the kernel, for example on a dead file system, can neither end its job nor detect that it must.
The guard counts only time in which it ran itself: while a whole machine or container is suspended, no heartbeat is
late.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the guard does not need it
    from paddle_node.agent.link.loop import Loop

BEAT_S = 1.0
LOOK_S = 1.0
LEAST_PATIENCE_S = 15.0  # more than a process start on a hanging disk may take

_PATIENCE = struct.Struct("!d")  # seconds; 0: forever


class SignOfLife:
    """The heartbeats of the agent proper to the guard.

    Args:
        pipe: a pipe whose other end the guard has.
    """

    def __init__(self, loop: Loop, pipe: int) -> None:
        self._loop = loop
        self._pipe = pipe
        os.set_blocking(pipe, False)

    def begin(self, lease_s: float) -> None:
        """Send heartbeats from now on, while the loop runs."""
        self._write(max(lease_s, LEAST_PATIENCE_S))
        self._loop.after(BEAT_S, lambda: self.begin(lease_s))

    def end(self) -> None:
        """Stop the heartbeats, because no process of the job runs and the remaining work has no time limit."""
        self._write(0.0)

    def _write(self, patience_s: float) -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):  # the guard is stopped or has exited
            os.write(self._pipe, _PATIENCE.pack(patience_s))


class Vigil:
    """The guard's monitoring of the agent's heartbeats.

    Attributes:
        patience_s: time in seconds for which the agent proper may be silent; 0 means forever.
    """

    def __init__(self, pipe: int) -> None:
        self.patience_s = 0.0
        self._pipe = pipe
        self._quiet_s = 0.0
        os.set_blocking(pipe, False)

    def note_wait(self, waited_s: float) -> bool:
        """Count a further wait of about LOOK_S; return whether the agent proper has been silent for too long."""
        self._quiet_s += min(waited_s, 2 * LOOK_S)
        with contextlib.suppress(BlockingIOError):
            said = os.read(self._pipe, 512 * _PATIENCE.size)
            if said:
                (self.patience_s,) = _PATIENCE.unpack(said[-_PATIENCE.size :])
                self._quiet_s = 0.0
        return 0 < self.patience_s <= self._quiet_s
