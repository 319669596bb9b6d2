# SPDX-License-Identifier: Apache-2.0
"""Copying before something changes: every piece once, and as it was."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from paddle.pserver.checkpoint.copying import Copying
from paddle.pserver.checkpoint.piece import VALUE, Piece

SIZE, COUNT = 1000, 40
DEADLINE_S = 20.0


def pieces(array: np.ndarray) -> list[Piece]:
    return [Piece("w", {"at": at}, {VALUE: array[at : at + SIZE]}) for at in range(0, array.size, SIZE)]


@pytest.mark.parametrize("aside", [True, False])
def test_whoever_finishes_may_change_everything_afterwards(aside: bool) -> None:
    array = np.arange(SIZE * COUNT)
    found: dict[int, np.ndarray] = {}
    given: list[int] = []

    def give(piece: Piece) -> None:
        given.append(piece.place["at"])
        found[piece.place["at"]] = piece.arrays[VALUE].copy()

    copying = Copying(pieces(array), give, aside=aside)
    copying.advance()
    copying.finish()
    array[:] = -1
    assert copying.is_over
    assert sorted(given) == list(range(0, SIZE * COUNT, SIZE))
    assert np.array_equal(np.concatenate([found[at] for at in sorted(found)]), np.arange(SIZE * COUNT))


def test_it_is_not_over_while_the_thread_still_has_a_piece_and_finishing_waits_for_it() -> None:
    holds, may_go = threading.Event(), threading.Event()
    given: list[int] = []

    def give(piece: Piece) -> None:
        if threading.current_thread() is not threading.main_thread():
            holds.set()
            assert may_go.wait(DEADLINE_S)
        given.append(piece.place["at"])

    copying = Copying(pieces(np.zeros(3 * SIZE)), give, aside=True)
    assert holds.wait(DEADLINE_S)
    while copying.is_waiting:
        copying.advance()
    was_over = copying.is_over
    may_go.set()
    copying.finish()
    assert (was_over, copying.is_over) == (False, True)
    assert len(given) == 3


def test_what_is_given_up_goes_nowhere_any_more() -> None:
    given: list[Piece] = []
    copying = Copying(pieces(np.zeros(SIZE * COUNT)), given.append, aside=False)
    copying.cancel()
    copying.finish()
    assert copying.is_over
    assert not given
