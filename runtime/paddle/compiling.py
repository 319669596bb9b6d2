# SPDX-License-Identifier: Apache-2.0
"""How loops are compiled; importing this costs a third of a second, so import it where large arrays are at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import config

_config: Any = config
if not _config.CACHE_DIR and not getattr(_config, "CACHE_LOCATOR_CLASSES", ""):
    # Those of numba follow: they serve sources that are not ours, and homes that cannot be written.
    _config.CACHE_LOCATOR_CLASSES = "paddle.kernel_cache.Shared,InTreeCacheLocator,UserWideCacheLocator"

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function at its first call; it runs without the interpreter's lock.

    What was compiled is kept in the user's cache (`kernel_cache`), or beside the source where there is no home.
    """
    try:
        return cast(F, numba.njit(nogil=True, cache=True, error_model="numpy")(function))
    except RuntimeError:  # nowhere to keep it
        return cast(F, numba.njit(nogil=True, error_model="numpy")(function))
