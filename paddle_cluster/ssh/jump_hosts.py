# SPDX-License-Identifier: Apache-2.0
"""Connections to jump hosts, shared by all nodes behind them: a hundred nodes are one login there, not a hundred.

The first who needs a connection makes it; the others wait for its success or share its failure. It is closed
when the last one who used it lets go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from paddle_cluster.ssh.host_config import HostConfig
from paddle_cluster.ssh.transport import QuietTransport

Hops = tuple[HostConfig, ...]


class _Shared:
    """One connection, or the attempt to make it, and how many use it."""

    def __init__(self) -> None:
        self.made: Future[QuietTransport] = Future()
        self.users = 0


class Jumps:
    """Connections by the way to them; any thread may ask.

    Args:
        wait_s: how long somebody else's attempt is waited for.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._shared: dict[Hops, _Shared] = {}

    def use(self, way: Hops, make: Callable[[], QuietTransport]) -> tuple[QuietTransport, Callable[[], None]]:
        """A living connection, and what to call when it is no longer needed.

        Raises:
            TimeoutError: somebody else's attempt takes too long.
            Exception: whatever `make` raised, here or for the one who was first.
        """
        with self._lock:
            shared = self._shared.get(way)
            if shared is not None and shared.made.done() and not shared.made.result().is_active():
                shared = None  # it broke; those who use it will notice
            is_first = shared is None
            if shared is None:
                shared = self._shared[way] = _Shared()
            shared.users += 1
        if is_first:
            self._make(way, shared, make)
        release = self._once(way, shared)
        try:
            return shared.made.result(self._wait_s), release
        except BaseException:
            release()
            raise

    def forget(self, way: Hops, connection: QuietTransport) -> None:
        """Whoever asks from now on gets another connection: this one may be silent; those who use it keep it."""
        with self._lock:
            shared = self._shared.get(way)
            if shared is not None and shared.made.done() and shared.made.result() is connection:
                del self._shared[way]

    def _make(self, way: Hops, shared: _Shared, make: Callable[[], QuietTransport]) -> None:
        try:
            shared.made.set_result(make())
        except BaseException as error:  # noqa: BLE001 - all who wait get it, whatever it is
            with self._lock:
                if self._shared.get(way) is shared:
                    del self._shared[way]  # the next one tries anew
            shared.made.set_exception(error)

    def _once(self, way: Hops, shared: _Shared) -> Callable[[], None]:
        left = [None]

        def release() -> None:
            with self._lock:
                if not left:
                    return
                left.clear()
                shared.users -= 1
                if shared.users:
                    return
                if self._shared.get(way) is shared:
                    del self._shared[way]
            if shared.made.done() and shared.made.exception() is None:
                shared.made.result().close()

        return release
