# SPDX-License-Identifier: Apache-2.0
"""The listener of a door among a thread's doorbells: where no more can be let in, it rests until the next tick."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from paddle.pserver.wire.poller import Doorbells

_log = logging.getLogger(__name__)

_Caller = TypeVar("_Caller")


class Entrance(Generic[_Caller]):
    """One listener. `accept` lets the next one in, and raises OSError where that cannot be."""

    def __init__(self, bells: Doorbells, descriptor: int, accept: Callable[[], _Caller | None]) -> None:
        self._bells, self._descriptor, self._accept = bells, descriptor, accept
        self._rests = False
        bells.add_descriptor(descriptor)

    def admit(self) -> _Caller | None:
        """Let somebody in, if somebody waits; does not wait."""
        if not self._bells.is_ready(self._descriptor):
            return None
        try:
            return self._accept()
        except OSError as error:  # descriptors are short: who waits would ring again at once
            _log.debug("nobody more can be let in for now: %s", error)
            self._bells.remove_descriptor(self._descriptor)
            self._rests = True
            return None

    def tick(self) -> None:
        """Listen again."""
        if self._rests:
            self._bells.add_descriptor(self._descriptor)
            self._rests = False
