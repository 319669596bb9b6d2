# SPDX-License-Identifier: Apache-2.0
"""Text of a job or of a state file never acts on a terminal, through whatever command and pipe it comes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_cluster.system.state_dir import SCREEN_FILE, STATUS_FILE
from tests.launcher.control_jobs import Bench

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\x08\u202e"
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
TRAIN = f"""
import os, sys
evil = {EVIL!r}
sys.stdout.buffer.write(("said " + evil + "\\n").encode())
sys.stderr.buffer.write(("bar 1%\\r" + evil + "bar 2%\\r\\n").encode())
os.makedirs("output", exist_ok=True)
open("output/o" + evil, "w").write("x")
raise ValueError("failed " + evil)
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A job that says what would clear a screen, rename a window and turn text around."""
    bench = Bench(tmp_path_factory.mktemp("c"))
    (bench.place / "ws" / "train.py").write_text(TRAIN)
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def output(bench: Bench) -> str:
    """What the job showed through a pipe."""
    done = bench.run("-p", "ws", "--conf=conf.py", "--mode=collective")
    assert done.returncode == 1, done.stderr
    assert "said" in done.stdout
    assert "failed" in done.stdout
    return done.stdout + done.stderr


def test_a_job_through_a_pipe_shows_escapes(output: str) -> None:
    assert not ACTS.search(output), ascii(output)
    assert r"\x07" in output or r"\x9b31m" in output


def test_its_log_has_what_it_wrote(bench: Bench, output: str) -> None:
    assert output
    assert EVIL.encode() in (bench.place / "ws" / "log" / "node_0" / "train.log").read_bytes()


@pytest.mark.parametrize(
    "command",
    ["status", "status JOB", "logs JOB", "logs JOB --lines=500", "attach JOB", "checkpoints JOB", "stop JOB"],
)
def test_no_command_shows_them(bench: Bench, output: str, command: str) -> None:
    assert output
    (job,) = bench.jobs()
    done = bench.run(*command.replace("JOB", job.job_id).split())
    assert "Traceback" not in done.stderr
    assert not ACTS.search(done.stdout + done.stderr), ascii(done.stdout + done.stderr)


@pytest.mark.parametrize("command", ["status", "status JOB", "status --json", "attach JOB", "logs JOB"])
def test_nor_those_of_state_files_that_anything_wrote(bench: Bench, output: str, command: str) -> None:
    assert output
    (job,) = bench.jobs()
    spoil(job.directory)
    done = bench.run(*command.replace("JOB", job.job_id).split())
    assert not ACTS.search(done.stdout + done.stderr), ascii(done.stdout + done.stderr)
    if "--json" in command:
        assert json.loads(done.stdout)


def spoil(directory: Path) -> None:
    """Put control bytes into each text of a status, and into what was on the screen."""
    status = json.loads((directory / STATUS_FILE).read_text())
    for name in ("phase", "why", "left"):
        status[name] = EVIL if name == "phase" else [EVIL]
    for row in (*status["nodes"], *status["processes"]):
        row.update({name: EVIL for name, value in row.items() if isinstance(value, str)})
    (directory / STATUS_FILE).write_text(json.dumps(status))
    with (directory / SCREEN_FILE).open("a") as file:
        file.write(f"{EVIL}\n")


def test_messages_of_the_command_line_show_them_as_escapes(bench: Bench) -> None:
    for argv in (
        ["-p", f"no{EVIL}"],
        [f"--{EVIL}"],
        ["logs", EVIL],
        ["stop", EVIL],
        [f"--hosts=a{EVIL}", "-p", "ws"],
    ):
        done = bench.run(*argv)
        assert done.returncode == 2, done
        assert not ACTS.search(done.stdout + done.stderr), ascii(done.stderr)
