# SPDX-License-Identifier: Apache-2.0
"""When an operator's work goes to compiled loops: large float32 arrays on the host, if numba is there."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from paddle.backend import Array

# Below it loading compiled code costs more than it saves: many models are never larger.
_COMPILED_FROM = 1 << 16


def kernels_for(size: int, *arrays: Array) -> Any:
    """Return the module of compiled loops, or None where the plain form is to be used.

    Args:
        size: elements of the largest array that such work is about.
        arrays: all that the loop is given.
    """
    return compiled_loops("paddle.ops.base.kernels", *arrays) if size >= _COMPILED_FROM else None


def compiled_loops(module: str, *arrays: Array) -> Any:
    """Return a module of compiled loops, or None where it cannot work on arrays: see `kernels_for`."""
    if any(
        type(array) is not np.ndarray or array.dtype != np.float32 or not array.flags.c_contiguous
        for array in arrays
    ):
        return None
    return _module(module)


def read_only(array: Array) -> Array:
    """Return a view that one compiled form serves, wherever the array came from."""
    view = array.view()
    view.flags.writeable = False
    return view


@functools.cache
def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
