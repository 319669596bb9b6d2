# SPDX-License-Identifier: Apache-2.0
"""The ranks of a job that compute together (`Group`); all call the same operations in the same order.

Within a node, arrays travel through shared memory; between nodes, each node's first rank acts for the others. Results
are bit-equal on all ranks and in every run. After an error, a group is unusable: every further operation raises the
same error. `connect` creates a group: it runs the rendezvous, then sets up shared memory and connections. Processes
that mpirun started use mpi4py instead, if it is installed.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import os
import socket
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paddle.collective.connection.calls import listen
from paddle.collective.connection.mesh import connected
from paddle.collective.connection.rendezvous import Met, meet
from paddle.collective.errors import CollectiveError, PeerDiffers, PeerLate
from paddle.collective.exchange import intra_node
from paddle.collective.exchange.inter_node import InterNode
from paddle.collective.exchange.intra_node import IntraNode
from paddle.collective.exchange.shared_memory import shared_slab
from paddle.collective.exchange.task import WORDS, Kind, Pieces, Task, dtype_code
from paddle.collective.exchange.watch import Watch
from paddle.collective.membership import Membership
from paddle.collective.ranks import Arrays, Ranks
from paddle.errors import ConfigError


class Group(Ranks):
    """The ranks of a job, connected by shared memory within a node and by TCP between nodes."""

    def __init__(
        self,
        rank: int,
        nodes: Sequence[Sequence[int]],
        watch: Watch,
        within: IntraNode | None,
        between: InterNode | None,
    ) -> None:
        """Wrap the connections that `connect` made.

        Args:
            nodes: the ranks of each node.
            within: the exchange with other ranks of this node; None if there are none.
            between: the exchange with other nodes; None if there are none, or another rank acts for this one.
        """
        self.rank = rank
        self.size = sum(map(len, nodes))
        self.ways = tuple(way for way, there in (("shared memory", within), ("tcp", len(nodes) > 1)) if there)
        self._firsts = {each: ranks[0] for ranks in nodes for each in ranks}
        self._watch, self._within, self._between = watch, within, between
        self._failed: CollectiveError | None = None
        self._finalizer = weakref.finalize(self, _leave, watch, within, between)

    def all_reduce(self, arrays: Arrays) -> None:
        """Replace values, in place, with their sums over all ranks; an empty list is a barrier.

        See `Ranks.all_reduce`.
        """
        self._run(Kind.SUM, _pieces(arrays), 0)

    def broadcast(self, arrays: Arrays, root: int = 0) -> None:
        """Replace values, in place, with the values of rank `root`; see `Ranks.broadcast`."""
        self._run(Kind.BROADCAST, _pieces(arrays), root)

    def listen(self) -> None:
        """Raise the error that another rank has reported since the last operation, if any; does not wait.

        Raises:
            CollectiveError: a rank failed or was lost.
        """
        try:
            self._watch.listen()
        except CollectiveError as error:
            raise self.fail(error) from None

    @property
    def called(self) -> int:
        """The number of the latest round that any rank has called for."""
        return self._watch.called

    @property
    def timeout_s(self) -> float:
        """The longest time that ranks wait for each other, in seconds."""
        return self._watch.timeout_s

    def call(self, number: int) -> None:
        """Notify all ranks that a round begins, so that they start its first operation; rounds are numbered from 1."""
        self._check()
        self._watch.call(number)

    def await_call(self, number: int, wake_up: int) -> None:
        """Wait until a rank calls for this round, or until a descriptor of this rank is readable.

        Raises:
            CollectiveError: a rank failed, was lost, or has left.
        """
        self._check()
        try:
            self._watch.await_call(number, wake_up)
        except CollectiveError as error:
            raise self.fail(error) from None

    def name(self, rank: int) -> str:
        """Return a rank's name for messages."""
        return self._watch.name(rank)

    def fail(self, error: CollectiveError) -> CollectiveError:
        """End the group because this rank cannot continue; see `Ranks.fail`."""
        if self._failed is None:
            self._failed = error
            self._watch.report(error)
            if self._finalizer.detach() is not None:
                _close(self._watch, self._within, self._between)
        return error

    def close(self) -> None:
        """Leave the group normally; see `Ranks.close`."""
        self._finalizer()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
        if not self._finalizer.alive:
            raise CollectiveError("this group is closed: connect again", self.rank)

    def _run(self, kind: Kind, pieces: Pieces, root: int) -> None:
        self._check()
        if self.size > 1:
            task = Task(self._watch.number, kind, dtype_code(pieces.dtype), pieces.nbytes, root)
            self._watch.begin(task.number)
            try:
                (self._sum if kind == Kind.SUM else self._broadcast)(pieces, task)
            except CollectiveError as error:
                raise self.fail(error) from None
            except BaseException:  # Ctrl+C: the state of other ranks can no longer be determined
                self.fail(
                    CollectiveError(f"rank {self.rank} was interrupted in {task.describe()}", self.rank)
                )
                raise
        self._watch.number += 1

    def _sum(self, pieces: Pieces, task: Task) -> None:
        if self._within is not None:
            self._within.sum(pieces, task)
        if self._between is not None:
            self._between.sum(pieces, task)
        self._spread(pieces, task)

    def _broadcast(self, pieces: Pieces, task: Task) -> None:
        first, of_root = self._firsts[self.rank], self._firsts[task.root]
        if self._within is not None and first == of_root:
            self._within.broadcast(pieces, task, task.root)
        if self._between is not None:
            self._between.broadcast(pieces, task, of_root)
        if first != of_root:
            self._spread(pieces, task)

    def _spread(self, pieces: Pieces, task: Task) -> None:
        """Distribute the values that this node's first rank received to the node's other ranks."""
        if self._within is not None and "tcp" in self.ways:
            self._within.broadcast(pieces, task, self._firsts[self.rank])


