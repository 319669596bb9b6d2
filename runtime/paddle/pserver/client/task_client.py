# SPDX-License-Identifier: Apache-2.0
"""A client of the task queue, which the job's first server runs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

from paddle.errors import ConfigError, WaitTimeout, WireError
from paddle.pserver.client.links import Links
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import Ask, Error, Ok
from paddle.reader.leases import Holder

_AGAIN_S = 2.0  # interval after which an unanswered question is sent again


class TaskClient:
    """A connection to the task queue. Thread-safe: it sends one question at a time."""

    def __init__(
        self, endpoint: str, keys: WireKeys | None, holder: Holder, *, timeout_s: float, patience_s: float
    ) -> None:
        """Start to connect.

        Args:
            endpoint: "ip:port" of the server.
            keys: the keys for encryption; None means connections are not encrypted.
            holder: identifies the calling process.
            timeout_s: maximum silence of the server.
            patience_s: how long the server can be unreachable, for example while it restarts.
        """
        self._endpoint, self._holder = endpoint, holder
        self._timeout_s = timeout_s + patience_s
        self._links = Links([endpoint], keys, patience_s, within_node=False)
        self._lock = threading.Lock()
        self._last = 0

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Send a question to the task queue and return the answer; see `TaskQueues.ask`.

        Raises:
            ConfigError: the question is refused.
            PserverLost, WaitTimeout: the server does not answer.
        """
        with self._lock:
            self._last += 1
            message = Message(
                Ask(self._holder.client),
                self._holder.trainer,
                self._holder.session,
                self._last,
                sections=(Section.text("", json.dumps(question)),),
            )
            ends_at = time.monotonic() + self._timeout_s
            while (now := time.monotonic()) < ends_at:
                self._links.send(0, message)
                reply = self._reply(min(now + _AGAIN_S, ends_at))
                if reply is not None:
                    return reply
        raise WaitTimeout(
            f"the task queue in pserver {self._endpoint} did not answer for {self._timeout_s:.0f} s. "
            "Check that the server is running"
        )

    def close(self) -> None:
        """Close the connection to the task queue."""
        self._links.close()

    def _reply(self, until: float) -> dict[str, Any] | None:
        while True:
            incoming = self._links.receive(max(until - time.monotonic(), 0.0))
            if incoming is None or incoming.message is None:
                return None  # nothing arrived, or a new connection lost the data of the old one
            reply = incoming.message
            if reply.request != self._last:
                continue
            if isinstance(reply.record, Error):
                raise ConfigError(f"pserver {self._endpoint}: {reply.section('').as_text()}")
            if isinstance(reply.record, Ok):
                answer = json.loads(reply.section("").as_text())
                if not isinstance(answer, dict):
                    raise WireError(f"pserver {self._endpoint}: malformed answer from the task queue")
                return answer
