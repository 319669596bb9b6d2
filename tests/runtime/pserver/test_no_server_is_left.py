# SPDX-License-Identifier: Apache-2.0
"""A server that a test started dies with the test runner, even when that is killed."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.cluster.deadline import wait_for
from tests.runtime.pserver.pserver_process import ROOT, START_S

_RUNNER = """
import signal
from tests.runtime.pserver.pserver_process import PserverProcess
with PserverProcess("--port=0") as server:
    print(server.process.pid, flush=True)
    signal.pause()
"""


def _is_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_server_does_not_outlive_a_runner_that_is_killed() -> None:
    runner = subprocess.Popen(
        [sys.executable, "-c", _RUNNER],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'runtime'}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert runner.stdout is not None
    with runner.stdout:
        pid = int(runner.stdout.readline())
    assert not _is_gone(pid)
    runner.kill()
    runner.wait(START_S)
    wait_for("the server's end", lambda: _is_gone(pid), 10)
