# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from paddle_cluster.connection import reactor
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


def test_after_idleness_work_is_done_although_the_machine_refuses_more_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def count() -> int:
        return sum(thread.name == "reactor worker" for thread in threading.enumerate())

    monkeypatch.setattr(reactor, "IDLE_S", 0.05)
    workers, before, gate = WorkerThreads(), count(), threading.Event()
    workers.expect(True)
    for _ in range(3):
        workers.ask(Task(lambda: not gate.wait(20)))
    assert before + 3 <= count() <= before + 4  # a thread that has started may not be idle yet
    monkeypatch.setattr(threading.Thread, "start", refused)
    gate.set()
    deadline = time.monotonic() + 20
    while count() > before + 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not threading.Event().wait(0.5)  # ten idle periods: the last one stays
    has_run = threading.Event()
    workers.ask(Task(noted_by(has_run)))
    assert has_run.wait(5)
    workers.expect(False)
    workers.join(5)
    assert count() == before
