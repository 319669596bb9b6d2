# SPDX-License-Identifier: Apache-2.0
"""Sums and broadcasts between the nodes' first ranks: small sums by recursive doubling, everything else by a ring.

Recursive doubling: in round k a rank exchanges its partial sum with the rank 2^k away. Both ranks of a pair add the
same two numbers, and x + y is bit-equal to y + x, so all ranks end with the same bits. If the number of ranks is not a
power of two, each surplus rank first gives its values to a partner, and receives the sum at the end.

Ring: each rank sends to the next one and receives from the previous one. A sum takes 2(n-1) steps. In the first n-1, a
rank adds the received values to its own part of a segment; in the remaining steps, finished segments travel around the
ring. Each step sends the bytes that the previous step received, so a byte can be forwarded as soon as it arrives:
receiving, adding and sending overlap in one thread. Each segment is summed once, in a fixed order, so the result is
bit-equal on all ranks and in every run.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from paddle.collective.connection.stream import Stream
from paddle.collective.exchange.task import SIZE, Pieces, Task, unpack
from paddle.collective.exchange.watch import Watch

_LARGEST = 64 << 10  # above, a ring moves fewer bytes
_SWAP_TRIES = 100
CHUNK = 256 << 10  # stays in a core's own cache between the kernel's copy and the sum
# Maximum number of polls before sleeping, about 50 us; half as many after an unsuccessful wait, because on a busy
# machine the other ranks may only run while this one sleeps.
_RING_TRIES = 50

Range = tuple[int, int]


class InterNode:
    """The exchange of one node with the others, at its position in the ring. Not thread-safe."""

    def __init__(self, ranks: Sequence[int], rank: int, streams: dict[int, Stream], watch: Watch) -> None:
        self._place, self._count, self._ranks = ranks.index(rank), len(ranks), tuple(ranks)
        self._before = ranks[(self._place - 1) % self._count]  # the rank that it receives from
        self._after = ranks[(self._place + 1) % self._count]
        self._streams, self._watch = streams, watch

    def sum(self, pieces: Pieces, task: Task) -> None:
        """Sum the pieces over all nodes, in place.

        Raises:
            CollectiveError: a rank failed, was lost, left, is late, or runs a different operation.
        """
        if pieces.nbytes <= _LARGEST:
            self._sum_small(pieces, task)
            return
        place, count = self._place, self._count
        item, legs = pieces.dtype.itemsize, range(2 * (count - 1))
        parts = list(pairwise(pieces.size * number // count * item for number in range(count + 1)))
        outgoing = [parts[(place - leg) % count] for leg in legs]
        incoming = [parts[(place - leg - 1) % count] for leg in legs]
        start, stop = parts[place]
        self._pump(pieces, task, outgoing, incoming, adding=count - 1, ready=stop - start)

    def broadcast(self, pieces: Pieces, task: Task, root: int) -> None:
        """Copy the values of node `root`'s first rank to all nodes, in place; see `sum` for errors."""
        everything = [(0, pieces.nbytes)]
        distance = (self._place - self._ranks.index(root)) % self._count
        outgoing = everything if distance < self._count - 1 else []
        incoming = everything if distance else []
        self._pump(pieces, task, outgoing, incoming, adding=0, ready=0 if distance else pieces.nbytes)

    def close(self) -> None:
        """Close the connections to other nodes."""
        for stream in self._streams.values():
            stream.close()

    def _pump(
        self,
        pieces: Pieces,
        task: Task,
        outgoing: Sequence[Range],
        incoming: Sequence[Range],
        adding: int,
        ready: int,
    ) -> None:
        sending = _Sender(self._streams[self._after], pieces, task, outgoing, ready)
        receiving = _Receiver(self._streams[self._before], pieces, task, incoming, adding, self._before)
        idle, tries = 0, _RING_TRIES
        while not (sending.done and receiving.done):
            moved = False
            if not receiving.done:
                try:
                    moved, came = receiving.step()
                except OSError as error:
                    raise self._watch.broken(self._before, error) from None
                sending.ready += came
            if sending.can:
                try:
                    moved = sending.step() or moved
                except OSError as error:
                    raise self._watch.broken(self._after, error) from None
            if not moved:
                idle += 1
                if idle > tries:
                    self._sleep(sending, receiving)
                    idle, tries = 0, tries // 2
            elif idle:
                idle, tries = 0, min(2 * tries + 1, _RING_TRIES)

    def _sleep(self, sending: _Sender, receiving: _Receiver) -> None:
        events: dict[int, int] = {}
        if not receiving.done:
            events[self._streams[self._before].fileno()] = select.POLLIN
        if sending.can:
            descriptor = self._streams[self._after].fileno()
            events[descriptor] = events.get(descriptor, 0) | select.POLLOUT
        self._watch.wait(list(events.items()), [self._after if receiving.done else self._before])

    def _sum_small(self, pieces: Pieces, task: Task) -> None:
        place, ranks, count = self._place, self._ranks, self._count
        power = 1 << (count.bit_length() - 1)
        mine = np.empty(pieces.size, pieces.dtype)
        pieces.copy_to(0, pieces.size, mine)
        if place >= power:
            self._swap(ranks[place - power], task, sends=mine, takes=None)
            mine = self._swap(ranks[place - power], task, sends=None, takes=mine)
        else:
            if place + power < count:
                mine += self._swap(ranks[place + power], task, sends=None, takes=mine)
            for bit in range(power.bit_length() - 1):
                mine += self._swap(ranks[place ^ 1 << bit], task, sends=mine, takes=mine)
            if place + power < count:
                self._swap(ranks[place + power], task, sends=mine, takes=None)
        pieces.copy_from(0, pieces.size, mine)

    def _swap(
        self,
        rank: int,
        task: Task,
        sends: npt.NDArray[np.generic] | None,
        takes: npt.NDArray[np.generic] | None,
    ) -> npt.NDArray[np.generic]:
        """Send an array to a rank and receive one shaped like `takes` from it; either may be None."""
        stream = self._streams[rank]
        out = memoryview(task.pack() + sends.tobytes() if sends is not None else b"")
        came = bytearray(SIZE + takes.nbytes if takes is not None else 0)
        left = memoryview(came)
        idle, checked = 0, False
        while out or left:
            moved = 0
            try:
                if out:
                    moved = stream.send_some([out])
                    out = out[moved:]
                if left:
                    got = stream.take_some(left)
                    if not checked and len(came) - len(left) + got >= SIZE:
                        task.check(unpack(memoryview(came)[:SIZE]), rank)
                        checked = True
                    left = left[got:]
                    moved += got
            except OSError as error:
                raise self._watch.broken(rank, error) from None
            idle = 0 if moved else idle + 1
            if idle > _SWAP_TRIES:
                events = (select.POLLIN if left else 0) | (select.POLLOUT if out else 0)
                self._watch.wait([(stream.fileno(), events)], [rank])
                idle = 0
        if takes is None:
            return np.empty(0)
        return np.frombuffer(came, takes.dtype, offset=SIZE)


