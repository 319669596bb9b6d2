# SPDX-License-Identifier: Apache-2.0
"""The servers and the trainers of a simulated history: real state machines, each in the place of a process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from paddle.pserver.client.conversation import Conversation, Outgoing, TimeLimits
from paddle.pserver.client.request import Incoming, Request
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.service import EngineOptions, Keeper
from paddle.pserver.store.store import Store
from paddle.pserver.wire import message as wire
from paddle.pserver.wire.configuration import configure_message
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import (
    Configured,
    FinishPass,
    Hello,
    Leave,
    Ok,
    Pull,
    PushPull,
    Ready,
    Record,
    SetValues,
    StartPass,
)
from tests.runtime.pserver.client.memory_keeper import MemoryKeeper

if TYPE_CHECKING:
    from tests.runtime.pserver.client.simulated_wire import History

_TIMEOUT_S = 60.0


class Server:
    """One server, whose process may be another one by now."""

    def __init__(self, history: History, index: int) -> None:
        self.history, self.index, self.processes = history, index, 0
        self.keeper = MemoryKeeper(history.choices)
        self.start()

    def start(self) -> None:
        """Put a new process in the place of the one before."""
        self.processes += 1
        keeper: Keeper = self.keeper
        options = EngineOptions(self.history.num_trainers)
        self.engine = Engine(options, 7 + self.index, lambda: self.history.now, keeper=keeper)
        self.keeper.recover(self.engine)

    @property
    def store(self) -> Store:
        assert self.keeper.store is not None
        return self.keeper.store


@dataclass
class Push:
    """One push of one trainer: its gradient is `bit` everywhere."""

    bit: float
    is_quiet: bool
    is_answered: bool = False
    values: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)


class Trainer:
    """One trainer, whose process may be another one by now."""

    def __init__(self, history: History, number: int) -> None:
        self.history, self.number = history, number
        self.session = self.request = 0
        self.left = list(history.bits[number])
        self.pushes: list[Push] = []
        self.start()

    def start(self) -> None:
        """Put a new process in the place of the one before."""
        self.session, self.request = self.session + 1000 + self.number, 0
        self.stamps = [0] * len(self.history.servers)
        self.steps = self._script()
        self.is_done = self.is_slow = False
        self.history.connect(self)
        self._next()

    def hear(self, incoming: Incoming) -> None:
        """Take what the wire brought."""
        if not self.is_done:
            self.history.send(self, self.conversation.hear(incoming, self.history.now))
            self._go_on()

    def look(self) -> None:
        """Look at the clock."""
        if not self.is_done:
            knows = lambda index: bool(self.stamps[index])  # noqa: E731
            self.history.send(
                self, self.conversation.check_deadlines(self.history.now, lambda index: "", knows)
            )

    def numbered(self, out: Outgoing) -> Message:
        """Return a message as it travels."""
        return out.message.numbered(self.number, self.session, self.request, self.stamps[out.server])

    def _go_on(self) -> None:
        while not self.is_done and self.conversation.is_over:
            self._next()

    def _next(self) -> None:
        transfers = next(self.steps, None)
        if transfers is None:
            self.is_done = True
            return
        self.request += 1
        for server, transfer in transfers.items():
            transfer.head = transfer.head.numbered(
                self.number, self.session, self.request, self.stamps[server]
            )
        limits = TimeLimits(_TIMEOUT_S, float("inf"))
        names = [f"s{server.index}" for server in self.history.servers]
        self.conversation = Conversation(transfers, names, limits, self.history.now)
        for server, transfer in transfers.items():
            self.history.send(self, (Outgoing(server, each) for each in transfer.begin()))

    def _all(self, message: Message) -> dict[int, Request]:
        return {server.index: Request(message) for server in self.history.servers}

    def _script(self) -> Iterator[dict[int, Request]]:
        history = self.history
        takes_over = self.session > 2000 and history.choices.random() < 0.5
        yield self._all(Message(Hello(history.num_trainers, takes_over)))
        for server, reply in self.conversation.replies.items():
            self.stamps[server] = reply.stamp
        model = history.model
        yield {s.index: Request(configure_message(model, s.index, False)) for s in history.servers}
        missing = [
            server
            for server, reply in self.conversation.replies.items()
            if not reply.expect(Configured).has_values
        ]
        for server in missing:
            zeros = np.zeros(history.slab_sizes[server], np.float32)
            yield {server: Request(Message(SetValues(), sections=(Section("", zeros),)))}
        for turn in ([i for i in missing if i], [i for i in missing if not i]):
            if turn:
                yield {server: Request(Message(Ready())) for server in turn}
        # The process before may have told one server of the end of its pass, and not the next: see `session.rejoin`.
        yield self._all(Message(Pull(0, 1)))
        over = {server: reply.expect(Ok).passes for server, reply in self.conversation.replies.items()}
        behind = [server for server, passes in over.items() if passes < max(over.values())]
        turns: tuple[Record, ...] = (StartPass(), FinishPass()) if behind else ()
        for record in turns:
            yield {server: Request(Message(record)) for server in behind}
        if max(over.values()):
            yield self._all(Message(Leave()))
            return
        yield self._all(Message(StartPass()))
        while self.left:
            push = Push(self.left.pop(0), history.choices.random() < 0.3)
            self.pushes.append(push)
            yield {server.index: self._push(server.index, push) for server in history.servers}
            push.is_answered = True
            if history.choices.random() < 0.1:
                yield self._all(Message(Pull(0, 1)))
        yield self._all(Message(FinishPass()))
        yield self._all(Message(Leave()))

    def _push(self, server: int, push: Push) -> Request:
        size = self.history.slab_sizes[server]
        count = wire.chunk_count(size)
        head = Message(PushPull(1, wants_values=not push.is_quiet))
        gradient = np.full(size, push.bit, np.float32)
        if count <= 1:
            return Request(head._replace(sections=(Section("", gradient),)))

        def deliver(index: int, section: Section) -> None:
            push.values[server, index] = section.array.copy()

        return Request(
            head._replace(record=head.expect(PushPull)._replace(chunks=count)),
            count,
            lambda index: Section("", gradient[wire.chunk_span(index, size)]),
            deliver,
        )
