# SPDX-License-Identifier: Apache-2.0
"""embedding and one_hot: what stands for an id."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.param_attr import ParamAttrLike
from paddle.fluid.program.variable import Variable

__all__ = ["embedding", "one_hot"]


def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: ParamAttrLike = None,
    dtype: npt.DTypeLike = "float32",
) -> Variable:
    """Return the rows of a table by id, shape input.shape[:-1] + [width].

    Args:
        input: int64 ids, (..., 1).
        size: [rows, width] of the table.
        is_sparse: the gradient is selected rows.
        is_distributed: the table lives on parameter servers alone; ids are any int64.
        padding_idx: this id, counted from the end if negative, has zeros for a row.
        param_attr: of the table.
        dtype: of the table.
    """
    helper = LayerHelper("embedding", param_attr=param_attr)
    table = helper.create_parameter(False if helper.param_attr is None else helper.param_attr, size, dtype)
    if padding_idx is None:
        padding_idx = -1
    elif padding_idx < 0:
        padding_idx += size[0]
    attrs = {
        "is_sparse": is_sparse,
        "is_distributed": is_distributed,
        "remote_prefetch": is_sparse and not is_distributed,
        "padding_idx": padding_idx,
    }
    return helper.apply("lookup_table", {"W": table, "Ids": input}, attrs, dtype=dtype)


def one_hot(input: Variable, depth: int) -> Variable:
    """Return vectors of `depth` with a 1 at the id, float32."""
    helper = LayerHelper("one_hot")
    return helper.apply("one_hot", {"X": input}, {"depth": depth})
