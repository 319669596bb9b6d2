# SPDX-License-Identifier: Apache-2.0
"""How loops are compiled; importing this costs a third of a second, so import it where large arrays are at hand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import numba
from numba.core import config

from paddle.kernel_cache import place

_config: Any = config
# Those of numba follow: they serve sources that are not ours.
_LOCATORS = "paddle.kernel_cache.Shared,UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator"

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function at its first call; it runs without the interpreter's lock.

    What was compiled is kept where `kernel_cache` says.
    """
    return _njit(function)


def inner(function: F) -> F:
    """Compile a function that only compiled ones call, and Python never: without the wrappers, a third of the work."""
    return _njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _njit(function: F, **wrappers: bool) -> F:
    njit: Any = numba.njit
    with _our_place():
        return cast(F, njit(nogil=True, cache=place() is not None, error_model="numpy", **wrappers)(function))


@contextlib.contextmanager
def _our_place() -> Iterator[None]:
    """Have numba ask `kernel_cache` where a loop is kept, unless the user says where; other loops are not ours."""
    before = getattr(_config, "CACHE_LOCATOR_CLASSES", "")
    _config.CACHE_LOCATOR_CLASSES = before or _LOCATORS
    try:
        yield
    finally:
        _config.CACHE_LOCATOR_CLASSES = before
