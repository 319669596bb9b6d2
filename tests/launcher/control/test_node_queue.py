# SPDX-License-Identifier: Apache-2.0
"""--queue: jobs that wait for nodes, in their order; whatever ends one takes it out."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.config.arguments import parse
from paddle_cluster.control import node_queue, store
from paddle_cluster.control.job_record import NodeEntry
from paddle_cluster.errors import PreflightError, UsageError
from paddle_cluster.system.process_id import ProcessId
from paddle_cluster.system.signals import SignalEvent, StopRequest
from paddle_cluster.system.state_dir import StatePlaces
from paddle_cluster.system.workspace_lock import try_lock
from tests.cluster.deadline import wait_for
from tests.launcher.control.test_control_state import dead_process, put, record
from tests.launcher.control_jobs import LIMIT_S, Bench


@pytest.fixture
def where(tmp_path: Path) -> StatePlaces:
    return StatePlaces(tmp_path / "jobs", tmp_path / "short")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def job(
    where: StatePlaces,
    name: str,
    *hosts: str,
    priority: int | None = None,
    launcher: ProcessId | None = None,
    age_s: float = 0.0,
) -> Path:
    """A job on some hosts; with a priority it waits."""
    nodes = tuple(NodeEntry(at, host, host, "/r", "/r/j", "python3") for at, host in enumerate(hosts))
    given = record(f"JOB20260101000000-{name}", launcher, age_s)
    made = put(where, replace(given, nodes=nodes, collected=f"/{name}", priority=priority or 0))
    if priority is not None:
        (made / node_queue.QUEUED_FILE).touch()
    return made


def ahead(where: StatePlaces, name: str) -> list[str]:
    """The jobs that one waits for."""
    jobs = store.all_jobs(where)
    return sorted(one.job_id[-1] for one in node_queue.before(jobs, store.find(where, name)))


def test_a_job_waits_for_those_that_share_a_host_and_run_or_come_before_it(where: StatePlaces) -> None:
    job(where, "a", "root@n1:22", "n2")
    job(where, "b", "N1", priority=0, age_s=9)
    job(where, "c", "n1", priority=0, age_s=5)
    job(where, "d", "n1", "n3", priority=2)
    job(where, "e", "n3", priority=0)
    job(where, "f", "n9")
    job(where, "g", "n9", "n1", launcher=dead_process())
    job(where, "h", "n1", priority=9, age_s=99, launcher=dead_process())
    assert ahead(where, "b") == ["a", "d"]
    assert ahead(where, "c") == ["a", "b", "d"]
    assert ahead(where, "d") == ["a"]
    assert ahead(where, "e") == ["d"]
    assert ahead(where, "f") == []
    assert [one.job_id[-1] for one in node_queue.waiting(store.all_jobs(where))] == ["d", "b", "c", "e"]


def test_two_jobs_never_collect_into_one_workspace(where: StatePlaces) -> None:
    first = replace(record("JOB20260101000000-a"), nodes=(), collected="/ws")
    put(where, first)
    put(where, replace(first, job_id="JOB20260101000000-b"))
    assert ahead(where, "b") == ["a"]


def waited(where: StatePlaces, directory: Path | None, *events: Any, timeout_s: float = 0.0) -> list[str]:
    """What a job that waits reports."""
    came: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for event in events:
        came.put(event)
    said: list[str] = []
    node_queue.wait(where, directory, came, lambda: said.append("=="), said.append, timeout_s)
    return said


def test_a_free_job_starts_without_a_word_and_others_wait_for_a_bounded_time(where: StatePlaces) -> None:
    first = job(where, "a", "n1")
    assert waited(where, first) == []
    second = job(where, "b", "n1")
    with pytest.raises(PreflightError, match=r"QUEUE_TIMEOUT_S.*-a \("):
        waited(where, second)
    assert not (second / node_queue.QUEUED_FILE).exists()
    with pytest.raises(StopRequest):
        waited(where, second, SignalEvent(15, 1), timeout_s=9.0)
    assert not (second / node_queue.QUEUED_FILE).exists()
    with pytest.raises(UsageError, match="PADDLE_STATE_DIR"):
        waited(where, None)


def test_one_job_at_a_time_decides(where: StatePlaces) -> None:
    first = job(where, "a", "n1")
    lock = try_lock(where.jobs / node_queue.LOCK_FILE)
    assert lock is not None
    with pytest.raises(PreflightError):
        waited(where, first)


@pytest.mark.parametrize("engine", ["slurm", "kubernetes"])
def test_engines_with_a_queue_of_their_own_are_not_queued_for(engine: str) -> None:
    with pytest.raises(UsageError, match="queue of its own"):
        parse(["-p", "ws", "--queue", f"--engine={engine}", "--nnodes=2"])


def test_jobs_wait_for_each_other_and_a_waiting_one_is_seen_and_stopped(bench: Bench) -> None:
    for name in ("b", "c"):
        bench.workspace(name)
    started = bench.run(*bench.job("--detach", "--queue", "--name=a"))
    assert started.returncode == 0, started.stderr
    for name in ("b", "c"):
        queued = bench.run(*bench.job("--detach", "--queue", f"--name={name}", workspace=name))
        assert queued.returncode == 0, queued.stderr
        assert "waiting for nodes or the workspace of a (run)" in queued.stdout
    assert "queued, place 2" in bench.run("status").stdout
    assert "waits for: a (run), b (queue); priority 0" in bench.run("status", "c").stdout
    stopped = bench.run("stop", "b")
    assert stopped.returncode == 0, stopped.stderr
    assert bench.look(store.find(bench.where, "b")).exit_code == 143
    assert bench.run("stop", "a").returncode == 0
    wait_for("the start of c", lambda: store.find(bench.where, "c").status.get("phase") == "run", LIMIT_S)
    assert bench.run("stop", "c").returncode == 0
