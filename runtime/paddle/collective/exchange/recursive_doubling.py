# SPDX-License-Identifier: Apache-2.0
"""Sums of small arrays in as few rounds as possible: in round k a rank exchanges all it has with the one 2^k away.

Both of a pair compute the same sum of the same two numbers, and x + y has the bits of y + x, so all ranks end with
the same bits. Where the number of ranks is no power of two, those beyond it give theirs to a partner first and get
the sum from it at the end.
"""

from __future__ import annotations

import select

import numpy as np
import numpy.typing as npt

from paddle.collective.exchange.pieces import Pieces
from paddle.collective.exchange.ring import Neighbours
from paddle.collective.exchange.task import SIZE, Task, unpack

LARGEST = 64 << 10  # above, a ring moves fewer bytes
_TRIES = 100


def small_sum(ring: Neighbours, ranks: tuple[int, ...], pieces: Pieces, task: Task) -> None:
    """Sum over all ranks, in place.

    Args:
        ring: this rank's place and its connections.
        ranks: of all places.
    """
    power = 1 << (ring.count.bit_length() - 1)
    mine = np.empty(pieces.size, pieces.dtype)
    for at, part in pieces.elements(0, pieces.size):
        mine[at : at + part.size] = part
    place = ring.place
    if place >= power:
        _swap(ring, ranks[place - power], task, sends=mine, takes=None)
        mine = _swap(ring, ranks[place - power], task, sends=None, takes=mine)
    else:
        if place + power < ring.count:
            mine += _swap(ring, ranks[place + power], task, sends=None, takes=mine)
        for bit in range(power.bit_length() - 1):
            mine += _swap(ring, ranks[place ^ 1 << bit], task, sends=mine, takes=mine)
        if place + power < ring.count:
            _swap(ring, ranks[place + power], task, sends=mine, takes=None)
    for at, part in pieces.elements(0, pieces.size):
        part[:] = mine[at : at + part.size]


def _swap(
    ring: Neighbours,
    rank: int,
    task: Task,
    sends: npt.NDArray[np.generic] | None,
    takes: npt.NDArray[np.generic] | None,
) -> npt.NDArray[np.generic]:
    """Send an array to a rank and return one like `takes` from it; either may be None."""
    stream = ring.streams[rank]
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
            raise ring.watch.broken(rank, error) from None
        idle = 0 if moved else idle + 1
        if idle > _TRIES:
            events = (select.POLLIN if left else 0) | (select.POLLOUT if out else 0)
            ring.watch.wait([(stream.fileno(), events)], [rank])
            idle = 0
    if takes is None:
        return np.empty(0)
    return np.frombuffer(came, takes.dtype, offset=SIZE)
