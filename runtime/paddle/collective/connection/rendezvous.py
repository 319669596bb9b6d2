# SPDX-License-Identifier: Apache-2.0
"""The rendezvous: all ranks connect to rank 0, identify themselves, and learn which ranks share their node."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import secrets
import time

from paddle.collective.connection.calls import Callers, call, listen
from paddle.collective.connection.stream import Stream
from paddle.collective.errors import CollectiveError, PeerDiffers, PeerLate, PeerLost
from paddle.collective.membership import Membership
from paddle.sealing import is_possible
from paddle_node.contract.classes import NamedTuple, dataclass
from paddle_node.linux import proc

_log = logging.getLogger(__name__)

_ANSWER_S = 10.0
_AGAIN_S, _PAUSE_S = 3.0, 0.1
# Other processors see the stores of a processor in order; counters in shared memory rely on that.
_ORDERED = ("x86_64", "AMD64", "i686")


class Hello(NamedTuple):
    """A rank's first message to rank 0: its rank, its node's ID, a digest of all endpoints, and whether it can seal."""

    rank: int
    node: str
    endpoints: str
    seals: bool = False


class Answer(NamedTuple):
    """Rank 0's answer to `Hello`: the content of `Met`, or an `error` and the `rank` at fault."""

    nodes: tuple[str, ...] = ()
    session: str = ""
    seals: bool = False
    error: str = ""
    rank: int | None = None


@dataclass(frozen=True)
class Met:
    """The result of the rendezvous: control connections, and the ranks' nodes.

    Attributes:
        links: connections that stay open for control messages: rank 0's to all others, every other rank's to rank 0.
        nodes: an ID of each rank's node; ranks with the same ID can share memory.
        session: 16 random bytes, different for each rendezvous.
        seals: whether all ranks support and request sealed data between nodes.
    """

    links: dict[int, Stream]
    nodes: tuple[str, ...]
    session: bytes
    seals: bool


def meet(me: Membership) -> Met:
    """Meet all other ranks at rank 0; block until every rank has connected.

    Raises:
        PeerLate: some ranks did not connect in time; the message names them.
        PeerDiffers: a rank has different endpoints, or two processes have the same rank.
        CollectiveError: communication with rank 0 failed.
    """
    deadline = time.monotonic() + me.timeout_s
    return _receive_all(me, deadline) if me.rank == 0 else _visit(me, deadline)


def _receive_all(me: Membership, deadline: float) -> Met:
    links: dict[int, Stream] = {}
    nodes, can_seal = {0: _node(me)}, {0: _can_seal(me)}
    try:
        with listen(me) as listener, Callers(me, listener, deadline, Hello) as callers:
            while len(links) < me.size - 1:
                caller = callers.next(lambda: _absent(me, links))
                if caller is None:
                    raise PeerLate(
                        f"{_absent(me, links)} did not connect within {me.timeout_s:g} s",
                        next(rank for rank in range(1, me.size) if rank not in links),
                    )
                stream, hello = caller
                _welcome(me, stream, hello, links)
                nodes[hello.rank], can_seal[hello.rank] = hello.node, hello.seals
        session = secrets.token_bytes(16)
        everyone = tuple(nodes[rank] for rank in range(me.size))
        unable = [rank for rank in range(me.size) if not can_seal[rank]]
        if me.sealed and unable:
            _log.info(
                "rank %d lacks cryptography 47 or newer, so traffic between nodes is encrypted by "
                "TLS, which is slower than sealed pieces",
                unable[0],
            )
        seals = not unable
        _send_answer(links, Answer(everyone, session.hex(), seals))
    except CollectiveError as error:
        _send_answer(links, Answer(error=str(error), rank=error.rank))
        for stream in links.values():
            stream.close()
        raise
    return Met(links, everyone, session, seals)


def _welcome(me: Membership, stream: Stream, hello: Hello, links: dict[int, Stream]) -> None:
    """Admit a connecting rank, and add its connection to `links`."""
    rank, problem = hello.rank, ""
    if hello.endpoints != _digest(me):
        problem = f"rank {rank} has different endpoints from rank 0, which has {', '.join(me.endpoints)}"
    elif not 0 < rank < me.size:
        problem = f"a process claims to be rank {rank}; expected 1 to {me.size - 1}"
    elif rank in links:
        problem = f"two processes claim to be rank {rank}"
    if problem:
        _send_answer({rank: stream}, Answer(error=problem, rank=rank))
        stream.close()
        raise PeerDiffers(problem, rank)
    links[rank] = stream


def _visit(me: Membership, deadline: float) -> Met:
    """Connect to rank 0; retry if it closes the connection because too many ranks are waiting."""
    again_until = 0.0
    while True:
        try:
            return _introduce_to_first(me, deadline)
        except PeerLost:
            now = time.monotonic()
            again_until = again_until or min(deadline, now + _AGAIN_S)
            if now >= again_until:
                raise
            time.sleep(_PAUSE_S)


def _introduce_to_first(me: Membership, deadline: float) -> Met:
    stream = call(me, 0, deadline)
    try:
        hello = Hello(me.rank, _node(me), _digest(me), _can_seal(me))
        stream.send_note(hello, deadline)
        # rank 0 first names the missing ranks
        answer = stream.take_note(Answer, deadline + _ANSWER_S)
        if answer.error:
            raise PeerDiffers(answer.error, answer.rank)
        return Met({0: stream}, answer.nodes, bytes.fromhex(answer.session), answer.seals)
    except TimeoutError:
        stream.close()
        raise PeerLate(f"rank 0 at {me.endpoints[0]} did not send the list of ranks", 0) from None
    except OSError as error:
        stream.close()
        raise PeerLost(f"rank 0 at {me.endpoints[0]} was lost: {error}", 0) from None
    except BaseException:
        stream.close()
        raise


def _send_answer(links: dict[int, Stream], answer: Answer) -> None:
    deadline = time.monotonic() + _ANSWER_S
    for rank, stream in links.items():
        try:
            stream.send_note(answer, deadline)
        except OSError as error:
            if not answer.error:
                raise PeerLost(f"rank {rank} was lost: {error}", rank) from None


def _absent(me: Membership, links: dict[int, Stream]) -> str:
    return ", ".join(me.name(rank) for rank in range(1, me.size) if rank not in links)


def _digest(me: Membership) -> str:
    return hashlib.blake2b(",".join(me.endpoints).encode(), digest_size=16).hexdigest()


def _can_seal(me: Membership) -> bool:
    return me.sealed and is_possible()


def _node(me: Membership) -> str:
    """Return an ID that is equal for processes that can share memory."""
    if me.way == "tcp" or platform.machine() not in _ORDERED:
        return f"rank {me.rank}"
    if me.node:
        return me.node
    boot = proc.boot_id()
    if not boot:
        return f"rank {me.rank}"
    return f"{boot} {os.readlink('/proc/self/ns/net')} {os.geteuid()}"
