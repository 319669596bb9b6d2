# SPDX-License-Identifier: Apache-2.0
"""Requests to stop: before there is a job, the third one, and those that nohup keeps away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.deadline import wait_for

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 60
TRAIN = """
import time
print("holding", flush=True)
time.sleep(1000)
"""


THREE_REQUESTS = """
import os, queue, signal, time
from paddle_cluster.system import signals
events = queue.SimpleQueue()
with signals.posted_to(events):
    {before}
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
"""


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Launchers to end after the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        if child.poll() is None:
            child.kill()
        child.wait(LIMIT_S)


def start(
    place: Path, children: list[subprocess.Popen[bytes]], conf: str, *command: str
) -> subprocess.Popen[bytes]:
    (place / "ws").mkdir()
    (place / "ws" / "train.py").write_text(TRAIN)
    (place / "conf.py").write_text(f"HOSTS = ['local']\nROOT_DIR = {str(place / 'node')!r}\n{conf}")
    argv = [*command, sys.executable, str(ROOT / "paddle.py"), "--conf=conf.py", "-p", "ws"]
    with (place / "out").open("wb") as out:
        child = subprocess.Popen(
            [*argv, "--mode=collective"],
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    children.append(child)
    return child


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)],
)
def test_a_signal_while_conf_py_runs_has_its_exit_code_and_one_line(
    number: signal.Signals, code: int, tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    marker = tmp_path / "conf_runs"
    conf = f"import pathlib, time\npathlib.Path({str(marker)!r}).touch()\ntime.sleep(60)\n"
    child = start(tmp_path, children, conf)
    wait_for("conf.py to run", marker.exists, LIMIT_S)
    child.send_signal(number)
    assert child.wait(LIMIT_S) == code
    said = (tmp_path / "out").read_text()
    assert said.count("\n") == 1
    assert number.name in said


def test_a_hangup_does_not_end_a_job_under_nohup(
    tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    child = start(tmp_path, children, "", "nohup")
    wait_for("the trainer", lambda: "] holding" in (tmp_path / "out").read_text(), LIMIT_S)
    child.send_signal(signal.SIGHUP)
    os.kill(child.pid, signal.SIGTERM)  # comes after the hangup, and is the one that counts
    assert child.wait(LIMIT_S) == 143
    assert "SIGHUP" not in (tmp_path / "out").read_text()


def test_a_quit_signal_stops_a_job_like_any_other(
    tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    child = start(tmp_path, children, "")
    wait_for("the trainer", lambda: "] holding" in (tmp_path / "out").read_text(), LIMIT_S)
    child.send_signal(signal.SIGQUIT)
    assert child.wait(LIMIT_S) == 131
    said = (tmp_path / "out").read_text()
    assert "stopped by Ctrl+\\" in said
    assert "NOT CLEANED" not in said
    assert not (tmp_path / "core").exists()


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("pass", "paddle.py: exited without waiting for the job to stop. Check with: paddle.py status\n"),
        ("os.close(2)", ""),
        ("r, w = os.pipe(); os.set_blocking(w, False); os.write(w, b'x' * 65536); os.dup2(w, 2)", ""),
    ],
)
def test_the_third_stop_request_exits_immediately(before: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", THREE_REQUESTS.format(before=before)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'runtime'}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, said)


def test_a_request_after_the_last_line_does_not_change_the_exit_code(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, paddle_cluster\n"
        "code = paddle_cluster.main()\n"
        "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):\n"
        "    os.kill(os.getpid(), number)\n"
        "sys.exit(code)"
    )
    argv = [sys.executable, "-c", code, "help", "hosts"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
