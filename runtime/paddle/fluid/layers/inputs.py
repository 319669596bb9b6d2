# SPDX-License-Identifier: Apache-2.0
"""data: a variable that is fed, as scripts before 1.6 make it (`layers.data`) and later ones (`fluid.data`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from paddle.fluid.program.defaults import default_main_program
from paddle.fluid.program.var_type import VarType
from paddle.fluid.program.variable import Variable

__all__ = ["data"]


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: npt.DTypeLike = "float32",
    lod_level: int = 0,
    type: VarType = VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """Return a variable that is fed; a second call with the same name and shape returns the same one.

    Args:
        name: what it is fed by.
        shape: sizes; None or -1 is unknown.
        append_batch_size: put the batch, -1, before the shape, unless a size in it is unknown.
        dtype: of its values.
        lod_level: depth of its sequences.
        type: what it is.
        stop_gradient: derive nothing for it.
    """
    sizes = [-1 if size is None else int(size) for size in shape]
    if append_batch_size and all(size >= 0 for size in sizes):
        sizes = [-1, *sizes]
    return (
        default_main_program()
        .global_block()
        .create_var(
            name, sizes, dtype, stop_gradient=stop_gradient, lod_level=lod_level, type=type, is_data=True
        )
    )


def sized_data(
    name: str, shape: Sequence[int | None], dtype: npt.DTypeLike = "float32", lod_level: int = 0
) -> Variable:
    """Return a variable that is fed, of the shape as it is given: `fluid.data`, with None or -1 for the batch."""
    return data(name, shape, append_batch_size=False, dtype=dtype, lod_level=lod_level)
