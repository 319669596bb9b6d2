# SPDX-License-Identifier: Apache-2.0
"""What an engine needs of whoever keeps its state safe, and the one who keeps nothing."""

from __future__ import annotations

import math
from typing import Protocol

from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message


class Keeper(Protocol):
    """Hears of everything that must not be forgotten. Called by the engine's thread alone."""

    def adopt(self, store: Store, configuration: Configuration) -> bool:
        """Take a store that was just made into care; return whether it got the values of a checkpoint.

        Raises:
            PaddleError: it should get them, and they cannot be had.
        """

    def record(self, message: Message) -> None:
        """Note a request that was carried out and changed something; its answer is not sent yet."""

    def background(self) -> float:
        """Do a little of what can wait; return in how many seconds there is more to do."""


class _Nobody:
    def adopt(self, store: Store, configuration: Configuration) -> bool:
        return False

    def record(self, message: Message) -> None: ...

    def background(self) -> float:
        return math.inf


NOBODY: Keeper = _Nobody()
"""Keeps nothing."""
