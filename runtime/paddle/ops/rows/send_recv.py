# SPDX-License-Identifier: Apache-2.0
"""Operators that communicate with other processes, through the executor's `remote`.

They have side effects, so they run in the order of their block. Their dummy inputs and outputs have no values: they
only define an order.

Trainers: send, recv, send_barrier, fetch_barrier, prefetch, checkpoint_notify, gen_nccl_id.
Servers: listen_and_serv, lookup_sparse_table, ref_by_trainer_id and update_sparse_table.
All trainers: allreduce and broadcast combine or copy a value across all places of a data-parallel program's trainers,
which must run them the same number of times. They have no gradient, as in the original.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.attributes import one_of
from paddle.ops.base.body import Peers, Remote
from paddle.ops.base.errors import AttrError, InputError, OpError
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.selected_rows import SelectedRows

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
    overwrites=True,
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


@operator(
    "lookup_sparse_table",
    "W Ids -> Out",
    attrs={
        "padding_idx": -1,
        "auto_grown_table": True,
        "is_test": False,
        "initial_kind": "constant",
        "initial_mean": 0.0,
        "initial_spread": 0.0,
        "initial_seed": 0,
    },
    infer="W(_, D), Ids(..., _) -> W(..., D, lod=Ids)",
)
def lookup_sparse_table(w: Any, ids: Array, *, is_test: bool) -> Array:
    """Look up rows (n, width) in a table of selected rows; an absent row is 0 if is_test.

    Raises:
        InputError: the table is not SelectedRows.
        OpError: rows may have to be created, with values given by (seed, id), which only servers can do.
    """
    if not is_test:
        raise OpError("lookup_sparse_table with is_test=False runs only on parameter servers of Fluid jobs")
    if not isinstance(w, SelectedRows):
        raise InputError(f"lookup_sparse_table: expected selected rows in W, got an array {w.shape}")
    xp = array_module(ids)
    wanted, order = ids.reshape(-1), xp.argsort(w.rows, kind="stable")
    rows = w.rows[order]
    at = xp.minimum(xp.searchsorted(rows, wanted), max(len(rows) - 1, 0))
    out = xp.zeros((len(wanted), *w.values.shape[1:]), w.values.dtype)
    if len(rows):
        known = rows[at] == wanted
        out[known] = w.values[order[at[known]]]
    return out.reshape(*ids.shape[:-1], *w.values.shape[1:])


@operator(
    "update_sparse_table",
    "Param Grad LearningRate -> ParamOut",
    attrs={"rule": str, "hyper_names": (), "hyper_values": (), "scale": 1.0},
    infer="Param",
    in_place={"ParamOut": "Param"},
)
def update_sparse_table(param: Any, grad: Any, rate: Array) -> Any:
    """Apply a rule of `optim.rules`, with Grad times `scale`, to the rows of a growing table that Grad lists.

    Raises:
        OpError: always here; only Fluid servers run this operator.
    """
    raise OpError("update_sparse_table runs only on servers of paddle.fluid")


def _infer_ref(x: list[Spec], trainer_id: Spec) -> Spec:
    return x[0]


@operator("ref_by_trainer_id", "X* TrainerId -> Out", infer=_infer_ref, shares_lod=False)
def ref_by_trainer_id(x: list[Array], trainer_id: Array) -> Array:
    """Select an input by trainer: return the one whose index in X is TrainerId, (1,) int64."""
    at = int(trainer_id.reshape(-1)[0])
    if not 0 <= at < len(x):
        raise InputError(f"TrainerId {at} is out of range: there are {len(x)} trainers")
    return x[at]


_WITH = ("add", "multiply", "maximum", "minimum")  # the numpy function of each reduce_type


def _peers(op_type: str, remote: Remote | None) -> Peers:
    if remote is None or remote.peers is None:
        raise OpError(
            f"{op_type} combines values of several trainers or places: run the program with ParallelExecutor or "
            "CompiledProgram(...).with_data_parallel(...)"
        )
    return remote.peers


@operator(
    "allreduce",
    "X -> Out",
    attrs={"reduce_type": one_of(0, 1, 2, 3), "sync_mode": False},
    infer="X",
    has_effect=True,
)
def allreduce(x: Array, *, reduce_type: int, remote: Remote | None) -> Array:
    """Reduce X over all ranks: return the sum (reduce_type 0), product (1), maximum (2) or minimum (3)."""
    peers = _peers("allreduce", remote)
    if reduce_type == 0:
        return peers.total(x)
    return reduce(getattr(array_module(x), _WITH[reduce_type]), peers.gather(x))


@operator("broadcast", "X -> Out", attrs={"root": 0, "sync_mode": False}, infer="X", has_effect=True)
def broadcast(x: Array, *, root: int, remote: Remote | None) -> Array:
    """Return X of rank `root`; ranks number the places of trainer 0, then of trainer 1, and so on."""
    values = _peers("broadcast", remote).gather(x)
    if not 0 <= root < len(values):
        raise AttrError(f"root: expected 0 to {len(values) - 1}, got {root}")
    return values[root]
