# SPDX-License-Identifier: Apache-2.0
"""Whether this machine has a GPU that cupy can use."""

from __future__ import annotations

import functools
import importlib
from typing import Any


@functools.cache
def missing_gpu() -> str:
    """Return why tests of GPUs cannot run here, or an empty text."""
    try:
        cupy: Any = importlib.import_module("cupy")
    except ImportError:
        return "needs cupy and a GPU: cupy is not installed"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"needs cupy and a GPU: {error}"
    return "" if count else "needs cupy and a GPU: there is none"
