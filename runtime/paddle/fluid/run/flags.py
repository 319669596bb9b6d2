# SPDX-License-Identifier: Apache-2.0
"""Applies the FLAGS_ environment variables that have an effect, and warns about all others."""

from __future__ import annotations

import logging
import os
from functools import cache

from paddle.errors import FlagError
from paddle_node.contract.flags import parse_bool

_log = logging.getLogger(__name__)

CHECK_NAN_INF = "FLAGS_check_nan_inf"
_HONOURED = frozenset({CHECK_NAN_INF, "FLAGS_rpc_deadline", "FLAGS_selected_gpus"})


def checks_finite() -> bool:
    """Return whether to check that every operator's results are finite (FLAGS_check_nan_inf).

    Raises:
        FlagError: FLAGS_check_nan_inf cannot be parsed.
    """
    warn_of_others()
    text = os.environ.get(CHECK_NAN_INF, "").strip()
    try:
        return parse_bool(text or "0")
    except ValueError as error:
        raise FlagError(f"environment variable {CHECK_NAN_INF}: {error}") from None


@cache
def warn_of_others() -> None:
    """Log a warning, once per process, about FLAGS_ variables that have no effect."""
    others = sorted(name for name in os.environ if name.startswith("FLAGS_") and name not in _HONOURED)
    if others:
        _log.warning("flags without effect in this runtime: %s", ", ".join(others))
