# SPDX-License-Identifier: Apache-2.0
"""How loops are compiled; importing this costs a third of a second, so import it where large arrays are at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function at its first call; it runs without the interpreter's lock.

    What was compiled is kept beside the source where that can be written to, or in the user's cache.
    """
    try:
        return cast(F, numba.njit(nogil=True, cache=True, error_model="numpy")(function))
    except RuntimeError:  # nowhere to keep it
        return cast(F, numba.njit(nogil=True, error_model="numpy")(function))
