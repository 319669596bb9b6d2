# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Callable

from paddle_cluster.connection.reactor import IDLE_S, Task, WorkerThreads


def noted_by(event: threading.Event) -> Callable[[], bool]:
    def turn() -> bool:
        event.set()
        return False

    return turn


def test_work_that_blocks_does_not_hold_up_what_was_asked_for_in_the_same_moment() -> None:
    workers = WorkerThreads()
    gate, has_run = threading.Event(), threading.Event()
    warm = threading.Event()
    workers.ask(Task(noted_by(warm)))
    assert warm.wait(5)  # from now on a thread is idle
    workers.ask(Task(lambda: not gate.wait(20)))
    workers.ask(Task(noted_by(has_run)))
    try:
        assert has_run.wait(IDLE_S)
    finally:
        gate.set()
        workers.expect(False)
