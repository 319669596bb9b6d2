# SPDX-License-Identifier: Apache-2.0
"""`paddle.py serve` beside a real server, and a program without Paddle that looks rows up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from paddle.pserver import Client, GrowingTable, OptimizerSpec
from tests.runtime.pserver.neutral_job import run, server
from tests.runtime.pserver.pserver_process import KEY, ROOT

TOKEN = "a token of the test"
ENV = {name: value for name, value in os.environ.items() if not name.startswith("PADDLE")}


def test_rows_are_looked_up_with_the_token_alone_and_refused_once_the_job_has_ended(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    with server(1) as process:
        argv = [sys.executable, str(ROOT / "paddle.py"), "serve", "--port=0", "--within_s=2"]
        argv += [f"--servers={','.join(process.endpoints)}", f"--token_file={tmp_path / 'token'}"]

        def work(client: Client, trainer: int) -> None:
            client.create({"user": GrowingTable(3, std=0.5)}, OptimizerSpec("sgd", learning_rate=1.0))
            client.push_pull({"user": (np.array([7]), np.ones((1, 3), np.float32))}, {})
            env = ENV | {"PADDLE_JOB_KEY": KEY}
            with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as serving:
                try:
                    assert serving.stdout is not None
                    address = serving.stdout.readline().rpartition(" at ")[2].strip()
                    done = looked_up(address, TOKEN)
                    while "503" in done.stderr:  # it is filled soon
                        done = looked_up(address, TOKEN)
                    first, second, age = done.stdout.splitlines()
                    expected = client.pull_rows("user", np.array([7, -3]))
                    for line, row in zip((first, second), expected, strict=True):
                        assert np.array_equal(np.array(line.split()[1:], np.float32), row)
                    assert age.startswith("at most ")
                    assert "401" in looked_up(address, "another").stderr
                    process.end()
                    done = looked_up(address, TOKEN)
                    while done.returncode == 0:
                        done = looked_up(address, TOKEN)
                    assert "503" in done.stderr
                finally:
                    serving.terminate()

        try:
            run(process, 1, work)
        finally:
            process.end()


def looked_up(address: str, token: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "lookup_rows.py"), address, "user", "7", "-3"],
        env=ENV | {"PADDLE_SERVE_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