def _leave(watch: Watch, within: IntraNode | None, between: InterNode | None) -> None:
    watch.leave()
    _close(watch, within, between)


def _close(watch: Watch, within: IntraNode | None, between: InterNode | None) -> None:
    watch.close()
    for way in (within, between):
        if way is not None:
            way.close()


def _pieces(arrays: Arrays) -> Pieces:
    return Pieces([arrays] if isinstance(arrays, np.ndarray) else list(arrays))


def connect(me: Membership) -> Ranks:
    """Connect to all other ranks and return the group; every rank of the job calls this once.

    Under mpirun, the group is MPI's world if mpi4py is installed, unless the membership excludes it.

    Raises:
        CollectiveError: a rank could not be reached; the message names it.
        PortBusy: another process has this rank's port.
        ConfigError: this rank's endpoint is not an address of this machine.
    """
    if me.way == "mpi" or (me.way == "auto" and under_mpirun()):
        return mpi_ranks(me)
    return connect_group(me)


def connect_group(me: Membership) -> Group:
    """Connect to all other ranks without MPI; see `connect` for the errors."""
    if me.size == 1:
        return Group(0, [[0]], Watch(0, {}, me.endpoints, me.timeout_s), None, None)
    with contextlib.ExitStack() as stack:
        # Listen before the rendezvous, so that every rank listens before another one connects to it.
        listener = stack.enter_context(listen(me)) if me.rank else None
        met = meet(me)
        watch = Watch(me.rank, met.links, me.endpoints, me.timeout_s)
        try:
            return _built(me, met, watch, listener)
        except CollectiveError as error:
            watch.report(error)
            watch.close()
            raise
        except BaseException:
            watch.close()
            raise


def _built(me: Membership, met: Met, watch: Watch, listener: socket.socket | None) -> Group:
    nodes: dict[str, list[int]] = {}
    for rank, node in enumerate(met.nodes):
        nodes.setdefault(node, []).append(rank)
    ours = nodes[met.nodes[me.rank]]
    firsts = sorted(ranks[0] for ranks in nodes.values())
    between = within = None
    if len(firsts) > 1 and me.rank == ours[0]:
        between = InterNode(firsts, me.rank, connected(me, firsts, met, listener), watch)
    if len(ours) > 1:
        slab = shared_slab(me, ours, met.session, intra_node.bytes_needed(len(ours)))
        within = intra_node.IntraNode(slab, ours, me.rank, watch)
    return Group(me.rank, list(nodes.values()), watch, within, between)


