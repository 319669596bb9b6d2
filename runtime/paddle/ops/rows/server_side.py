# SPDX-License-Identifier: Apache-2.0
"""What a Fluid server's program has besides updates: lookup_sparse_table and save for tables, ref_by_trainer_id."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array
from paddle.ops.base.errors import InputError, OpError
from paddle.ops.base.registry import Spec, operator


def _infer(w: Spec, ids: Spec) -> Spec:
    return Spec((*ids.shape[:-1], w.shape[1]), w.dtype)


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
    infer=_infer,
    shares_lod=False,
)
def lookup_sparse_table(w: Any, ids: Array) -> Array:
    """Return rows of a growing table; one that is not there has the values that (seed, id) give, or 0 if is_test.

    Raises:
        OpError: always.
    """
    raise OpError("lookup_sparse_table is run by servers of paddle.fluid alone")


@operator("save", "X ->", attrs={"overwrite": True, "save_as_fp16": False, "file_path": str}, has_effect=True)
def save(x: Any) -> tuple[()]:
    """Write a variable to a file.

    Raises:
        OpError: always.
    """
    raise OpError("save is run by servers of paddle.fluid alone: call fluid.io.save_vars")


def _infer_ref(x: list[Spec], trainer_id: Spec) -> Spec:
    return x[0]


@operator("ref_by_trainer_id", "X* TrainerId -> Out", infer=_infer_ref, shares_lod=False)
def ref_by_trainer_id(x: list[Array], trainer_id: Array) -> Array:
    """Return X[TrainerId]; the id is (1,) int64."""
    at = int(trainer_id.reshape(-1)[0])
    if not 0 <= at < len(x):
        raise InputError(f"trainer {at} of {len(x)}")
    return x[at]
