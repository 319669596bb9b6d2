# SPDX-License-Identifier: Apache-2.0
"""A flag is set by a signal handler at any instruction of the thread that waits for it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from paddle.threads import Flag


@pytest.fixture
def flag() -> Iterator[Flag]:
    flag = Flag()
    earlier = signal.signal(signal.SIGUSR1, lambda *_: flag.set())
    yield flag
    signal.signal(signal.SIGUSR1, earlier)


def test_a_flag_that_is_not_set_is_waited_for(flag: Flag) -> None:
    assert not flag.wait(0.01)
    flag.set()
    flag.set()
    assert flag.wait(0)
    assert flag.wait(0)


def _opcodes_of_a_wait(flag: Flag, signal_at: int | None) -> int:
    """Wait for a flag, raise SIGUSR1 before one opcode of the wait; return the number of opcodes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == signal_at:
                signal.raise_signal(signal.SIGUSR1)
        return trace

    sys.settrace(trace)
    try:
        flag.wait(0.01)
    finally:
        sys.settrace(None)
    return count


def test_a_signal_handler_sets_a_flag_before_every_opcode_of_the_wait(flag: Flag) -> None:
    opcodes = _opcodes_of_a_wait(Flag(), None)
    assert opcodes > 5
    for at in range(1, opcodes + 1):
        _opcodes_of_a_wait(flag, at)
        assert flag.wait(0), at
        flag.__init__()  # type: ignore[misc]
