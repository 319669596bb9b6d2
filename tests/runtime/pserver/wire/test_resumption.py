# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from paddle.errors import PserverError
from paddle.pserver.wire.configuration import Position, position, read_positions
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import Configured

ENDPOINTS = ("10.0.0.1:7164", "10.0.0.2:7164")


def replies(*places: tuple[int, int]) -> dict[int, Message]:
    """What servers say of their version, and of that at the end of the last pass."""
    return {
        index: Message(Configured(has_values=True), sections=(position(*place),))
        for index, place in enumerate(places)
    }


def test_servers_that_saved_the_end_of_a_pass_and_others_that_did_not_resume_behind_it() -> None:
    found = read_positions(replies((16, 12), (16, 16)), ENDPOINTS, is_async=False)
    assert found == Position(version=16, in_pass=0)


def test_servers_with_checkpoints_of_different_batches_are_refused() -> None:
    with pytest.raises(PserverError, match=r"10\.0\.0\.1:7164: batch 16; 10\.0\.0\.2:7164: batch 12"):
        read_positions(replies((16, 12), (12, 12)), ENDPOINTS, is_async=False)
    mixed = {**replies((16, 12)), 1: Message(Configured(has_values=True))}
    with pytest.raises(PserverError, match=r"7164: batch 16; 10\.0\.0\.2:7164: none"):
        read_positions(mixed, ENDPOINTS, is_async=False)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_server_without_a_checkpoint_beside_one_that_resumed_is_refused(is_async: bool) -> None:
    mixed = {**replies((16, 12)), 1: Message(Configured(has_values=False))}
    with pytest.raises(PserverError, match=r"7164: batch 16; 10\.0\.0\.2:7164: none"):
        read_positions(mixed, ENDPOINTS, is_async=is_async)


def test_asynchronous_servers_resume_at_batches_of_their_own_and_may_have_trained() -> None:
    found = read_positions(replies((16, 12), (12, 12)), ENDPOINTS, is_async=True)
    assert found == Position(version=12, in_pass=0)
    trained = {**replies((16, 12)), 1: Message(Configured(has_values=True))}
    assert read_positions(trained, ENDPOINTS, is_async=True) == Position(version=16, in_pass=4)
