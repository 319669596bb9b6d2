# SPDX-License-Identifier: Apache-2.0
"""Sums and broadcasts between ranks of one node, through memory that they all map.

Arrays are exchanged in chunks that stay in the processors' caches. A rank posts a chunk by writing it into one of its
own slots and then incrementing its counter; the other ranks read the counters. The counters alone determine what a rank
may write and when, so there are no locks:

- A rank posts chunk c+1 before it reads chunk c, and chunk c+2 after. A rank that posted c+1 has thus read all chunks
  up to c-1, and a slot of `SLOTS` is overwritten only when all ranks have read its contents.
- Sums are computed in the order of the ranks, so that all ranks have the same bits, in every run.

For small data, and for any data between two ranks, each rank adds the posted chunks independently. Otherwise each rank
sums its part and posts the sum, and the other ranks copy it: in one step if it fits into the slots of a rank, else by
chunks. Before all slots are used in one step, every rank must have read their contents, which is known after another
such sum.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from paddle.collective.exchange.shared_memory import Slab
from paddle.collective.exchange.task import WORDS, Flat, Pieces, Task, unpack
from paddle.collective.exchange.watch import Watch

CHUNK = 256 << 10
SLOTS = 4
SMALL = 32 << 10
_LINE = 64  # of the processor's cache: counters of two ranks never share one
_SPIN_S = 200e-6  # waking a rank and being woken by it takes about half of that
_FEWEST, _MOST = 8, 64  # number of consecutive short waits after which a rank polls before sleeping
_POSTED, _SUMMED, _SLEEPS = 0, 1, 2
_TASKS = 8  # of a rank's words: where the tasks of its slots begin
_RANK_BYTES = -(-(_TASKS + SLOTS * WORDS) * 8 // _LINE) * _LINE
_RANK_WORDS = _RANK_BYTES // 8
_PAGE = 4096

Slots = list[list[list[Flat]]]


def bytes_needed(count: int) -> int:
    """Return the size in bytes of the shared memory that `count` ranks need."""
    return _counters(count) + count * 2 * SLOTS * CHUNK


def _counters(count: int) -> int:
    return -(-count * _RANK_BYTES // _PAGE) * _PAGE


class IntraNode:
    """The exchange of one rank with the other ranks of its node, through shared memory. Not thread-safe."""

    def __init__(self, slab: Slab, ranks: Sequence[int], rank: int, watch: Watch) -> None:
        self._ranks, self._place, self._watch = tuple(ranks), ranks.index(rank), watch
        # The position of another rank, and of its first word.
        self._others = [(each, each * _RANK_WORDS) for each in range(len(ranks)) if each != self._place]
        self._slab = slab
        whole = memoryview(slab.memory)
        self._raw = whole[: len(ranks) * _RANK_BYTES]
        self._words = self._raw.cast("q")
        data = np.frombuffer(whole, np.uint8, offset=_counters(len(ranks)))
        self._slots = data.reshape(len(ranks), 2, SLOTS, CHUNK)
        self._views: dict[np.dtype[np.generic], Slots] = {}
        self._posted = self._summed = 0
        self._is_taken = False  # whether all ranks have read the posted data, so that no slot is in use
        self._base = self._place * _RANK_WORDS
        self._sleepers = [(base + _SLEEPS, slab.wake_ups[place]) for place, base in self._others]
        self._fence = threading.Lock()
        self._short_waits, self._needed = 0, _FEWEST

    def sum(self, pieces: Pieces, task: Task) -> None:
        """Sum the pieces over the ranks of this node, in place. Raises CollectiveError like `InterNode.sum`."""
        chunk = CHUNK // pieces.dtype.itemsize
        if pieces.nbytes <= SMALL:
            self._sum_small(pieces, task)
        elif len(self._ranks) == 2:
            self._sum_each(pieces, task, chunk)
        elif pieces.nbytes <= SLOTS * CHUNK:
            self._sum_whole(pieces, task)
        else:
            self._sum_parts(pieces, task, chunk)

    def broadcast(self, pieces: Pieces, task: Task, root: int) -> None:
        """Copy the values of rank `root` to all ranks of this node, in place; see `sum` for errors."""
        place = self._ranks.index(root)
        chunk = CHUNK // pieces.dtype.itemsize
        first = self._posted
        for number, (start, stop) in enumerate(_cuts(pieces.size, chunk)):
            if place == self._place:
                self._post(pieces, start, stop, task)
            else:
                self._count_post(task)
            # The root waits too: the data in a slot must be read before the slot is used again.
            self._wait(_POSTED, first + number + 1, task)
            if place != self._place:
                slots = self._slots_of(_POSTED, first + number, pieces.dtype)
                pieces.copy_from(start, stop, slots[place])

    def close(self) -> None:
        """Release the node's shared memory."""
        self._words.release()
        self._raw.release()
        self._slab.close()

    def _sum_small(self, pieces: Pieces, task: Task) -> None:
        """Post all elements at once, and add the elements of all ranks."""
        number, size = self._posted, pieces.size
        self._post(pieces, 0, size, task)
        self._wait(_POSTED, number + 1, task)
        slots = self._slots_of(_POSTED, number, pieces.dtype)
        if pieces.only is not None:
            _ordered_sum([slot[:size] for slot in slots], pieces.only)
            return
        for at, part in pieces.elements(0, size):
            _ordered_sum([slot[at : at + part.size] for slot in slots], part)

    def _sum_each(self, pieces: Pieces, task: Task, chunk: int) -> None:
        """Add the elements posted by the only other rank."""
        cuts = _cuts(pieces.size, chunk)
        first, other = self._posted, 1 - self._place
        self._post(pieces, *cuts[0], task)
        for number, (start, stop) in enumerate(cuts):
            if number + 1 < len(cuts):
                self._post(pieces, *cuts[number + 1], task)
            self._wait(_POSTED, first + number + 1, task)
            theirs = self._slots_of(_POSTED, first + number, pieces.dtype)[other]
            for at, part in pieces.elements(start, stop):
                np.add(part, theirs[at : at + part.size], out=part)

    def _sum_whole(self, pieces: Pieces, task: Task) -> None:
        """Post all elements over all slots, sum one part of them, and copy the other parts."""
        if not self._is_taken:
            self._count_post(task)
            self._wait(_POSTED, self._posted, task)
        count, size, dtype = len(self._ranks), pieces.size, pieces.dtype
        cuts = [size * place // count for place in range(count + 1)]
        start, stop = cuts[self._place : self._place + 2]
        posted, summed = self._all_slots(_POSTED, dtype), self._all_slots(_SUMMED, dtype)
        ours, own = posted[self._place], pieces.only
        if own is None:
            pieces.copy_to(0, size, ours)
            own = ours
        else:  # no other rank needs the part that this rank sums
            ours[:start], ours[stop:size] = own[:start], own[stop:]
        self._count_post(task)
        self._wait(_POSTED, self._posted, task)
        posted[self._place] = own
        _ordered_sum([source[start:stop] for source in posted], summed[self._place][start:stop])
        self._count_sum()
        self._wait(_SUMMED, self._summed, task)
        for source, (low, high) in zip(summed, pairwise(cuts), strict=True):
            pieces.copy_from(low, high, source[low:])
        self._is_taken = True

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
        slots = [slot[start:stop] for slot in self._slots_of(_POSTED, number, dtype)]
        _ordered_sum(slots, self._slots_of(_SUMMED, self._summed, dtype)[place][start:stop])
        self._count_sum()

    def _take_sums(self, pieces: Pieces, start: int, stop: int, number: int) -> None:
        count, size = len(self._ranks), stop - start
        for place, source in enumerate(self._slots_of(_SUMMED, number, pieces.dtype)):
            low, high = size * place // count, size * (place + 1) // count
            pieces.copy_from(start + low, start + high, source[low:])

    def _slots_of(self, which: int, number: int, dtype: np.dtype[np.generic]) -> list[Flat]:
        """Return the slots of all ranks for a chunk."""
        views = self._views.get(dtype)
        if views is None:
            views = self._views[dtype] = [
                [[slots[which, slot].view(dtype) for slots in self._slots] for slot in range(SLOTS)]
                for which in (_POSTED, _SUMMED)
            ]
        return views[which][number % SLOTS]

    def _all_slots(self, which: int, dtype: np.dtype[np.generic]) -> list[Flat]:
        """Return the slots of each rank as one contiguous array."""
        return [slots[which].reshape(-1).view(dtype) for slots in self._slots]

    def _post(self, pieces: Pieces, start: int, stop: int, task: Task) -> None:
        pieces.copy_to(start, stop, self._slots_of(_POSTED, self._posted, pieces.dtype)[self._place])
        self._count_post(task)

    def _count_post(self, task: Task) -> None:
        task.pack_into(self._raw, (self._base + _TASKS + self._posted % SLOTS * WORDS) * 8)
        self._is_taken = False
        self._posted += 1
        self._words[self._base + _POSTED] = self._posted
        self._ring()

    def _count_sum(self) -> None:
        self._summed += 1
        self._words[self._base + _SUMMED] = self._summed
        self._ring()

    def _ring(self) -> None:
        """Wake up the sleeping ranks."""
        self._order_stores()
        for at, wake_up in self._sleepers:
            if self._words[at]:
                os.eventfd_write(wake_up, 1)

    def _wait(self, which: int, until: int, task: Task) -> None:
        """Wait until the counters of all other ranks reach `until`.

        Raise PeerDiffers if one posted a different task.
        """
        words, expected = self._words, task.words()
        for place, base in self._others:
            if words[base + which] < until:
                self._wait_for(place, base + which, until)
            if which == _POSTED:
                said = unpack(self._raw, (base + _TASKS + (until - 1) % SLOTS * WORDS) * 8)
                if said != expected:
                    task.check(said, self._ranks[place])

    def _wait_for(self, place: int, at: int, until: int) -> None:
        if self._short_waits >= self._needed and self._poll(at, until):
            return
        words, flag, wake_up = self._words, self._base + _SLEEPS, self._slab.wake_ups[self._place]
        begun = time.perf_counter()
        words[flag] = 1
        try:
            self._order_stores()
            while words[at] < until:
                self._watch.wait([(wake_up, select.POLLIN)], [self._ranks[place]])
                with contextlib.suppress(BlockingIOError):  # it was a message about another rank
                    os.eventfd_read(wake_up)
        finally:
            words[flag] = 0
        is_short = time.perf_counter() - begun <= _SPIN_S
        self._short_waits = self._short_waits + 1 if is_short else 0

    def _poll(self, at: int, until: int) -> bool:
        """Poll the counter for a moment, yielding the core in between; return whether it reached `until`.

        If there are more ranks than cores, the other ranks make progress meanwhile. A rank that polls in vain, or
        whose core was taken for longer, polls again only after many short waits: the scheduler prefers ranks that
        slept to those that work.
        """
        begun = time.perf_counter()
        while True:
            os.sched_yield()
            is_there = self._words[at] >= until
            if time.perf_counter() - begun > _SPIN_S:
                self._needed, self._short_waits = min(2 * self._needed, _MOST), 0
                return is_there
            if is_there:
                self._needed = _FEWEST
                return True

    def _order_stores(self) -> None:
        """Make the stores of this rank visible to others before its next loads.

        A posting rank increments its counter and then checks which ranks sleep; a rank that goes to sleep sets its
        flag and then checks the counter. A processor may execute a load before a store, so that both could miss the
        other; taking a lock is an instruction that orders all others.
        """
        with self._fence:
            pass


def _cuts(size: int, chunk: int) -> list[tuple[int, int]]:
    """Return the chunks of `size` elements; a single empty chunk if `size` is 0."""
    return [(start, min(start + chunk, size)) for start in range(0, size, chunk)] or [(0, 0)]


def _ordered_sum(sources: Sequence[npt.NDArray[np.generic]], out: npt.NDArray[np.generic]) -> None:
    np.add(sources[0], sources[1], out=out)
    for source in sources[2:]:
        np.add(out, source, out=out)
