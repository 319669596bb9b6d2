# SPDX-License-Identifier: Apache-2.0
"""The handshake of a sealed stream: what a man in the middle changes, repeats or forges ends it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

import pytest

from paddle.sealing import CALLED, CALLER, CONFIRMS, GREETING_BYTES, OVERHEAD, Sealer, SealError
from tests.runtime.pserver.transports.man_in_the_middle import JOB, OTHER_JOB, WORD, Middle, went_on


def changed(at: int) -> Callable[[bytes], bytes]:
    return lambda greeting: greeting[:at] + bytes([greeting[at] ^ 1]) + greeting[at + 1 :]


GREETING_AT = {"magic": 0, "version": 4, "sender": 5, "word": 6, "nonce": 22}


@pytest.mark.parametrize("where", ["at_server", "at_trainer"])
@pytest.mark.parametrize("what", GREETING_AT)
def test_a_greeting_that_is_changed_on_its_way_ends_the_handshake(what: str, where: str) -> None:
    with contextlib.closing(Middle()) as middle, pytest.raises(SealError):
        middle.greet(**{where: changed(GREETING_AT[what])})


def test_a_trainers_greeting_that_is_sent_back_is_no_servers() -> None:
    with contextlib.closing(Middle()) as middle:
        middle.give(CALLER, middle.sent(CALLER, GREETING_BYTES))
        with pytest.raises(SealError, match="it was reflected"):
            went_on(middle.trainer.handshake)


def test_a_peer_with_the_key_of_another_job_gets_no_answer() -> None:
    with (
        contextlib.closing(Middle(servers_key=OTHER_JOB)) as middle,
        pytest.raises(SealError, match="job's key"),
    ):
        middle.greet()


def test_a_trainer_that_does_not_show_that_it_knows_the_key_is_not_heard() -> None:
    with contextlib.closing(Middle()) as middle:
        middle.give(CALLED, middle.sent(CALLER, GREETING_BYTES))
        assert not went_on(middle.server.handshake)
        forged = memoryview(bytearray(OVERHEAD))
        Sealer(b"x" * 32, CALLER, WORD).seal(b"", CONFIRMS, forged)
        middle.give(CALLED, bytes(forged))
        with pytest.raises(SealError, match="cannot decrypt piece 0 of a stream"):
            went_on(middle.server.handshake)


def test_a_whole_connection_that_is_played_again_gets_nowhere() -> None:
    """Recorded are the trainer's bytes; the server's nonce is another one this time."""
    with contextlib.closing(Middle()) as recorded:
        greeting = recorded.sent(CALLER, GREETING_BYTES)
        recorded.give(CALLED, greeting)
        went_on(recorded.server.handshake)
        recorded.give(CALLER, recorded.sent(CALLED, GREETING_BYTES + OVERHEAD))
        assert went_on(recorded.trainer.handshake)
        confirmation = recorded.sent(CALLER, OVERHEAD)
    with contextlib.closing(Middle()) as again:
        again.give(CALLED, greeting + confirmation)
        with pytest.raises(SealError, match="cannot decrypt piece 0 of a stream"):
            went_on(again.server.handshake)


def test_messages_before_the_handshake_is_over_are_refused() -> None:
    with contextlib.closing(Middle()) as middle:
        middle.give(CALLED, middle.sent(CALLER, GREETING_BYTES))
        assert not went_on(middle.server.handshake)
        middle.give(CALLED, bytes(memoryview(bytearray(OVERHEAD + 8))))
        with pytest.raises(SealError):
            went_on(middle.server.handshake)


def test_nothing_is_logged_that_tells_of_a_key(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        contextlib.closing(Middle(servers_key=OTHER_JOB)) as middle,
        pytest.raises(SealError) as caught,
    ):
        middle.greet()
    text = caplog.text + str(caught.value)
    assert not any(key.decode() in text for key in (JOB, OTHER_JOB))
