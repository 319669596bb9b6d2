# SPDX-License-Identifier: Apache-2.0
"""Jobs for programs: events as lines of JSON, and the same as values in Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

import paddle_cluster
from paddle_cluster import api
from paddle_cluster.config.options import LONG
from paddle_cluster.errors import ExitCode
from paddle_cluster.system.installation import argv
from tests.cluster.deadline import wait_for
from tests.local_nodes import warm_nodes, warm_state

LIMIT_S = 60


@pytest.fixture
def job(tmp_path: Path) -> list[str]:
    """The options of a job on two embedded nodes."""
    (tmp_path / "conf.py").write_text(
        f"HOSTS = ['local'] * 2\nROOT_DIR = {str(warm_nodes(tmp_path / 'nodes', 2))!r}\n"
    )
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "train.py").write_text(
        "import sys, time\n"
        "sys.stdout.buffer.write(b'begun \\xff\\n')\nsys.stdout.flush()\n"
        "if '--hold' in sys.argv: time.sleep(300)\n"
        "if '--fail' in sys.argv: raise ValueError('no such word')\n"
    )
    return ["-p", str(tmp_path / "ws"), f"--conf={tmp_path / 'conf.py'}", "--mode=collective"]


def test_a_program_sees_what_happens_and_how_it_ended(job: list[str], tmp_path: Path) -> None:
    with api.run(*job) as run:
        events = list(run)
        end = run.wait()
    printed = [event for event in events if isinstance(event, api.Printed)]
    assert sorted((event.process, event.data) for event in printed) == [
        ("trainer-0", b"begun \xff\n"),
        ("trainer-1", b"begun \xff\n"),
    ]
    assert "run" in [event.name for event in events if isinstance(event, api.PhaseEntered)]
    assert end.code is ExitCode.DONE
    assert end.logs == str(tmp_path / "ws" / "log")
    assert events[-1] == end


def running(run: api.Run) -> int:
    """How many processes of a job run, as it says itself."""
    return sum(process["state"] == "running" for process in run.status().processes)


def test_a_job_is_asked_for_its_state_and_its_lines(
    job: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLE_STATE_DIR", str(warm_state(tmp_path / "state")))
    with api.run(*job, name="resnet", script=["--hold"]) as run:
        assert any(isinstance(event, api.Printed) for event in run)
        wait_for("processes that run", lambda: running(run) == 2, LIMIT_S)
        status = run.status()
        assert (status.name, status.phase, status.exit_code) == ("resnet", "run", None)
        assert [node["node_id"] for node in status.nodes] == [0, 1]
        with pytest.raises(FrozenInstanceError):
            status.phase = "ended"  # type: ignore[misc]
        wait_for("a line in the log", lambda: list(run.logs("trainer-1")), LIMIT_S)
        (line,) = run.logs("trainer-1")
        assert line.endswith("begun \\xff")
        assert any("[launcher]" in line for line in run.logs())
    status = run.status()
    assert (status.job_id, status.phase) == (run.wait().job_id, "ended")
    assert status.exit_code == ExitCode.INTERRUPTED


def test_a_failure_is_told_with_its_cause(job: list[str]) -> None:
    with api.run(*job, "--", "--fail") as run:
        end = run.wait()
    assert end.code is ExitCode.PROCESS_FAILED
    assert "no such word" in end.cause


def test_a_job_is_stopped_by_who_started_it(job: list[str]) -> None:
    with api.run(*job, "--", "--hold") as run:
        assert any(isinstance(event, api.Printed) for event in run)
        run.stop()
        assert run.wait().code is ExitCode.INTERRUPTED


def test_the_end_of_the_block_stops_it(job: list[str]) -> None:
    with api.run(*job, "--", "--hold") as run:
        assert any(isinstance(event, api.Printed) for event in run)
    assert run.wait().code is ExitCode.INTERRUPTED


def test_a_job_that_never_began_says_why(job: list[str], tmp_path: Path) -> None:
    with api.run(*job[2:], "-p", str(tmp_path / "nowhere")) as run:
        end = run.wait()
    assert (end.code, end.job_id) == (ExitCode.USAGE, "")
    status = run.status()
    assert (status.phase, status.exit_code) == ("ended", ExitCode.USAGE)
    assert "nowhere does not exist" in end.cause


def test_a_launcher_that_is_killed_is_an_end_too(
    job: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLE_STATE_DIR", str(warm_state(tmp_path / "state")))
    with api.run(*job, "--", "--hold") as run:
        assert any(isinstance(event, api.Printed) for event in run)
        job_id = run.status().job_id
        run._process.kill()
        end = run.wait()
    assert end.code is ExitCode.LOST
    for _ in range(2):
        status = run.status()
        assert (status.job_id, status.phase, status.exit_code) == (job_id, "ended", ExitCode.LOST)
        shutil.rmtree(tmp_path / "state", ignore_errors=True)
    assert end.cause == "the launcher ended with status -9"


def test_every_line_is_an_event_whatever_the_terminal_is(job: list[str]) -> None:
    done = subprocess.run(
        [*argv(), "--json", *job], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S
    )
    kinds = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert kinds[-1] == "Ended"
    assert done.stderr == ""


@pytest.mark.parametrize("other", ["--detach", "--dry_run"])
def test_it_goes_with_nothing_that_shows_no_events(job: list[str], other: str) -> None:
    with api.run(*job, other) as run:
        assert run.wait().code is ExitCode.USAGE


def test_the_package_has_the_functions_of_the_api_and_names_them() -> None:
    assert paddle_cluster.run is api.run
    with pytest.raises(AttributeError, match=r"'Job'.* connect, run"):
        paddle_cluster.Job  # noqa: B018


def test_every_option_of_a_job_is_a_keyword() -> None:
    apart = {"help", "version", "json", "detach", "dry_run", "job_dispatch_package"}
    assert set(api.Options.__annotations__) == {"package"} | (set(LONG) - apart)


def test_keywords_become_the_command_line() -> None:
    named = {
        "package": Path("ws"),
        "hosts": ["a", "b:22"],
        "nproc_per_node": 2,
        "env": {"A": "1", "B": "x y"},
        "bootstrap": True,
        "keep_links": False,
        "queue": None,
    }
    assert api.tokens(named) == [
        "--job_dispatch_package=ws",
        "--hosts=a,b:22",
        "--nproc_per_node=2",
        "--env=A=1",
        "--env=B=x y",
        "--bootstrap",
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"host": "a"}, "did you mean 'hosts'"),
        ({"nproc": 2}, "did you mean 'nproc_per_node'"),
        ({"zzz": 2}, "its options are script, package"),
        ({"queue": "no"}, "queue is True or False, got 'no'"),
        ({"script": "--lr=1 -v"}, r"a list of arguments, such as \['--lr=1', '-v'\]"),
    ],
)
def test_a_wrong_keyword_is_refused_with_the_right_one(given: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        api.run(**given)
