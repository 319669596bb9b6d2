# SPDX-License-Identifier: Apache-2.0
"""`paddle.py stop` of a job that ends at the same moment, and of one that hangs."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from paddle_cluster.cli.commands import stop
from paddle_cluster.cli.main import main
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.control.job_record import JobRecord, LoginRecord
from paddle_cluster.errors import ExitCode
from paddle_cluster.system import process_id
from paddle_cluster.system.state_dir import JOB_FILE, SOCKET_FILE, STATUS_FILE, places, write_json
from tests.cluster.deadline import wait_for
from tests.launcher.control_jobs import Bench

JOB = "JOB20260102030405-a1b2c3"


def record(directory: Path) -> JobRecord:
    """A job whose launcher is this process."""
    return JobRecord(
        job_id=JOB,
        submitted_at=0.0,
        user="",
        launcher=process_id.own(),
        cwd="",
        conf="",
        source="",
        mode="v2",
        detached=False,
        collected="",
        lease_s=30.0,
        nodes=(),
        login=LoginRecord.of(SshSettings(config=Path(), known_hosts=Path())),
        socket=str(directory / SOCKET_FILE),
    )


def test_a_job_that_ends_while_its_launcher_is_asked_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDLE_STATE_DIR", str(tmp_path))
    directory = places(os.environ).jobs / JOB
    directory.mkdir(mode=0o700)
    write_json(directory / JOB_FILE, record(directory).as_json())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / SOCKET_FILE))
        listener.listen()

        def end() -> None:
            connection, _ = listener.accept()
            write_json(directory / STATUS_FILE, {"exit_code": 0})
            connection.close()

        thread = threading.Thread(target=end)
        thread.start()
        assert stop.run([JOB]) == ExitCode.DONE
        thread.join(5)
    assert f"{JOB} has already ended: done (0)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (f"cancel {JOB}", f"unknown command 'cancel': give paddle.py stop {JOB}"),
        ("job stop a1b2c3", "unknown command 'job': give paddle.py stop a1b2c3"),
        (f"tail {JOB}", f"unknown command 'tail': give paddle.py logs {JOB}"),
        (
            "cancel other",
            "unknown command 'cancel': did you mean stop? (A job needs --job_dispatch_package=DIR.)",
        ),
        (f"clean {JOB}", f"{JOB} is running: stop it with `paddle.py stop {JOB}`, then run paddle.py clean"),
        (
            "clean other",
            "clean does not take a job, got 'other'; it removes the directories of all ended jobs",
        ),
    ],
)
def test_a_known_job_makes_the_correction_of_a_command_complete(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    answer: str,
) -> None:
    monkeypatch.setenv("PADDLE_STATE_DIR", str(tmp_path))
    directory = places(os.environ).jobs / JOB
    directory.mkdir(mode=0o700)
    write_json(directory / JOB_FILE, record(directory).as_json())
    assert main(line.split()) == 2
    assert capsys.readouterr().err == f"paddle.py: {answer}\n"


def test_a_silent_job_that_is_stopped_prints_where_its_trainers_are(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    try:
        script = "import time\n\n\ndef waits():\n    time.sleep(600)\n\n\nwaits()\n"
        (bench.place / "ws" / "train.py").write_text(script)
        job = bench.detach()
        log = bench.place / "ws" / "log" / "job.log"
        wait_for("the notice", lambda: log.is_file() and " a step in 20 s" in log.read_text(), 60)
        done = bench.run("stop", job.job_id)
    finally:
        bench.close()
    assert "where the trainers were:\n  trainer-0: train.py:5 in waits\n" in done.stdout, done
