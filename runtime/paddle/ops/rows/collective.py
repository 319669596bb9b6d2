# SPDX-License-Identifier: Apache-2.0
"""allreduce and broadcast: combine or copy a value across all places of a data-parallel program's trainers.

All trainers must run these operators the same number of times. The operators have no gradient, as in the original.
"""

from __future__ import annotations

from functools import reduce

from paddle.backend import Array, array_module
from paddle.ops.base.attributes import one_of
from paddle.ops.base.body import Peers, Remote
from paddle.ops.base.errors import AttrError, OpError
from paddle.ops.base.registry import operator

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
    """Return X of rank `root`; ranks count the places of trainer 0, then those of trainer 1, and so on."""
    values = _peers("broadcast", remote).gather(x)
    if not 0 <= root < len(values):
        raise AttrError(f"root: expected 0 to {len(values) - 1}, got {root}")
    return values[root]
