# SPDX-License-Identifier: Apache-2.0
"""The listener for a launcher that reconnects; a local socket passes its new connection to the agent.

A short-lived process of the new login (`agent.reconnect`) transfers its standard input and output. The socket has an
abstract name, which needs no directory and leaves none behind. The visiting process must run as the same user, as
reported by the kernel, and know the key that the launcher generated for this agent. The key is never in a file, an
argument or an environment.
"""

from __future__ import annotations

import os
import socket
from typing import Callable, Dict, List, Optional, Tuple

from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.contract.opening import WELCOME
from paddle_node.contract.records import read_text
from paddle_node.contract.to_agent import Reconnect, ReconnectKey
from paddle_node.linux import descriptors

REQUEST_LIMIT = 4096
MOST_VISITORS = (
    8  # simultaneous visitors of our own user (others are rejected first); one more closes the first
)
VISIT_S = 5.0  # seconds in which a visitor must have sent its request


class ReconnectListener:
    """The local socket on which the agent accepts new connections of its launcher.

    Args:
        key: the key from the launcher's `hello`.
        enter: function that is called with the descriptors and the number of bytes of the agent's stream that had
            arrived; it takes ownership of the descriptors, or raises ValueError.

    Raises:
        OSError: the socket cannot be created.
    """

    def __init__(self, loop: Loop, key: ReconnectKey, enter: Callable[[int, int, int], None]) -> None:
        self._loop = loop
        self._word = key.word.encode()
        self._enter = enter
        self._visitors: Dict[int, Tuple[socket.socket, Timer]] = {}
        self._inside: Optional[socket.socket] = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(b"\0" + key.at.encode())
        self._socket.listen(MOST_VISITORS)
        self._socket.setblocking(False)
        loop.on_readable(self._socket.fileno(), self._open)

    def _open(self) -> None:
        try:
            visitor, _ = self._socket.accept()
        except OSError:  # it has already left, or no descriptor is free: the next one may succeed
            return
        if not descriptors.is_our_user(visitor):
            visitor.close()
            return
        if (
            len(self._visitors) >= MOST_VISITORS
        ):  # a genuine visitor speaks immediately, so it is not the one that waits longest
            self._part(next(iter(self._visitors))).close()
        visitor.setblocking(False)
        number = visitor.fileno()
        timer = self._loop.after(VISIT_S, lambda: self._part(number).close())
        self._visitors[number] = visitor, timer
        self._loop.on_readable(number, lambda: self._read_request(number))

    def _part(self, number: int) -> socket.socket:
        visitor, timer = self._visitors.pop(number)
        timer.cancel()
        self._loop.on_readable(number, None)
        return visitor

    def _read_request(self, number: int) -> None:
        visitor = self._part(number)
        try:
            request, given = descriptors.receive(visitor, REQUEST_LIMIT, 8)
        except OSError:
            visitor.close()
            return
        try:
            self._admit(visitor, request, given)
        except (OSError, ValueError):
            visitor.close()
        finally:
            for fd in given:
                os.close(fd)

    def _admit(self, visitor: socket.socket, request: bytes, given: List[int]) -> None:
        asked = read_text(Reconnect, request, "reconnect", "a login")
        if len(given) != 2:
            raise ValueError(f"the request is malformed: expected 2 file descriptors, got {len(given)}")
        from hmac import compare_digest  # imports OpenSSL, which few agents need

        if not compare_digest(asked.word.encode(), self._word):
            raise ValueError("the secret is wrong")
        self._enter(given[0], given[1], asked.received)
        visitor.send(WELCOME)
        if self._inside is not None:
            self._inside.close()
        self._inside = visitor  # it stays until this agent exits, or another one connects
