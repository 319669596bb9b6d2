# SPDX-License-Identifier: Apache-2.0
"""A ProxyCommand as a plain socket: with time limits, and with an end when the command ends."""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess

REAP_S = 1.0


class ProxySocket(socket.socket):
    """Our end of a socket pair; the other end is the command's standard input and output.

    Args:
        command: split into words as a shell would; no shell runs it.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        words = shlex.split(command)
        argv = words[1:] if words[:1] == ["exec"] else words
        try:
            with theirs:
                end = theirs.fileno()
                self._process = subprocess.Popen(
                    argv, stdin=end, stdout=end, stderr=subprocess.DEVNULL, start_new_session=True
                )
        except OSError:
            super().close()
            raise

    def close(self) -> None:
        """End the command and forget it."""
        super().close()
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(REAP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the kernel
                self._process.wait(REAP_S)
