# SPDX-License-Identifier: Apache-2.0
"""`paddle.py logs`: the merged log of one job, and what of it was asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from paddle_cluster.cli.commands import logs
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.control.job_record import JobRecord, LoginRecord, NodeEntry
from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.system import process_id
from paddle_cluster.system.state_dir import JOB_FILE, STATUS_FILE, make_job_dir, places, write_json

JOB = "JOB20260101120000-abcdef"
SAID = (
    (-4000, "launcher", "== run of an earlier job"),
    (-900, "launcher", "3 nodes from conf.py"),
    (-800, "pserver 0 root@a", "ready"),
    (-700, "trainer 0 root@a", "Pass 0"),
    (-90, "trainer 1 root@[fd00::7]:22", "Pass 1 [ok] x"),
    (-30, "trainer 0 root@a", "Pass 2"),
    (-5, "launcher", "== stop"),
)
Logs = Callable[..., list[str]]


def record(collected: Path) -> JobRecord:
    return JobRecord(
        job_id=JOB,
        submitted_at=time.time() - 1000,
        user="ann",
        launcher=process_id.own(),
        cwd="/",
        conf="/conf.py",
        source="ws",
        mode="v2",
        detached=False,
        collected=str(collected),
        lease_s=30.0,
        nodes=(
            NodeEntry(0, "root@a", "root@a", "~", "~/j", "python3", ("trainer 0",)),
            NodeEntry(1, "root@[fd00::7]:22", "root@[fd00::7]:22", "~", "~/j", "python3", ("trainer 1",)),
        ),
        login=LoginRecord.of(SshSettings(config=Path("/c"), known_hosts=Path("/k"))),
    )


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Logs:
    """What `logs` shows of a job that ended just now, as who and text."""
    monkeypatch.setenv("PADDLE_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "ws" / "log").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    now = time.time()
    directory = make_job_dir(places({"PADDLE_STATE_DIR": str(tmp_path / "state")}), JOB)
    write_json(directory / JOB_FILE, record(tmp_path / "here" / ".." / "ws").as_json())
    processes = [
        {"name": name, "log": "log/node_0/x.log"} for name in ("pserver-0", "trainer-0", "trainer-1")
    ]
    status = {"version": 1, "job_id": JOB, "phase": "ended", "exit_code": 0, "ended_at": now}
    write_json(directory / STATUS_FILE, {**status, "processes": processes})
    lines = [
        f"{datetime.fromtimestamp(now + at).astimezone().isoformat(' ', 'milliseconds')} [{who}] {text}\n"
        for at, who, text in SAID
    ]
    (tmp_path / "ws" / "log" / "job.log.1").write_text("".join(lines[:3]))
    (tmp_path / "ws" / "log" / "job.log").write_text("".join(lines[3:]))

    def show(*argv: str) -> list[str]:
        assert logs.run([JOB, *argv]) is ExitCode.DONE
        return [line.split(" ", 2)[2] for line in capsys.readouterr().out.splitlines()]

    return show


def said(*which: int) -> list[str]:
    return [f"[{who}] {text}" for who, text in (SAID[index][1:] for index in which)]


def test_all_lines_of_the_job_are_shown_by_time_also_of_a_workspace_beside_and_of_rotated_parts(
    shown: Logs,
) -> None:
    assert shown() == said(1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--lines=2"], said(5, 6)),
        (["--lines=0"], []),
        (["--proc=trainer-0"], said(3, 5)),
        (["--proc=1"], said(4)),
        (["--proc=trainer"], said(3, 4, 5)),
        (["--proc=trainer", "--lines=1"], said(5)),
        (["--proc=launcher"], said(1, 6)),
        (["--node=0"], said(2, 3, 5)),
        (["--node=root@[fd00::7]:22"], said(4)),
        (["--since=2m"], said(4, 5, 6)),
        (["--since=0.2h", "--proc=pserver"], []),
        (["--grep=Pass [12]"], said(4, 5)),
        (["--grep=^ready$", "--node=root@a"], said(2)),
    ],
)
def test_options_narrow_what_is_shown(shown: Logs, options: list[str], expected: list[str]) -> None:
    assert shown(*options) == expected


def test_a_moment_can_be_given_as_a_date(shown: Logs) -> None:
    assert shown(f"--since={datetime.fromtimestamp(time.time() - 60).isoformat()}") == said(5, 6)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--proc=trainer-7", "is not a process of JOB.* status JOB.* --all"),
        ("--proc=worker", "expected a process such as trainer-2"),
        ("--node=9", "is not a node of JOB"),
        ("--since=yesterday", "expected 90s, 10m"),
        ("--grep=(", "is not a valid regular expression"),
    ],
)
def test_what_cannot_be_meant_is_refused(shown: Logs, option: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        shown(option)


def test_the_lines_of_a_later_job_of_the_same_workspace_are_not_taken_for_this_ones(
    shown: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = datetime.fromtimestamp(time.time() + 60).astimezone().isoformat(" ", "milliseconds")
    (tmp_path / "ws" / "log" / "job.log.1").unlink()
    (tmp_path / "ws" / "log" / "job.log").write_text(f"{later} [launcher] == run\n")
    assert logs.run([JOB]) is ExitCode.DONE
    assert capsys.readouterr().err.endswith("that matches the options\n")
