# SPDX-License-Identifier: Apache-2.0
"""Sums and broadcasts between ranks of one node, through memory that they all map.

Arrays go through in chunks that stay in the processors' caches. A rank posts a chunk by writing it into one of its
own slots and then counting up; others read the counters. What a rank may write when follows from the counters
alone, so nothing is ever locked:

- A rank posts chunk c+1 before it takes chunk c, and chunk c+2 after. Whoever posted c+1 has thus taken all up to
  c-1, and a slot of `SLOTS` is written again only when all have taken what was in it.
- Sums go in the order of the ranks, so that all ranks have the same bits, and every run has them.

Two ranks, and any number with little data, add what the others posted by themselves. Otherwise each rank sums its
part of a chunk and posts that; the others copy it.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paddle.collective.exchange.pieces import Pieces
from paddle.collective.exchange.shared_memory import Slab
from paddle.collective.exchange.task import WORDS, Task
from paddle.collective.exchange.watch import Watch

CHUNK = 256 << 10
SLOTS = 4
SMALL = 32 << 10
_LINE = 64  # of the processor's cache: counters of two ranks never share one
_SPIN_S = 100e-6
_POSTED, _SUMMED = 0, 1
_TASKS = 8  # of a rank's words: where the tasks of its slots begin
_RANK_WORDS = _TASKS + SLOTS * WORDS
_RANK_BYTES = -(-_RANK_WORDS * 8 // _LINE) * _LINE
_PAGE = 4096


def bytes_needed(count: int) -> int:
    """Return the size of the memory for so many ranks."""
    return _counters(count) + count * 2 * SLOTS * CHUNK


def _counters(count: int) -> int:
    return -(-count * _RANK_BYTES // _PAGE) * _PAGE


class IntraNode:
    """One rank's part of it. Not thread-safe."""

    def __init__(self, slab: Slab, ranks: Sequence[int], rank: int, watch: Watch) -> None:
        self._ranks, self._place, self._watch = tuple(ranks), ranks.index(rank), watch
        self._others = [place for place in range(len(ranks)) if place != self._place]
        self._slab = slab
        whole = memoryview(slab.memory)
        self._words = whole[: len(ranks) * _RANK_BYTES].cast("q")
        data = np.frombuffer(whole, np.uint8, offset=_counters(len(ranks)))
        self._slots = data.reshape(len(ranks), 2, SLOTS, CHUNK)
        self._posted = self._summed = 0
        # Where ranks are more than processors, one that spins keeps another from getting on.
        self._spin_s = _SPIN_S if len(ranks) <= len(os.sched_getaffinity(0)) else 0.0

    def sum(self, pieces: Pieces, task: Task) -> None:
        """Sum over the ranks of this node, in place."""
        item = pieces.dtype.itemsize
        chunk = CHUNK // item
        if len(self._ranks) == 2 or pieces.nbytes <= SMALL:
            self._sum_each(pieces, task, chunk)
        else:
            self._sum_parts(pieces, task, chunk)

    def broadcast(self, pieces: Pieces, task: Task, root: int) -> None:
        """Give the values of rank `root` to all ranks of this node, in place."""
        place = self._ranks.index(root)
        chunk = CHUNK // pieces.dtype.itemsize
        cuts = _cuts(pieces.size, chunk)
        first = self._posted
        for number, (start, stop) in enumerate(cuts):
            if place == self._place:
                self._post(pieces, start, stop, task)
            else:
                self._count_post(task)
            # The root waits too: what is in a slot must be taken before it is used again.
            self._wait(_POSTED, first + number + 1, task)
            if place != self._place:
                source = self._slot(place, _POSTED, first + number, pieces.dtype)
                for at, part in pieces.elements(start, stop):
                    part[:] = source[at : at + part.size]

    def close(self) -> None:
        """Give back what is shared."""
        self._words.release()
        self._slab.close()

    def _sum_each(self, pieces: Pieces, task: Task, chunk: int) -> None:
        cuts = _cuts(pieces.size, chunk)
        first = self._posted
        self._post(pieces, *cuts[0], task)
        for number, (start, stop) in enumerate(cuts):
            if number + 1 < len(cuts):
                self._post(pieces, *cuts[number + 1], task)
            self._wait(_POSTED, first + number + 1, task)
            slots = [
                self._slot(place, _POSTED, first + number, pieces.dtype) for place in range(len(self._ranks))
            ]
            if len(slots) == 2:
                theirs = slots[self._others[0]]
                for at, part in pieces.elements(start, stop):
                    np.add(part, theirs[at : at + part.size], out=part)
                continue
            for at, part in pieces.elements(start, stop):
                _ordered_sum([slot[at : at + part.size] for slot in slots], part)

    def _sum_parts(self, pieces: Pieces, task: Task, chunk: int) -> None:
        cuts = _cuts(pieces.size, chunk)
        first, first_sum = self._posted, self._summed
        self._post(pieces, *cuts[0], task)
        for number, (start, stop) in enumerate(cuts):
            if number + 1 < len(cuts):
                self._post(pieces, *cuts[number + 1], task)
            self._wait(_POSTED, first + number + 1, task)
            self._sum_mine(stop - start, first + number, pieces.dtype)
            if number:
                self._wait(_SUMMED, first_sum + number, task)
                self._take_sums(pieces, *cuts[number - 1], first_sum + number - 1)
        self._wait(_SUMMED, first_sum + len(cuts), task)
        self._take_sums(pieces, *cuts[-1], first_sum + len(cuts) - 1)

    def _sum_mine(self, size: int, number: int, dtype: np.dtype[np.generic]) -> None:
        count, place = len(self._ranks), self._place
        start, stop = size * place // count, size * (place + 1) // count
        slots = [self._slot(each, _POSTED, number, dtype)[start:stop] for each in range(count)]
        _ordered_sum(slots, self._slot(place, _SUMMED, self._summed, dtype)[start:stop])
        self._summed += 1
        self._words[self._place * _RANK_BYTES // 8 + _SUMMED] = self._summed
        self._ring()

    def _take_sums(self, pieces: Pieces, start: int, stop: int, number: int) -> None:
        count, size = len(self._ranks), stop - start
        for place in range(count):
            source = self._slot(place, _SUMMED, number, pieces.dtype)
            low, high = size * place // count, size * (place + 1) // count
            for at, part in pieces.elements(start + low, start + high):
                part[:] = source[low + at : low + at + part.size]

    def _slot(
        self, place: int, which: int, number: int, dtype: np.dtype[np.generic]
    ) -> npt.NDArray[np.generic]:
        slot: npt.NDArray[np.generic] = self._slots[place, which, number % SLOTS].view(dtype)
        return slot

    def _post(self, pieces: Pieces, start: int, stop: int, task: Task) -> None:
        slot = self._slot(self._place, _POSTED, self._posted, pieces.dtype)
        for at, part in pieces.elements(start, stop):
            slot[at : at + part.size] = part
        self._count_post(task)

    def _count_post(self, task: Task) -> None:
        base = self._place * _RANK_BYTES // 8
        at = base + _TASKS + self._posted % SLOTS * WORDS
        for offset, word in enumerate(task.words()):
            self._words[at + offset] = word
        self._posted += 1
        self._words[base + _POSTED] = self._posted
        self._ring()

    def _ring(self) -> None:
        for place in self._others:
            os.eventfd_write(self._slab.bells[place], 1)

    def _wait(self, which: int, until: int, task: Task) -> None:
        """Wait until all others have counted up to `until`; what they posted last must belong to the task."""
        for place in self._others:
            at = place * _RANK_BYTES // 8
            if self._words[at + which] < until:
                self._wait_for(place, at + which, until)
            if which == _POSTED:
                at += _TASKS + (until - 1) % SLOTS * WORDS
                words = tuple(self._words[at : at + WORDS])
                if words != task.words():
                    task.check(words, self._ranks[place])

    def _wait_for(self, place: int, at: int, until: int) -> None:
        spin_until = time.perf_counter() + self._spin_s
        while self._words[at] < until:
            if time.perf_counter() < spin_until:
                os.sched_yield()
                continue
            bell = self._slab.bells[self._place]
            self._watch.wait([(bell, select.POLLIN)], [self._ranks[place]])
            try:
                os.eventfd_read(bell)
            except BlockingIOError:
                continue  # it was news of another rank


def _cuts(size: int, chunk: int) -> list[tuple[int, int]]:
    """Return the chunks of so many elements; one empty chunk where there are none."""
    return [(start, min(start + chunk, size)) for start in range(0, size, chunk)] or [(0, 0)]


def _ordered_sum(sources: Sequence[npt.NDArray[np.generic]], out: npt.NDArray[np.generic]) -> None:
    np.add(sources[0], sources[1], out=out)
    for source in sources[2:]:
        np.add(out, source, out=out)
