# SPDX-License-Identifier: Apache-2.0
"""Decides from what happens to a connection whether its server is gone.

A server whose process died refuses new connections: that is told at once, unless somebody starts it again,
who gets some time for it. A network that went silent may heal: it gets some seconds. Pure but for the clock
and one attempt to connect.
"""

from __future__ import annotations

import logging
import socket
import time

from paddle.errors import PserverLost

_log = logging.getLogger(__name__)

_HEAL_S = 5.0
_PROBE_S = 0.5


class Liveness:
    """The connection to one endpoint.

    Attributes:
        was_up: whether there ever was one.
        is_leaving: whether the server was told that this client goes: it may end then, that is no loss.
        broken_off: how often one ended, before it was made or after.
    """

    def __init__(self, endpoint: str, patience_s: float = 0.0) -> None:
        """Begin.

        Args:
            endpoint: "ip:port" of the server.
            patience_s: how long it may be gone, since somebody starts it again where it was.
        """
        self._endpoint, self._patience_s = endpoint, patience_s
        self.was_up = self.is_leaving = False
        self.broken_off = 0
        self._down_since: float | None = None

    @property
    def is_down(self) -> bool:
        """Whether an established connection broke and is not back yet."""
        return self._down_since is not None

    def came_up(self) -> bool:
        """Note that a connection is established; return whether one had broken before."""
        came_back = self.is_down
        if came_back and self._patience_s:
            _log.warning("pserver %s is back", self._endpoint)
        self.was_up, self._down_since = True, None
        return came_back

    def went_down(self) -> None:
        """Note that the connection broke, or that an attempt to make one was broken off."""
        self.broken_off += 1
        if self.was_up and self._down_since is None and not self.is_leaving:
            self._down_since = time.monotonic()
            if self._patience_s:
                _log.warning("pserver %s is away; waiting up to %.0f s", self._endpoint, self._patience_s)

    def check(self) -> None:
        """Look at a broken connection again.

        Raises:
            PserverLost: nobody listens there any more, or it did not come back in time.
        """
        if self._down_since is None or time.monotonic() - self._down_since < self._patience_s:
            return
        if _refuses(self._endpoint):
            raise PserverLost(
                f"pserver {self._endpoint} is gone: its connection broke and nobody listens there any more",
                self._endpoint,
            )
        down_s = time.monotonic() - self._down_since
        if down_s > _HEAL_S:
            raise PserverLost(
                f"pserver {self._endpoint} is lost: its connection broke and was not back after {down_s:.0f} s",
                self._endpoint,
            )


def _refuses(endpoint: str) -> bool:
    """Return whether nobody listens at an endpoint; a silent network is not a refusal."""
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PROBE_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
