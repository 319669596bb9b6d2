# SPDX-License-Identifier: Apache-2.0
"""Writing before something changes: every piece once, as it was; memory for copies, used again."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from paddle.pserver.durable.checkpoint.disk import SpareMemory
from paddle.pserver.durable.checkpoint.format import VALUE, Piece
from paddle.pserver.durable.checkpoint.snapshot import Copying
from paddle.pserver.durable.checkpoint.writer import PartWriter

SIZE, COUNT = 1000, 40
DEADLINE_S = 60.0
LARGE = 2 << 20  # elements


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
        SIZE,
    )
    thread = threading.Thread(target=copying.write, args=(written,))
    thread.start()
    assert written.holds.wait(DEADLINE_S)

    def change() -> None:
        copying.finish("w", 0, array.size)
        array[:] = -1

    changing = threading.Thread(target=change)
    changing.start()
    while copying.is_waiting:
        assert changing.is_alive()
    was_over, first = copying.is_over, int(array[-1])
    written.may_go.set()
    for each in (thread, changing):
        each.join(DEADLINE_S)
        assert not each.is_alive()
    assert (was_over, first, copying.is_over) == (False, SIZE * COUNT - 1, True)
    found = {**given, **written.found}
    assert len(found) == len(given) + len(written.found) == COUNT
    assert np.array_equal(np.concatenate([found[at] for at in sorted(found)]), np.arange(SIZE * COUNT))


def test_a_parameter_that_does_not_change_yet_is_left_to_the_thread() -> None:
    both = [Piece(name, {"at": 0}, {VALUE: np.zeros(SIZE)}) for name in ("v", "w")]
    given: list[str] = []
    copying = Copying(both, lambda piece: given.append(piece.parameter), SIZE)
    copying.finish("v", 0, SIZE)
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
    copying = Copying(pieces(np.zeros(3 * SIZE)), given.append, SIZE)
    with pytest.raises(OSError, match="No space"):
        copying.write(Full())
    copying.finish("w", 0, 3 * SIZE)
    assert copying.is_over
    assert len(given) == 2


def test_without_a_thread_pieces_are_given_one_at_a_time() -> None:
    given: list[int] = []
    copying = Copying(pieces(np.zeros(3 * SIZE)), lambda piece: given.append(piece.place["at"]), SIZE)
    copying.advance()
    assert given == [2 * SIZE]
    copying.finish("w", 0, 3 * SIZE)
    assert given == [2 * SIZE, 0, SIZE]
    assert copying.is_over


def test_what_is_given_up_goes_nowhere_any_more() -> None:
    given: list[Piece] = []
    copying = Copying(pieces(np.zeros(SIZE * COUNT)), given.append, SIZE)
    copying.cancel()
    copying.finish("w", 0, SIZE * COUNT)
    assert copying.is_over
    assert not given


def test_only_the_pieces_that_change_are_given_and_the_writer_comes_from_the_other_end() -> None:
    array = np.arange(SIZE * COUNT)
    written, given = Written(), list[int]()
    copying = Copying(pieces(array), lambda piece: given.append(piece.place["at"]), SIZE)
    thread = threading.Thread(target=copying.write, args=(written,))
    thread.start()
    assert written.holds.wait(DEADLINE_S)
    copying.finish("w", 1, SIZE + 1)
    assert given == [0, SIZE]
    assert copying.is_waiting
    written.may_go.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert copying.is_over
    assert [*written.found] == list(range(SIZE * (COUNT - 1), SIZE, -SIZE))


def test_a_writer_that_does_nothing_is_not_waited_for() -> None:
    given: list[Piece] = []
    copying = Copying(pieces(np.zeros(SIZE * COUNT)), given.append, SIZE)
    copying.finish("w", 0, SIZE * COUNT)
    assert copying.is_over
    assert len(given) == COUNT


def prepared(nbytes: int) -> SpareMemory:
    spare = SpareMemory()
    spare.prepare(nbytes)
    for thread in threading.enumerate():
        if thread.name == "checkpoint-memory":
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
    return spare


def place_of(array: np.ndarray) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize("size", [1, 1000, LARGE - 1, LARGE, LARGE + 1])
@pytest.mark.parametrize("nbytes", [0, 64 << 20])
def test_a_copy_is_equal_and_apart_whatever_its_size_and_whether_there_is_memory(
    size: int, nbytes: int
) -> None:
    spare = prepared(nbytes)
    array = np.arange(size, dtype=np.float32)
    copy = spare.copy(array)
    array += 1
    assert np.array_equal(copy, np.arange(size, dtype=np.float32))
    assert copy.dtype == array.dtype
    assert copy.shape == array.shape


def test_memory_is_used_again_once_a_copy_is_gone_and_not_before() -> None:
    spare = prepared(4 * LARGE)  # one copy's
    array = np.ones(LARGE, np.float32)
    first = spare.copy(array)
    place = place_of(first)
    second = spare.copy(array + 1)
    assert not np.may_share_memory(first, second)
    assert first.max() == 1.0
    del first
    gc.collect()
    assert place_of(spare.copy(array)) == place