_STARTED_BY = (
    "PMIX_RANK",
    "PMI_RANK",
)  # OMPI_COMM_WORLD_RANK proves nothing: a launcher may set it without MPI
_TESTS = 2000  # before it sleeps: MPI has no descriptor to wait for
_PAUSES_S = (50e-6, 1e-3)


def under_mpirun(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether mpirun started this process and mpi4py is installed."""
    env = os.environ if environ is None else environ
    return any(name in env for name in _STARTED_BY) and importlib.util.find_spec("mpi4py") is not None


class MpiRanks(Ranks):
    """The ranks of MPI_COMM_WORLD, as a group.

    MPI does not report which rank is at fault. Therefore ranks compare their next operation before they run it, which
    also finds ranks that are doing something different, and they wait with a deadline. After an error the whole MPI job
    is aborted when this process ends, because MPI can no longer be finalised.
    """

    def __init__(self, timeout_s: float) -> None:
        """Initialize MPI unless it is already initialized. Raises ConfigError if mpi4py is not installed."""
        try:
            self._mpi: Any = importlib.import_module("mpi4py.MPI")
        except ImportError as error:
            raise ConfigError(f"way is 'mpi', but mpi4py cannot be imported: {error}") from error
        self._world = self._mpi.COMM_WORLD.Dup()
        self.rank, self.size, self.ways = self._world.rank, self._world.size, ("mpi",)
        self._timeout_s = timeout_s
        self._number = 0
        self._failed: CollectiveError | None = None

    def all_reduce(self, arrays: Arrays) -> None:
        """Replace values, in place, with their sums over all ranks; see `Ranks.all_reduce`."""
        listed = self._begin(Kind.SUM, arrays, 0)
        self._wait([self._world.Iallreduce(self._mpi.IN_PLACE, each) for each in listed])

    def broadcast(self, arrays: Arrays, root: int = 0) -> None:
        """Replace values, in place, with the values of rank `root`; see `Ranks.broadcast`."""
        listed = self._begin(Kind.BROADCAST, arrays, root)
        self._wait([self._world.Ibcast(each, root) for each in listed])

    def fail(self, error: CollectiveError) -> CollectiveError:
        """End the group because this rank cannot continue; see `Ranks.fail`."""
        if self._failed is None:
            self._failed = error
            atexit.register(self._world.Abort, 1)
        return error

    def close(self) -> None:
        """Leave the group normally; MPI itself ends with the process."""

    def _begin(self, kind: Kind, arrays: Arrays, root: int) -> list[Any]:
        if self._failed is not None:
            raise self._failed
        listed = [arrays] if isinstance(arrays, np.ndarray) else list(arrays)
        pieces = Pieces(listed)
        task = Task(self._number, kind, dtype_code(pieces.dtype), pieces.nbytes, root)
        self._number += 1
        mine, everyone = np.array(task.words(), np.int64), np.empty((self.size, WORDS), np.int64)
        self._wait([self._world.Iallgather(mine, everyone)])
        for rank in range(self.size):
            try:
                task.check(tuple(everyone[rank].tolist()), rank)
            except PeerDiffers as error:
                raise self.fail(error) from None
        return [each for each in listed if each.size]

    def _wait(self, requests: list[Any]) -> None:
        deadline = time.monotonic() + self._timeout_s
        pause_s, tests = _PAUSES_S[0], 0
        while not self._mpi.Request.Testall(requests):
            tests += 1
            if tests < _TESTS:
                continue
            if time.monotonic() > deadline:
                raise self.fail(
                    PeerLate(
                        f"operation {self._number - 1}: waited {self._timeout_s:g} s for the other ranks of "
                        "the MPI world; check that all ranks run the same number of batches"
                    )
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSES_S[1])


def mpi_ranks(me: Membership) -> MpiRanks:
    """Return MPI_COMM_WORLD as a group, after checking that it consists of the job's ranks.

    Raises:
        ConfigError: the number or the order of ranks differs.
    """
    ranks = MpiRanks(me.timeout_s)
    if (ranks.rank, ranks.size) != (me.rank, me.size):
        raise ConfigError(
            f"this process is rank {ranks.rank} of {ranks.size} in MPI but rank {me.rank} of "
            f"{me.size} in the job; set PADDLE_COLLECTIVE_WAY=tcp to run without MPI"
        )
    return ranks
