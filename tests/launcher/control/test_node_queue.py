# SPDX-License-Identifier: Apache-2.0
"""--queue: jobs that wait for nodes, in their order; whatever ends one takes it out."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.config.arguments import parse
from paddle_cluster.control import node_queue, store
from paddle_cluster.control.job_record import NodeEntry
from paddle_cluster.control.status_text import job_table
from paddle_cluster.control.store import KnownJob
from paddle_cluster.errors import LauncherError, PreflightError, UsageError, WorkspaceHeldError
from paddle_cluster.system.process_id import ProcessId
from paddle_cluster.system.signals import SignalEvent, StopRequest
from paddle_cluster.system.state_dir import JOB_FILE, SCREEN_FILE, STATUS_FILE, StatePlaces, write_json
from paddle_cluster.system.workspace_lock import locked, try_lock
from tests.cluster.deadline import wait_for
from tests.launcher.control.test_control_state import dead_process, put, record
from tests.launcher.control_jobs import LIMIT_S, Bench
from tests.ports import free_range


@pytest.fixture
def where(tmp_path: Path) -> StatePlaces:
    return StatePlaces(tmp_path / "jobs", tmp_path / "short")


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
    return sorted(
        one.job_id[-1] for one in node_queue.before(jobs, store.find(where, f"JOB20260101000000-{name}"))
    )


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
    jobs = store.all_jobs(where)
    places = {one.job_id[-1]: node_queue.place(jobs, one) for one in jobs if node_queue.is_waiting(one)}
    assert places == {"d": 1, "b": 2, "c": 3, "e": 2}
    shown = {line.split()[0][-1]: line for line in job_table(jobs, time.time(), 5)[1:]}
    assert "queued, place 2" in shown["e"]
    assert len(shown) == 5


def test_two_jobs_never_collect_into_one_workspace(where: StatePlaces) -> None:
    first = replace(record("JOB20260101000000-a"), nodes=(), collected="/ws")
    put(where, first)
    put(where, replace(first, job_id="JOB20260101000000-b"))
    assert ahead(where, "b") == ["a"]
    (where.jobs / "link").symlink_to("/ws")
    put(where, replace(first, job_id="JOB20260101000000-c", collected=str(where.jobs / "link")))
    assert ahead(where, "c") == ["a", "b"]


def test_a_job_whose_launcher_was_killed_holds_its_nodes_until_their_lease_is_over(
    where: StatePlaces,
) -> None:
    job(where, "a", "n1")
    dead = dead_process()
    for name, age_s, code in (("b", 1, None), ("c", 99, None), ("d", 1, 0), ("e", 1, None)):
        made = job(where, name, "n1", launcher=dead)
        write_json(made / STATUS_FILE, {"updated_at": time.time() - age_s, "exit_code": code})
    (made / node_queue.QUEUED_FILE).touch()  # the last one had no nodes yet
    assert ahead(where, "a") == ["b"]


def waited(
    where: StatePlaces,
    directory: Path | None,
    *events: Any,
    timeout_s: float = 0.0,
    claim: Callable[[], None] = lambda: None,
) -> list[str]:
    """What a job that waits reports."""
    came: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for event in events:
        came.put(event)
    said: list[str] = []
    node_queue.wait(where, directory, came, lambda: said.append("=="), said.append, claim, timeout_s)
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


def test_a_workspace_that_is_still_held_is_waited_for(
    where: StatePlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_queue, "POLL_S", 0.01)
    tries: list[str] = []

    def claim() -> None:
        assert (first / node_queue.QUEUED_FILE).exists()
        tries.append("")
        if len(tries) < 3:
            raise WorkspaceHeldError("JOB1 (pid 7)", "held")

    first = job(where, "a", "n1")
    assert waited(where, first, claim=claim, timeout_s=9.0) == [
        "waiting for nodes or for the workspace of JOB1 (pid 7)",
        "==",
    ]
    assert len(tries) == 3
    tries.clear()
    with pytest.raises(PreflightError, match=r"held by JOB1 \(pid 7\)"):
        waited(where, first, claim=claim)


def test_a_marker_that_is_removed_is_written_again(
    where: StatePlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_queue, "POLL_S", 0.01)
    job(where, "a", "n1")
    marker = job(where, "b", "n1") / node_queue.QUEUED_FILE
    seen: list[bool] = []

    def look(jobs: Sequence[KnownJob], one: KnownJob) -> list[KnownJob]:
        seen.append(marker.exists())
        marker.unlink()
        return before(jobs, one)

    before = node_queue.before
    monkeypatch.setattr(node_queue, "before", look)
    with pytest.raises(PreflightError):
        waited(where, marker.parent, timeout_s=0.1)
    assert len(seen) > 1
    assert all(seen)


@pytest.mark.parametrize("text", [None, "{"])
def test_a_job_without_a_record_of_its_own_says_so(
    text: str | None, where: StatePlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_queue, "POLL_S", 0.01)
    monkeypatch.setattr(node_queue, "RECORD_S", 0.05)
    first = job(where, "a", "n1")
    if text is None:
        (first / JOB_FILE).unlink()
    else:
        (first / JOB_FILE).write_text(text)
    with pytest.raises(LauncherError, match=str(first / JOB_FILE)):
        waited(where, first, timeout_s=9.0)


@pytest.mark.parametrize("engine", ["slurm", "kubernetes"])
def test_engines_with_a_queue_of_their_own_are_not_queued_for(engine: str) -> None:
    with pytest.raises(UsageError, match="queue of its own"):
        parse(["-p", "ws", "--queue", f"--engine={engine}", "--nnodes=2"])


def test_a_workspace_of_an_unknown_holder_is_waited_for(bench: Bench) -> None:
    with locked(bench.place / "ws", "JOB1"):
        queued = bench.run(*bench.job("--detach", "--queue", "--name=late"))
        assert queued.returncode == 0, queued.stderr
        assert f"waiting for nodes or for the workspace of JOB1 (pid {os.getpid()})" in queued.stdout
    wait_for("its start", lambda: store.find(bench.where, "late").status.get("phase") == "run", LIMIT_S)
    assert bench.run("stop", "late").returncode == 0


def test_jobs_wait_for_each_other_and_a_waiting_one_is_seen_and_stopped(bench: Bench) -> None:
    conf = bench.place / "conf.py"
    conf.write_text(conf.read_text() + f"METRICS_PORT = {free_range(1)}\n")
    for name in ("b", "c"):
        bench.workspace(name)
    started = bench.run(*bench.job("--detach", "--queue", "--name=a"))
    assert started.returncode == 0, started.stderr
    for name in ("b", "c"):
        queued = bench.run(*bench.job("--detach", "--queue", f"--name={name}", workspace=name))
        assert queued.returncode == 0, queued.stderr
        assert "waiting for nodes or for the workspace of a (run)" in queued.stdout
        assert "METRICS_PORT" not in queued.stdout
    assert "queued, place 2" in bench.run("status").stdout
    assert "waiting for: a (run), b (queue); priority 0" in bench.run("status", "c").stdout
    stopped = bench.run("stop", "b")
    assert stopped.returncode == 0, stopped.stderr
    assert bench.look(store.find(bench.where, "b")).exit_code == 143
    assert bench.run("stop", "a").returncode == 0
    wait_for("the start of c", lambda: store.find(bench.where, "c").status.get("phase") == "run", LIMIT_S)
    assert "METRICS_PORT" not in (store.find(bench.where, "c").directory / SCREEN_FILE).read_text()
    assert bench.run("stop", "c").returncode == 0
