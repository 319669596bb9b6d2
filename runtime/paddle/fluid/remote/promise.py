# SPDX-License-Identifier: Apache-2.0
"""A process that makes a server's program is expected to serve it: if it fails before that, its trainers are told.

They would wait for the endpoint until their deadline else. Where an agent watches the process, that tells.
"""

from __future__ import annotations

import atexit
import logging
import sys
from weakref import WeakValueDictionary

from paddle.env import JobEnvironment
from paddle.errors import PaddleError
from paddle.fluid.remote.distribution import wire_keys

_log = logging.getLogger(__name__)

_TELLING_S = 10.0  # trainers that are started together with a server come within that
_MAX_TEXT = 2000


class Promises:
    """The servers that this process may become, as long as it has what makes their programs."""

    def __init__(self) -> None:
        self._makers: WeakValueDictionary[str, object] = WeakValueDictionary()
        self._trainers: dict[str, int] = {}
        self._watches = False

    def make(self, endpoint: str, maker: object, trainers: int) -> None:
        """Note that a program of `maker` is to be served at an endpoint, to so many trainers."""
        self._makers[endpoint], self._trainers[endpoint] = maker, trainers
        if not self._watches:
            self._watches = True
            atexit.register(self._end)

    def keep(self) -> None:
        """Note that this process serves."""
        self._makers.clear()

    def _end(self) -> None:
        """At the end of the process: if it is one that fails, tell the trainers of the only server that it can be."""
        error, made = getattr(sys, "last_value", None), list(self._makers)
        if not isinstance(error, Exception) or len(made) != 1 or JobEnvironment.read().report_fd is not None:
            return
        (endpoint,) = made
        text = f"it ended before it served: {type(error).__name__}: {error}"[:_MAX_TEXT]
        from paddle.pserver.server.refusal import refuse_trainers  # heavy: ZeroMQ

        trainers = self._trainers[endpoint]
        _log.warning(
            "pserver %s: telling %d trainers, for %.0f s at most, that %s",
            endpoint,
            trainers,
            _TELLING_S,
            text,
        )
        try:
            refuse_trainers(endpoint, wire_keys(f"pserver {endpoint}"), text, trainers, _TELLING_S)
        except PaddleError as another:
            _log.warning("trainers cannot be told: %s", another)


PROMISES = Promises()
