# SPDX-License-Identifier: Apache-2.0
"""What a job survived: processes that were started again, trainers that were left out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

RESTART = "restart"
LEFT_OUT = "left out"


@dataclass(frozen=True)
class Incident:
    """One thing that the job went on after.

    Attributes:
        kind: RESTART or LEFT_OUT.
        at: seconds since 1970.
    """

    kind: str
    text: str
    at: float = field(default_factory=time.time)
