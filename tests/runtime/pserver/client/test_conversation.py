# SPDX-License-Identifier: Apache-2.0
"""What a trainer makes of servers that are silent, that wait for others, or that live and do not get on."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator

import pytest

from paddle.errors import PserverError, PserverLost
from paddle.pserver.client.conversation import Conversation, TimeLimits
from paddle.pserver.client.exchange import Exchange
from paddle.pserver.client.request import Incoming, Request
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import Ok, PushPull, Ready, Record, Status, Verb, Waits

TIMEOUT_S = 60.0
OWN = Message(Status(), 0, 77, 5)


def conversation(wait_s: float = math.inf) -> Conversation:
    transfers = {0: Request(OWN._replace(record=PushPull()))}
    return Conversation(transfers, ["10.0.0.1:7164"], TimeLimits(TIMEOUT_S, wait_s), 0.0)


def look(talk: Conversation, now: float) -> list[Verb]:
    return [
        each.message.verb
        for each in talk.check_deadlines(now, lambda server: "check it", lambda server: True)
    ]


def moments(until: float) -> Iterator[float]:
    return (1.25 * number for number in range(1, int(until / 1.25) + 1))


def answer(record: Record) -> Incoming:
    sections = (Section.text("", "nobody waits"),)
    return Incoming(0, Message(record, sections=sections).numbered(0, 77, 5, 1))


def test_a_server_that_is_silent_is_asked_and_then_lost() -> None:
    talk = conversation()
    asked = [verb for now in moments(TIMEOUT_S) for verb in look(talk, now)]
    assert asked == [Verb.STATUS] * 9
    with pytest.raises(PserverLost, match=r"did not answer for 6[01] s; check"):
        look(talk, TIMEOUT_S + 1.0)


def test_a_server_whose_answers_come_in_is_not_asked_again() -> None:
    request = Request(OWN._replace(record=PushPull()))
    talk = Conversation({0: request}, ["10.0.0.1:7164"], TimeLimits(TIMEOUT_S, math.inf), 0.0)
    asked = []
    for now in moments(TIMEOUT_S):
        request.has_moved = now < 30  # as values set it, which nobody tells the conversation of
        asked += [now for _ in look(talk, now)]
    assert asked
    assert asked[0] > 33


def test_a_process_that_was_stopped_itself_blames_no_server() -> None:
    talk = conversation(wait_s=2 * TIMEOUT_S)
    look(talk, 1.25)
    assert look(talk, 1.25 + 10 * TIMEOUT_S) == [Verb.STATUS]
    talk.rest_s(1.25 + 10 * TIMEOUT_S)
    list(talk.hear(answer(Ok()), 1.5 + 10 * TIMEOUT_S))
    assert talk.is_over


@pytest.mark.parametrize(
    ("is_idle", "said_by", "expected"),
    [
        (False, lambda now: True, None),
        (True, lambda now: True, PserverError),
        (True, lambda now: now < 30, None),
    ],
    ids=["it waits for others", "nothing keeps it", "it got on"],
)
def test_a_server_that_lives_and_does_not_get_on_has_as_long_as_a_silent_one(
    is_idle: bool, said_by: Callable[[float], bool], expected: type[PserverError] | None
) -> None:
    talk = conversation()

    def wait() -> None:
        for now in moments(1.5 * TIMEOUT_S):
            look(talk, now)
            list(talk.hear(answer(Waits(is_idle and said_by(now))), now))

    if expected is None:
        wait()
        list(talk.hear(answer(Ok()), 2 * TIMEOUT_S))
        assert talk.is_over
        return
    with pytest.raises(expected, match=r"PUSH_PULL has made no progress for 6\d s"):
        wait()


class MuteNetwork:
    """One server that never answers; whoever asks waits for `go_on`."""

    endpoints: tuple[str, ...] = ("127.0.0.1:1",)

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.is_closed = False

    def send(self, index: int, message: Message) -> None: ...

    def receive(self, timeout_s: float) -> None:
        self.asked.set()
        assert self.go_on.wait(20)

    def expect(self, index: int, lane: object) -> None: ...

    def attach(self, index: int, hello: Message, size: int | None) -> None: ...

    def is_attached(self, index: int) -> bool:
        return False

    def hint(self, index: int) -> str:
        return ""

    def close(self) -> None:
        self.is_closed = True


def test_a_client_that_two_threads_use_at_once_says_so_and_is_not_closed_under_the_first() -> None:
    network = MuteNetwork()
    exchange = Exchange(network, trainer_id=0, timeout_s=0.1)
    ends: list[Exception] = []

    def ask() -> None:
        try:
            exchange.run({0: Message(Ready())})
        except PserverError as error:
            ends.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert network.asked.wait(20)
    with pytest.raises(PserverError, match="used by two threads at once, or by a signal handler"):
        exchange.run({0: Message(Ready())})
    with pytest.raises(PserverError, match="another thread is in the middle of an exchange"):
        exchange.leave(0.05)
    exchange.close()
    assert not network.is_closed  # that thread waits for its sockets
    network.go_on.set()
    thread.join(20)
    assert [type(end) for end in ends] == [PserverLost]
    exchange.close()
    assert network.is_closed
