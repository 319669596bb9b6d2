# SPDX-License-Identifier: Apache-2.0
"""Operators of a Fluid server's program other than updates: lookup_sparse_table and ref_by_trainer_id."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.errors import InputError, OpError
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.selected_rows import SelectedRows


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
