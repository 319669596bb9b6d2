# SPDX-License-Identifier: Apache-2.0
"""Operators that communicate with parameter servers, through the executor's `remote`.

They have side effects, so they run in the order of their block. Their dummy inputs and outputs have no values: they
only define an order.

The operators are send, recv, send_barrier, fetch_barrier, prefetch, checkpoint_notify, listen_and_serv, gen_nccl_id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddle.backend import Array
from paddle.ops.base.body import Remote
from paddle.ops.base.errors import OpError
from paddle.ops.base.registry import operator

_ENDPOINT = "127.0.0.1:6164"


def connected(op_type: str, remote: Remote | None) -> Remote:
    """Return the connection of the executor that runs an operator.

    Raises:
        OpError: the executor has no connection.
    """
    if remote is None:
        raise OpError(f"{op_type} needs parameter servers, but this executor is not connected to any")
    return remote


def _nothing(names: Mapping[str, Sequence[str]]) -> list[None]:
    return [None] * len(names["Out"])


@operator(
    "send",
    "X* -> Out*",
    attrs={"trainer_id": 0, "epmap": (_ENDPOINT,), "sections": (), "send_varnames": (), "num": 0},
    shares_lod=False,
    has_effect=True,
)
def send(
    x: list[Any], *, epmap: tuple[str, ...], names: Mapping[str, Sequence[str]], remote: Remote | None
) -> list[None]:
    """Send each X to the server at its position in epmap."""
    connected("send", remote).send(names["X"], x, epmap)
    return _nothing(names)


@operator(
    "send_barrier",
    "X*? -> Out*",
    attrs={"trainer_id": 0, "endpoints": (_ENDPOINT,)},
    shares_lod=False,
    has_effect=True,
)
def send_barrier(
    x: list[Any], *, endpoints: tuple[str, ...], names: Mapping[str, Sequence[str]], remote: Remote | None
) -> list[None]:
    """Wait until the servers have applied all gradients of the step."""
    connected("send_barrier", remote).finish_sending(endpoints)
    return _nothing(names)


@operator(
    "recv",
    "X*? -> Out*",
    attrs={
        "epmap": (),
        "trainer_id": 0,
        "with_barrier": True,
        "varnames": (),
        "recv_varnames": (),
        "do_not_run": 0,
    },
    shares_lod=False,
    has_effect=True,
)
def recv(
    x: list[Any],
    *,
    epmap: tuple[str, ...],
    varnames: tuple[str, ...],
    names: Mapping[str, Sequence[str]],
    remote: Remote | None,
    xp: Any,
) -> list[Any]:
    """Receive each Out from the server at its position in epmap; varnames are the names on the servers."""
    found = connected("recv", remote).receive(varnames or names["Out"], epmap)
    return [xp.asarray(value) if hasattr(value, "__array__") else value for value in found]


@operator(
    "fetch_barrier",
    "X*? -> Out*?",
    attrs={"trainer_id": 0, "endpoints": (_ENDPOINT,)},
    shares_lod=False,
    has_effect=True,
)
def fetch_barrier(
    x: list[Any], *, endpoints: tuple[str, ...], names: Mapping[str, Sequence[str]], remote: Remote | None
) -> list[Any]:
    """Record that all values of the step have been received, and return the received X unchanged.

    Raises:
        OpError: there are outputs but no X for them.
    """
    if len(x) != len(names["Out"]):
        raise OpError(f"fetch_barrier: expected one X for each of {len(names['Out'])} outputs, got {len(x)}")
    connected("fetch_barrier", remote).finish_receiving(endpoints)
    return x


@operator(
    "prefetch",
    "X* -> Out*",
    attrs={"trainer_id": 0, "epmap": (_ENDPOINT,)},
    shares_lod=False,
    has_effect=True,
)
def prefetch(
    x: list[Array],
    *,
    epmap: tuple[str, ...],
    names: Mapping[str, Sequence[str]],
    remote: Remote | None,
    xp: Any,
) -> list[Any]:
    """Fetch rows of a table: send each X (n, 1) int64 to the server at its position; return the received rows."""
    ids = [each.reshape(-1) for each in x]
    found = connected("prefetch", remote).lookup(names["X"], ids, epmap)
    return [xp.asarray(rows) for rows in found]


@operator(
    "checkpoint_notify",
    "->",
    attrs={"epmap": (_ENDPOINT,), "dir": str, "lookup_table": str, "trainer_id": 0},
    has_effect=True,
)
def checkpoint_notify(
    *, epmap: tuple[str, ...], dir: str, lookup_table: str, remote: Remote | None
) -> tuple[()]:
    """Ask server i to save its rows of a table to `<dir>/<lookup_table>_<i>`, on its own machine."""
    paths = {endpoint: f"{dir}/{lookup_table}_{at}" for at, endpoint in enumerate(epmap)}
    connected("checkpoint_notify", remote).save(lookup_table, paths)
    return ()


@operator(
    "listen_and_serv",
    "X*? ->",
    attrs={
        "endpoint": _ENDPOINT,
        "grad_to_block_id": (),
        "total_to_block_id": (),
        "sync_mode": True,
        "dc_asgd": False,
        "optimize_blocks": (),
        "prefetch_var_name_to_block_id": (),
        "sparse_grad_to_param": (),
        "Fanin": 1,
        "checkpint_block_id": -1,
    },
    has_effect=True,
)
def listen_and_serv(x: list[Any]) -> tuple[()]:
    """Raise an error, because Fluid's executor itself serves the blocks of a program.

    Raises:
        OpError: always.
    """
    raise OpError("listen_and_serv must be run by Executor.run of paddle.fluid")


@operator(
    "gen_nccl_id",
    "-> NCCLID",
    attrs={
        "trainers": (),
        "trainer_id": int,
        "nccl_comm_num": 1,
        "use_hierarchical_allreduce": False,
        "hierarchical_allreduce_inter_nranks": -1,
    },
    has_effect=True,
)
def gen_nccl_id() -> None:
    """Do nothing: trainers connect before their first common step, and the value is never read."""
