# SPDX-License-Identifier: Apache-2.0
"""--name: a job is shown and found by its name, which no other running job can have."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from paddle_cluster.cli.commands import run
from paddle_cluster.config.arguments import parse
from paddle_cluster.config.entry import Entry
from paddle_cluster.control import store
from paddle_cluster.control.status_text import detail, job_table
from paddle_cluster.errors import UsageError
from paddle_cluster.screen.console_live import JobFacts
from paddle_cluster.system.state_dir import StatePlaces
from paddle_cluster.system.workspace_lock import named
from tests.launcher.control.test_control_state import dead_process, put, record
from tests.launcher.control_jobs import Bench

OLD, NEW = "JOB20260101000000-aaaaaa", "JOB20260102000000-bbbbbb"


@pytest.fixture
def where(tmp_path: Path) -> StatePlaces:
    return StatePlaces(tmp_path / "jobs", tmp_path / "short")


def test_the_running_job_is_meant_by_a_name_and_ended_ones_by_their_id(where: StatePlaces) -> None:
    put(where, replace(record(OLD, dead_process(), age_s=60), name="resnet"))
    put(where, replace(record(NEW), name="resnet"))
    assert store.find(where, "resnet").job_id == NEW
    assert store.find(where, OLD).job_id == OLD
    shown = "\n".join(job_table(store.all_jobs(where), time.time()))
    assert "resnet" in shown
    assert OLD in shown
    assert NEW not in shown
    first, second, *_ = detail(store.find(where, NEW), time.time())
    assert first.startswith("resnet: ")
    assert second == f"  id: {NEW}"


def test_run_with_the_name_of_a_job_is_answered_with_its_options(
    where: StatePlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = ("entry", str(Entry(path="a.py")), "--entry")
    options = (
        ("job_dispatch_package", "../ws", "--job_dispatch_package"),
        entry,
        ("HOSTS", "a, b", "--hostfile"),
    )
    put(
        where,
        replace(record(OLD), name="resnet", source="/w/ws", options=(*options, ("queue", "True", "--queue"))),
    )
    monkeypatch.setenv("PADDLE_STATE_DIR", str(where.jobs))
    given = "--job_dispatch_package=/w/ws --entry=a.py --hosts=a,b --queue"
    with pytest.raises(
        UsageError, match=f"resnet is a job; .* arguments, which are not stored: .* run {given}$"
    ):
        run.run(["resnet"])


@pytest.mark.parametrize("name", ["a b", "../x", "-x", "JOB20260101000000-aaaaaa", "05bc53", "ü"])
def test_a_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--name"):
        parse(["-p", "ws", f"--name={name}"])


def test_a_name_is_free_again_when_its_job_ends(where: StatePlaces) -> None:
    with named(where, "resnet", OLD):
        with pytest.raises(UsageError, match=f"{OLD}.*stop resnet"), named(where, "resnet", NEW):
            pass
        with named(where, "other", NEW):
            pass
    with named(where, "resnet", NEW):
        pass
    with named(StatePlaces(Path("/proc/none"), Path("/proc/none")), "resnet", NEW):
        pass  # no state can be kept there


def test_the_live_table_begins_with_the_name() -> None:
    facts = JobFacts()
    facts.note(0, {"label": "node-a", "job": "resnet"})
    facts.enter("run")
    assert facts.summary(True)[0].startswith("resnet  run ")


def test_a_running_job_is_named_in_every_command_and_has_its_name_alone(bench: Bench) -> None:
    bench.workspace("other")
    started = bench.run(*bench.job("--detach", "--name=resnet"))
    assert started.returncode == 0, started.stderr
    assert "stop it:    paddle.py stop resnet" in started.stdout
    (job,) = bench.jobs()
    assert job.record.name == "resnet"
    assert "resnet" in bench.run("status").stdout
    assert bench.run("status", "resnet").stdout.startswith("resnet: ")
    again = bench.run(*bench.job("--detach", "--name=resnet", workspace="other"))
    assert again.returncode == 2
    assert f"{job.job_id} (pid {job.record.launcher.pid})" in again.stderr
    assert bench.run("logs", "resnet").returncode == 0
    stopped = bench.run("stop", "resnet")
    assert stopped.returncode == 0
    assert "asked resnet to stop" in stopped.stdout
    assert "resnet: stopped" in bench.run("attach", "resnet").stdout
