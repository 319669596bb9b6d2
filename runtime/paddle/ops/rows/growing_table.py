# SPDX-License-Identifier: Apache-2.0
"""lookup_sparse_table, save: what a server's program says of a table that grows; Fluid's server carries them out."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array
from paddle.ops.base.errors import OpError
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


@operator(
    "save",
    "X ->",
    attrs={"overwrite": True, "save_as_fp16": False, "file_path": str},
    has_effect=True,
)
def save(x: Any) -> tuple[()]:
    """Write a variable to a file.

    Raises:
        OpError: always.
    """
    raise OpError("save is run by servers of paddle.fluid alone: call fluid.io.save_vars")