class _Sender:
    """Sends data to a rank: first the task, then ranges of the pieces as they become ready."""

    def __init__(
        self, stream: Stream, pieces: Pieces, task: Task, ranges: Sequence[Range], ready: int
    ) -> None:
        self._stream, self._pieces = stream, pieces
        self._ranges = [each for each in ranges if each[1] > each[0]]
        self._head = memoryview(task.pack() if ranges else b"")
        self._leg, self._at = 0, self._ranges[0][0] if self._ranges else 0
        self.ready = ready

    @property
    def done(self) -> bool:
        """Return whether everything was sent."""
        return self._leg == len(self._ranges) and not self._head

    @property
    def can(self) -> bool:
        """Return whether data is ready to be sent."""
        return bool(self._head) or (self.ready > 0 and self._leg < len(self._ranges))

    def step(self) -> bool:
        """Send as much as the connection accepts now; return whether anything was sent."""
        views: list[memoryview] = [self._head] if self._head else []
        if self.ready > 0 and self._leg < len(self._ranges):
            stop = min(self._ranges[self._leg][1], self._at + self.ready, self._at + 2 * CHUNK)
            views += self._pieces.raw(self._at, stop)[:64]
        sent = self._stream.send_some(views)
        head = min(sent, len(self._head))
        self._head = self._head[head:]
        self._at += sent - head
        self.ready -= sent - head
        if self._leg < len(self._ranges) and self._at == self._ranges[self._leg][1]:
            self._leg += 1
            if self._leg < len(self._ranges):
                self._at = self._ranges[self._leg][0]
        return sent > 0


class _Receiver:
    """Receives data from a rank: the task, then ranges of the pieces. The first `adding` ranges are added in place."""

    def __init__(
        self, stream: Stream, pieces: Pieces, task: Task, ranges: Sequence[Range], adding: int, rank: int
    ) -> None:
        self._stream, self._pieces, self._task, self._rank = stream, pieces, task, rank
        self._ranges = [(*each, leg < adding) for leg, each in enumerate(ranges) if each[1] > each[0]]
        self._head = bytearray(SIZE)
        self._head_got = 0 if ranges else SIZE
        self._leg, self._at = 0, self._ranges[0][0] if self._ranges else 0
        self._scratch = np.empty(CHUNK if adding else 0, np.uint8)
        self._held = 0  # bytes in scratch that are not added yet

    @property
    def done(self) -> bool:
        """Return whether everything was received."""
        return self._leg == len(self._ranges) and self._head_got == SIZE

    def step(self) -> tuple[bool, int]:
        """Receive the available bytes; return whether there were any, and how many bytes can be forwarded."""
        if self._head_got < SIZE:
            got = self._stream.take_some(memoryview(self._head)[self._head_got :])
            self._head_got += got
            if self._head_got == SIZE:
                self._task.check(unpack(self._head), self._rank)
            return got > 0, 0
        _, stop, adds = self._ranges[self._leg]
        took: Callable[[int], tuple[bool, int]] = self._add if adds else self._place
        got, ready = took(stop)
        self._at += ready
        if self._at == stop:
            self._leg += 1
            if self._leg < len(self._ranges):
                self._at = self._ranges[self._leg][0]
        return got, ready

    def _place(self, stop: int) -> tuple[bool, int]:
        got = self._stream.take_some(self._pieces.raw(self._at, min(stop, self._at + 2 * CHUNK))[0])
        return got > 0, got

    def _add(self, stop: int) -> tuple[bool, int]:
        room = min(CHUNK, stop - self._at) - self._held
        got = self._stream.take_some(self._scratch.data[self._held : self._held + room])
        held = self._held + got
        item = self._pieces.dtype.itemsize
        whole = held // item * item
        if whole:
            came = self._scratch[:whole].view(self._pieces.dtype)
            for at, part in self._pieces.elements(self._at // item, (self._at + whole) // item):
                np.add(part, came[at : at + part.size], out=part)
            self._scratch[: held - whole] = self._scratch[whole:held]
        self._held = held - whole
        return got > 0, whole
