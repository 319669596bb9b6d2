# SPDX-License-Identifier: Apache-2.0
"""Creates the memory and eventfds that the ranks of a node share; the system frees them with the last process.

The node's first rank creates them and passes them to the others over a Unix socket in the abstract namespace, which
accepts processes of the same user only.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import select
import socket
import time
from collections.abc import Sequence

from paddle.collective.errors import CollectiveError, PeerLate
from paddle.collective.membership import Membership
from paddle_node.contract import checked_json
from paddle_node.contract.classes import dataclass
from paddle_node.linux import descriptors

_MAX_HELLO = 1 << 10
_PAUSE_S = 0.01
_MAX_FDS = 250  # of one message; the kernel takes 253


@dataclass(frozen=True)
class Slab:
    """The memory that the ranks of a node share, and the eventfds that wake them up.

    Attributes:
        memory: shared by all ranks of the node; initially zero.
        wake_ups: an eventfd for each rank of the node, in order.
    """

    memory: mmap.mmap
    wake_ups: tuple[int, ...]

    def close(self) -> None:
        """Close the eventfds; the memory is freed with the last array in it."""
        for wake_up in self.wake_ups:
            os.close(wake_up)


def shared_slab(me: Membership, ranks: Sequence[int], session: bytes, nbytes: int) -> Slab:
    """Create the slab in the node's first rank, or receive it in all other ranks.

    Args:
        ranks: the ranks of this node, including this one.
        session: the session ID of the rendezvous.
        nbytes: the size of the memory.

    Raises:
        PeerLate: another rank of the node did not connect in time.
        CollectiveError: the system cannot provide the memory.
    """
    name = (
        b"\0paddle-collective-"
        + hashlib.blake2b(session + ranks[0].to_bytes(4, "little"), key=me.secret or b"", digest_size=16)
        .hexdigest()
        .encode()
    )
    deadline = time.monotonic() + me.timeout_s
    try:
        if me.rank == ranks[0]:
            return _made(me, ranks, name, nbytes, deadline)
        return _given(me, ranks, name, nbytes, deadline)
    except OSError as error:
        raise CollectiveError(
            f"rank {me.rank} cannot share {nbytes} bytes with {len(ranks)} ranks of this node: "
            f"{error}. set PADDLE_COLLECTIVE_WAY=tcp to use TCP instead",
            me.rank,
        ) from error


def _made(me: Membership, ranks: Sequence[int], name: bytes, nbytes: int, deadline: float) -> Slab:
    memory = descriptors.memory("paddle-collective", nbytes)
    wake_ups: list[int] = []
    try:
        wake_ups += [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in ranks]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(name)
            listener.listen(len(ranks))
            served: set[int] = {me.rank}
            while len(served) < len(ranks):
                served |= _serve(listener, ranks, [memory, *wake_ups], served, deadline)
        return Slab(mmap.mmap(memory, nbytes), tuple(wake_ups))
    except BaseException:
        for wake_up in wake_ups:
            os.close(wake_up)
        raise
    finally:
        os.close(memory)


def _serve(
    listener: socket.socket, ranks: Sequence[int], given: list[int], served: set[int], deadline: float
) -> set[int]:
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
        absent = next(rank for rank in ranks if rank not in served)
        raise PeerLate(
            f"rank {absent} on this node did not open the shared memory in time: check that it is still running",
            absent,
        )
    sock, _ = listener.accept()
    with sock:
        sock.settimeout(1.0)
        try:
            if not descriptors.is_our_user(sock):
                return set()
            rank = checked_json.loads(sock.recv(_MAX_HELLO))
            if rank not in ranks:
                return set()
            for start in range(0, len(given), _MAX_FDS):
                descriptors.send(sock, b"here", given[start : start + _MAX_FDS])
        except (OSError, ValueError):
            return set()
    return {rank}


def _given(me: Membership, ranks: Sequence[int], name: bytes, nbytes: int, deadline: float) -> Slab:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        _connect(sock, me, ranks[0], name, deadline)
        sock.settimeout(max(deadline - time.monotonic(), 0.001))
        sock.send(json.dumps(me.rank).encode())
        given: list[int] = []
        while len(given) < 1 + len(ranks):
            data, more = descriptors.receive(sock, 16, _MAX_FDS)
            if not data:
                raise ConnectionResetError(f"rank {ranks[0]} closed its connection")
            given += more
    memory, *wake_ups = given
    try:
        return Slab(mmap.mmap(memory, nbytes), tuple(wake_ups))
    finally:
        os.close(memory)


def _connect(sock: socket.socket, me: Membership, first: int, name: bytes, deadline: float) -> None:
    while True:
        try:
            sock.connect(name)
            return
        except (ConnectionRefusedError, FileNotFoundError):
            if time.monotonic() > deadline:
                raise PeerLate(
                    f"rank {first} on this node did not create the shared memory within {me.timeout_s:g} s",
                    first,
                ) from None
            time.sleep(_PAUSE_S)
