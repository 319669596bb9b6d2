# SPDX-License-Identifier: Apache-2.0
"""What users feed, made into what the core takes: arrays of the variable's dtype, or arrays with sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.fluid.errors import FluidTypeError, RunError
from paddle.fluid.lod_tensor import LoDTensor
from paddle.graph.block import Block
from paddle.ops.base.lod import LoDArray, lod_of, plain, with_lod


def entering(value: Any, block: Block, name: str) -> Any:
    """Return a fed value for a variable of a block.

    Python numbers take the variable's dtype; arrays must have it.

    Raises:
        RunError: it is a list of arrays, which has no shape of its own.
        FluidTypeError: it is no number, or text.
    """
    if isinstance(value, LoDTensor):
        value = value.value()
    if isinstance(value, LoDArray):
        return with_lod(np.asarray(plain(value)), lod_of(value))
    if isinstance(value, (list, tuple)) and any(
        isinstance(each, (np.ndarray, list, LoDTensor)) for each in value
    ):
        lengths = {np.shape(each) for each in value if not isinstance(each, LoDTensor)}
        if len(lengths) != 1:
            raise RunError(
                f"{name!r} was fed a list of values of several shapes: make it one array, or a LoDTensor with "
                "fluid.create_lod_tensor"
            )
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return value
    dtype = block.var(name).dtype
    if value is None:
        raise FluidTypeError(f"{name!r} was fed None: expected an array {block.var(name).shape} {dtype}")
    try:
        return np.asarray(value, dtype)
    except (TypeError, ValueError) as error:
        raise FluidTypeError(f"{name!r} was fed what is no array of {dtype}: {error}") from error
