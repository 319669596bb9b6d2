# SPDX-License-Identifier: Apache-2.0
"""`python -m paddle.distributed.launch_v2` on one machine; of several: tests/cluster/jobs/engines."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.deadline import wait_for

RUNTIME = Path(__file__).resolve().parents[3] / "runtime"
LIMIT_S = 90.0
SHOWS = "import json, os, sys\nprint(json.dumps([dict(os.environ), sys.argv[1:]]))\n"
HANGS = "import os, signal\nopen('pids', 'a').write(f'{os.getpid()} {os.getppid()}\\n')\nsignal.pause()\n"
COMMAND = [sys.executable, "-P", "-m", "paddle", "launch_v2"]


def environment(**names: str) -> dict[str, str]:
    # Whoever never trains is waited for no longer than this.
    own = {"PADDLE_INIT_PORT": "0", "PADDLE_INIT_BARRIER_TIMEOUT_S": "0.1"}
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(RUNTIME), **own, **names}


def ended(folder: Path, text: str, *flags: str, **names: str) -> tuple[int, str]:
    """Exit code and stderr of a launch."""
    (folder / "train.py").write_text(text)
    done = subprocess.run(
        [*COMMAND, *flags, "train.py", "--lr=0.1"],
        cwd=folder,
        env=environment(**names),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stderr


def is_gone(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def test_a_pserver_and_a_trainer_run_by_the_variables_and_the_logs_lie_beside_each_other(
    tmp_path: Path,
) -> None:
    flags = {"PADDLE_INIT_SEED": "7", "PADDLE_INIT_PORTS_NUM": "2", "PADDLE_INIT_COMMENT": "mine"}
    code, err = ended(tmp_path, SHOWS, **flags)
    assert code == 0, err
    assert "pserver 0 of 1 and trainer 0 of 1, on 127.0.0.1; logs logs/" in err
    env, arguments = json.loads((tmp_path / "logs/train.log").read_text())
    assert arguments == ["--lr=0.1"]
    assert flags.items() <= env.items()
    assert env["PADDLE_CLUSTER_TRAIN"] == "True"
    assert env["TRAINING_ROLE"] == "TRAINER"
    assert "PADDLE_INIT_BARRIER_TIMEOUT_S" not in env  # paddle.init would refuse a flag of pservers
    log = (tmp_path / "logs/server.log").read_text()
    assert "--ports_num=2" in log
    assert "--seed" not in log
    assert "disconnected without a message: trainer 0 (never seen)" in log
    assert (tmp_path / "logs/paddle_pserver2.INFO").exists()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"PADDLE_INIT_PSERVERS": "10.255.255.1,10.255.255.2"}, "none of 10.255.255.1"),
        ({"PADDLE_INIT_PSERVERS": "127.0.0.1,10.255.255.2"}, "cannot reach 127.0.0.1"),
        ({"PADDLE_INIT_PSERVERS": "10.255.255.1,10.255.255.1"}, "expected distinct hosts"),
        ({"PADDLE_INIT_PSERVERS": "127.0.0.1:7164"}, "PADDLE_INIT_PORT"),
        ({"PADDLE_INIT_PORTS_NUM": "many"}, "ports_num"),
        ({"PADDLE_INIT_TRAINER_IDD": "1"}, "did you mean 'trainer_id'"),
    ],
)
def test_what_does_not_fit_is_told_before_anything_starts(
    tmp_path: Path, names: dict[str, str], expected: str
) -> None:
    code, err = ended(tmp_path, SHOWS, **names)
    assert code == 2
    assert expected in err
    assert not (tmp_path / "logs").exists()


def test_a_trainer_that_fails_ends_the_pserver_and_is_shown(tmp_path: Path) -> None:
    code, err = ended(tmp_path, "raise SystemExit('the cause of it all')")
    assert code == 1
    assert "trainer 0 failed: exit code 1" in err
    assert "the cause of it all" in err


def test_a_parent_that_is_none_is_refused(tmp_path: Path) -> None:
    code, err = ended(tmp_path, SHOWS, "--parent=1")
    assert code == 2
    assert f"parent process, {os.getpid()}, got '1'" in err


def test_it_ends_with_the_parent_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HANGS)
    parent = subprocess.Popen(
        ["sh", "-c", f'{shlex.join(COMMAND)} --parent="$$" train.py & wait'], cwd=tmp_path, env=environment()
    )
    pids = tmp_path / "pids"
    wait_for("a trainer", lambda: pids.exists() and pids.read_text().endswith("\n"), LIMIT_S)
    trainer, keeper = map(int, pids.read_text().split())
    servers = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    assert len(servers) == 2
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(LIMIT_S)
    wait_for("their end", lambda: all(map(is_gone, [trainer, keeper, *map(int, servers)])), LIMIT_S)
