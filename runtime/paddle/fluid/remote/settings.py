# SPDX-License-Identifier: Apache-2.0
"""How transpiled programs talk: with which keys, and how long they wait."""

from __future__ import annotations

import logging
import math
import os
from typing import TYPE_CHECKING

from paddle.env import JobEnvironment
from paddle.errors import ConfigError

if TYPE_CHECKING:
    from paddle.pserver.wire.keys import WireKeys

_log = logging.getLogger(__name__)

_DEADLINE = "FLAGS_rpc_deadline"
_DEADLINE_MS = 180_000.0


def deadline_s() -> float:
    """Return how long a trainer waits for a silent server, and a server for an absent trainer.

    Raises:
        ConfigError: FLAGS_rpc_deadline, which is in milliseconds, cannot be read.
    """
    text = os.environ.get(_DEADLINE, "").strip()
    try:
        wanted = float(text) if text else _DEADLINE_MS
    except ValueError:
        wanted = math.nan
    if not 0 < wanted < math.inf:
        raise ConfigError(f"environment variable {_DEADLINE}: expected milliseconds above 0, got {text!r}")
    return wanted / 1000.0


def wire_keys(who: str) -> WireKeys | None:
    """Return the keys of the job, or None where the wire is plain; then `who` is warned.

    Raises:
        ConfigError: the wire is to be encrypted, and there is no job key.
    """
    from paddle.pserver.wire.keys import WireKeys  # heavy: ZeroMQ

    environment = JobEnvironment.read()
    if environment.wire == "curve" and not environment.job_key:
        raise ConfigError("PADDLE_WIRE=curve needs the job's key: set PADDLE_JOB_KEY, or PADDLE_WIRE=plain")
    if environment.wire == "plain" or not environment.job_key:
        _log.warning("%s: THE WIRE IS PLAIN: whoever reaches the servers can read and change parameters", who)
        return None
    return WireKeys.of(environment.job_key)
