# SPDX-License-Identifier: Apache-2.0
"""Connects the ranks of a job: the meeting, then memory within nodes and connections between them."""

from __future__ import annotations

import contextlib
import socket

from paddle.collective.connection.calls import listen
from paddle.collective.connection.mesh import connected
from paddle.collective.connection.rendezvous import Met, meet
from paddle.collective.errors import CollectiveError
from paddle.collective.exchange import intra_node
from paddle.collective.exchange.inter_node import InterNode
from paddle.collective.exchange.shared_memory import shared_slab
from paddle.collective.exchange.watch import Watch
from paddle.collective.group import Group
from paddle.collective.membership import Membership
from paddle.collective.mpi import mpi_ranks, under_mpirun
from paddle.collective.ranks import Ranks


def connect(me: Membership) -> Ranks:
    """Meet all other ranks and return the group; every rank of the job calls this once.

    Under mpirun, where mpi4py is installed, that is MPI's world, unless the membership says otherwise.

    Raises:
        CollectiveError: not all could be met; names the rank at fault.
        PortBusy: another process has this rank's port.
        ConfigError: this rank's endpoint is no address of this machine.
    """
    if me.way == "mpi" or (me.way == "auto" and under_mpirun()):
        return mpi_ranks(me)
    return connect_group(me)


def connect_group(me: Membership) -> Group:
    """Do the same without MPI."""
    if me.size == 1:
        return Group(0, [[0]], Watch(0, {}, me.endpoints, me.timeout_s), None, None)
    with contextlib.ExitStack() as stack:
        # Before the meeting: whoever is called afterwards listens by then.
        listener = stack.enter_context(listen(me)) if me.rank else None
        met = meet(me)
        watch = Watch(me.rank, met.links, me.endpoints, me.timeout_s)
        try:
            return _built(me, met, watch, listener)
        except CollectiveError as error:
            watch.tell(error)
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
