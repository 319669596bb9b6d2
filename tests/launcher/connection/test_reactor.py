# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from paddle_cluster.connection.reactor import STUCK_S, USUAL, Next, Reactor, Task

LIMIT_S = 20.0


class Reports:
    """A reader whose stream reports data on a thread of its own; it takes one item a turn, as its stream reports."""

    def __init__(self, count: int) -> None:
        self.wanted = count
        self.sent: deque[int] = deque()
        self.read: list[int] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_done = threading.Event()
        self.arrived: Callable[[], None] = lambda: None

    def fileno(self) -> int:
        raise AssertionError("it has no descriptor")

    def report_to(self, arrived: Callable[[], None]) -> bool:
        self.arrived = arrived
        return True

    def feed(self) -> None:
        for number in range(self.wanted):
            self.sent.append(number)
            self.arrived()

    def may_block(self) -> bool:
        return len(self.read) % 7 == 0

    def can_continue(self) -> bool:
        return self.may_go_on.is_set()

    def waits_until(self) -> float | None:
        return None

    def read_turn(self) -> Next:
        if self.sent:
            self.read.append(self.sent.popleft())
        if self.sent:
            self.arrived()
        if len(self.read) == self.wanted:
            self.is_done.set()
        return Next.BYTES if self.can_continue() else Next.PAUSE


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.join(LIMIT_S)


def test_data_that_arrives_during_a_turn_is_read_in_order_without_a_descriptor(reactor: Reactor) -> None:
    reader = Reports(2000)
    reactor.watch(reader)
    feeding = threading.Thread(target=reader.feed)
    feeding.start()
    assert reader.is_done.wait(LIMIT_S)
    feeding.join()
    assert reader.read == list(range(2000))
    reactor.forget(reader)


def test_a_paused_reader_leaves_reported_data_until_it_can_continue(reactor: Reactor) -> None:
    reader = Reports(500)
    reader.may_go_on.clear()
    reactor.watch(reader)
    feeding = threading.Thread(target=reader.feed)
    feeding.start()
    feeding.join(LIMIT_S)
    assert len(reader.read) < 10  # not read to the end while its events wait
    reader.may_go_on.set()
    assert reader.is_done.wait(LIMIT_S)
    assert reader.read == list(range(500))
    reactor.forget(reader)


class _Again(Reports):
    """A reader whose first turn does not end: it has to go on where it can block."""

    def __init__(self, may_block: bool) -> None:
        super().__init__(1)
        self.blocks = may_block
        self.turns = 0

    def may_block(self) -> bool:
        return self.blocks

    def read_turn(self) -> Next:
        self.turns += 1
        if self.turns == 2:
            self.is_done.set()
        return Next.BYTES if self.is_done.is_set() else Next.TASK


@pytest.mark.parametrize("may_block", [True, False], ids=["it may block", "its turn continues elsewhere"])
def test_reported_data_is_read_while_the_usual_workers_are_blocked(reactor: Reactor, may_block: bool) -> None:
    reader = _Again(may_block)
    reactor.watch(reader)
    gate, blocked = threading.Event(), threading.Barrier(USUAL + 1)

    def block() -> bool:
        blocked.wait(LIMIT_S)
        gate.wait(LIMIT_S)
        return False

    for _ in range(USUAL):
        reactor.ask(Task(block))
    try:
        blocked.wait(LIMIT_S)
        gate.wait(3 * STUCK_S)  # from now on, the reactor sleeps without a limit
        reader.feed()
        assert reader.is_done.wait(LIMIT_S / 2)
    finally:
        gate.set()
        reactor.forget(reader)
