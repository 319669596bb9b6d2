# SPDX-License-Identifier: Apache-2.0
"""Threads that work only with what others leave."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

_NICE = 10


def give_way() -> None:
    """Have the system prefer threads that trainers wait for to the calling one, where processors are short."""
    if sys.platform == "linux":  # where a thread has a priority of its own
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
