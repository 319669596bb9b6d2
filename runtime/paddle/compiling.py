# SPDX-License-Identifier: Apache-2.0
"""How loops are compiled; importing this costs a third of a second, so import it where large arrays are at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import config

from paddle.kernel_cache import place

_config: Any = config
if not getattr(_config, "CACHE_LOCATOR_CLASSES", ""):
    # Those of numba follow: they serve sources that are not ours.
    _config.CACHE_LOCATOR_CLASSES = ",".join(
        (
            "paddle.kernel_cache.Shared",
            "UserProvidedCacheLocator",
            "InTreeCacheLocator",
            "UserWideCacheLocator",
        )
    )

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function at its first call; it runs without the interpreter's lock.

    What was compiled is kept where `kernel_cache` says.
    """
    return cast(F, numba.njit(nogil=True, cache=place() is not None, error_model="numpy")(function))


def inner(function: F) -> F:
    """Compile a function that only compiled ones call, and Python never: without the wrappers, a third of the work."""
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    njit: Any = numba.njit
    return cast(F, njit(nogil=True, cache=place() is not None, error_model="numpy", **wrappers)(function))
