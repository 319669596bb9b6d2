# SPDX-License-Identifier: Apache-2.0
"""Writing before something changes: every piece once, and as it was."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from paddle.pserver.checkpoint.copying import Copying
from paddle.pserver.checkpoint.part import PartWriter
from paddle.pserver.checkpoint.piece import VALUE, Piece

SIZE, COUNT = 1000, 40
DEADLINE_S = 20.0


def pieces(array: np.ndarray) -> list[Piece]:
    return [Piece("w", {"at": at}, {VALUE: array[at : at + SIZE]}) for at in range(0, array.size, SIZE)]


class Written(PartWriter):
    """Stands for the part that pieces are written to."""

    def __init__(self) -> None:  # no file
        self.found: dict[int, np.ndarray] = {}
        self.holds, self.may_go = threading.Event(), threading.Event()

    def make_room(self, nbytes: int) -> None:
        pass

    def write(self, piece: Piece) -> None:
        self.holds.set()
        assert self.may_go.wait(DEADLINE_S)
        assert piece.place["at"] not in self.found, "written twice"
        self.found[piece.place["at"]] = piece.arrays[VALUE].copy()


def test_whoever_changes_a_parameter_gives_copies_of_what_is_left_and_waits_for_what_is_written() -> None:
    array = np.arange(SIZE * COUNT)
    written = Written()
    given: dict[int, np.ndarray] = {}
    copying = Copying(
        pieces(array),
        lambda piece: given.update({piece.place["at"]: piece.arrays[VALUE].copy()}),
        has_writer=False,
    )
    thread = threading.Thread(target=copying.write, args=(written,))
    thread.start()
    assert written.holds.wait(DEADLINE_S)

    def change() -> None:
        copying.finish("w")
        array[:] = -1

    changing = threading.Thread(target=change)
    changing.start()
    while copying.is_waiting:
        assert changing.is_alive()
    was_over, first = copying.is_over, int(array[0])
    written.may_go.set()
    for each in (thread, changing):
        each.join(DEADLINE_S)
        assert not each.is_alive()
    assert (was_over, first, copying.is_over) == (False, 0, True)
    found = {**given, **written.found}
    assert len(found) == len(given) + len(written.found) == COUNT
    assert np.array_equal(np.concatenate([found[at] for at in sorted(found)]), np.arange(SIZE * COUNT))


def test_a_parameter_that_does_not_change_yet_is_left_to_the_thread() -> None:
    both = [Piece(name, {"at": 0}, {VALUE: np.zeros(SIZE)}) for name in ("v", "w")]
    given: list[str] = []
    copying = Copying(both, lambda piece: given.append(piece.parameter), has_writer=False)
    copying.finish("v")
    assert given == ["v"]
    assert copying.is_waiting
    written = Written()
    written.may_go.set()
    copying.write(written)
    assert [*written.found] == [0]
    assert copying.is_over


def test_a_part_that_fails_keeps_nobody_from_changing_anything() -> None:
    class Full(Written):
        def write(self, piece: Piece) -> None:
            raise OSError(28, "No space left on device")

    given: list[Piece] = []
    copying = Copying(pieces(np.zeros(3 * SIZE)), given.append, has_writer=False)
    with pytest.raises(OSError, match="No space"):
        copying.write(Full())
    copying.finish()
    assert copying.is_over
    assert len(given) == 2


def test_without_a_thread_pieces_are_given_one_at_a_time() -> None:
    given: list[int] = []
    copying = Copying(
        pieces(np.zeros(3 * SIZE)), lambda piece: given.append(piece.place["at"]), has_writer=False
    )
    copying.advance()
    assert given == [0]
    copying.finish()
    assert given == [0, SIZE, 2 * SIZE]
    assert copying.is_over


def test_what_is_given_up_goes_nowhere_any_more() -> None:
    given: list[Piece] = []
    copying = Copying(pieces(np.zeros(SIZE * COUNT)), given.append, has_writer=False)
    copying.cancel()
    copying.finish()
    assert copying.is_over
    assert not given


def test_whoever_has_a_writer_at_work_leaves_it_what_it_writes_in_time() -> None:
    array = np.arange(SIZE * COUNT)
    written, given = Written(), list[Piece]()
    copying = Copying(pieces(array), given.append, has_writer=True)
    thread = threading.Thread(target=copying.write, args=(written,))
    written.may_go.set()
    thread.start()
    thread.join(DEADLINE_S)
    copying.finish("w")
    assert copying.is_over
    assert len(written.found) == COUNT
    assert not given


def test_a_writer_that_does_nothing_is_not_waited_for() -> None:
    given: list[Piece] = []
    copying = Copying(pieces(np.zeros(SIZE * COUNT)), given.append, has_writer=True)
    copying.finish("w")
    assert copying.is_over
    assert len(given) == COUNT
