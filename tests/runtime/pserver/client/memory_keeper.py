# SPDX-License-Identifier: Apache-2.0
"""Keeps the state of a server in this process, where a real keeper writes files: for servers that are only played."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from paddle.pserver.server.engine import Engine
from paddle.pserver.store.store import Store
from paddle.pserver.wire import message as wire
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message, Section


class MemoryKeeper:
    """Keeps what a real keeper writes to files: requests, and now and then the whole state."""

    doing = ""

    def __init__(self, choices: random.Random) -> None:
        self._choices = choices
        self.engine: Engine | None = None
        self.configuration: Configuration | None = None
        self.store: Store | None = None
        self.journal: list[Message] = []
        self.copy: tuple[Configuration, np.ndarray, tuple[int, ...], dict[str, Any]] | None = None
        self.is_replaying = False

    def adopt(self, store: Store, configuration: Configuration) -> bool:
        self.store, self.configuration = store, configuration
        return False

    def record(self, message: Message) -> None:
        if self.is_replaying:
            return
        self.journal.append(message)
        assert self.engine is not None
        if self.engine.is_quiet and self.store is not None and self._choices.random() < 0.1:
            assert self.configuration is not None
            counts = (self.store.version, self.store.num_samples, self.store.pass_id, self.store.pass_version)
            self.copy = (self.configuration, self.store.dense(), counts, self.engine.facts())
            self.journal.clear()

    def background(self) -> float:
        return 1.0

    def recover(self, engine: Engine) -> None:
        """Bring a new engine to where the one before answered last."""
        self.engine, self.is_replaying = engine, True
        if self.copy is not None:
            configuration, values, counts, facts = self.copy
            self.store = Store(configuration.share(), configuration.optimizer, cores=1)
            for start in range(0, values.size, wire.PART):
                self.store.set_dense(start, Section("", values[wire.part_span(start, values.size)]))
            store = self.store
            store.version, store.num_samples, store.pass_id, store.pass_version = counts
            engine.take_up(configuration, store, facts)
        for message in list(self.journal):
            engine.handle(b"", message)
        engine.miss_everyone()
        self.is_replaying = False
