# SPDX-License-Identifier: Apache-2.0
"""Waiting for a condition with a deadline: the one place where a test polls."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_IDLE = 9  # pauses last so many times as long as probes, which take the processor from what is waited for


def wait_for(what: str, probe: Callable[[], T], deadline_s: float, every_s: float = 0.02) -> T:
    """Calls `probe` until it returns something true, and returns that.

    Args:
        what: for the message.
        probe: called at least once.
        deadline_s: how long, in seconds.
        every_s: the shortest pause between two calls.

    Raises:
        AssertionError: the deadline passed; the message holds `what` and the last result.
    """
    end = time.monotonic() + deadline_s
    while True:
        began = time.thread_time()
        result = probe()
        if result:
            return result
        if time.monotonic() >= end:
            raise AssertionError(f"waited {deadline_s:g} s for {what}; last seen: {result!r}")
        time.sleep(max(every_s, _IDLE * (time.thread_time() - began)))
