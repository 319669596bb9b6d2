# SPDX-License-Identifier: Apache-2.0
"""What Slurm is asked for, and what it is told and not told."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.config import arguments
from paddle_cluster.config.resolve import resolve
from paddle_cluster.config.settings import Settings
from paddle_cluster.engines import slurm, slurm_allocation
from paddle_cluster.errors import ConfError, UsageError
from tests.cluster.deadline import wait_for


def resolved(folder: Path, *args: str, environ: dict[str, str] | None = None, **conf: Any) -> Settings:
    """Settings of a job under Slurm."""
    (folder / "conf.py").write_text("".join(f"{name} = {value!r}\n" for name, value in conf.items()))
    given = arguments.parse(["-p", f"{folder}/ws", f"--conf={folder}/conf.py", "--engine=slurm", *args])
    return resolve(given, {"HOME": str(folder), **(environ or {})})


def test_nodes_have_numbers_until_slurm_names_them_and_options_of_conf_come_last(tmp_path: Path) -> None:
    made = resolved(tmp_path, "--nnodes=3", "--min_trainers=1", PSERVERS=[0], SLURM_OPTIONS=["--nodes=2-3"])
    assert [host.name for host in made.cluster.hosts] == ["slurm-0", "slurm-1", "slurm-2"]
    asked = slurm_allocation.salloc(made)
    assert asked[:2] == ["salloc", "--nodes=3"]
    assert "--no-kill" in asked
    assert asked[-1] == "--nodes=2-3"


def test_without_a_number_and_without_an_allocation_there_are_no_nodes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--nnodes=N"):
        resolved(tmp_path)


def test_a_job_of_several_components_is_refused(tmp_path: Path) -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST": "a"}
    with pytest.raises(UsageError, match="heterogeneous Slurm job of 2 components"):
        resolved(tmp_path, "--nnodes=1", environ=environ)


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        (
            {"SLURM_OPTIONS": ["-p", "gpu"]},
            r"SLURM_OPTIONS\[1\]: expected an option with its value in one string",
        ),
        ({"SLURM_OPTIONS": "--partition=gpu"}, "SLURM_OPTIONS: expected"),
        ({"ENGINE_PORT": "7000-6000"}, "ENGINE_PORT: expected a port, a range"),
        ({"ENGINE_PORT": 70000}, "ENGINE_PORT: expected a port, a range"),
    ],
)
def test_what_cannot_be_asked_is_told_before_any_waiting(tmp_path: Path, conf: Any, says: str) -> None:
    with pytest.raises(ConfError, match=says):
        resolved(tmp_path, "--nnodes=3", **conf)


@pytest.mark.parametrize(("given", "ports"), [(0, []), (7000, [7000]), ("7000-7002", [7000, 7001, 7002])])
def test_the_port_that_nodes_call_is_any_one_or_a_range(tmp_path: Path, given: Any, ports: list[int]) -> None:
    assert list(resolved(tmp_path, "--nnodes=3", ENGINE_PORT=given).engines.ports) == ports


def test_a_batch_job_with_checkpoints_begins_again_and_shows_no_values(tmp_path: Path) -> None:
    argv = [
        *("-p", f"{tmp_path}/ws", f"--conf={tmp_path}/conf.py", "--engine=slurm", "--nnodes=2", "--detach"),
        *("--env=A=s3cr3t", "--env", "B=t0k3n=x", "--env=C", "--checkpoint_dir=/d e", "--", "--env=D=mine"),
    ]
    made = slurm.batch(["python3", "p"], argv, resolved(tmp_path, *argv[4:], environ={"C": "c"}))
    assert made.env == {"A": "s3cr3t", "B": "t0k3n=x"}
    assert "s3cr3t" not in made.script + str(made.argv)
    assert "--env=A --env B --env=C '--checkpoint_dir=/d e' -- --env=D=mine &\n" in made.script
    assert "python3 p --resume=auto" in made.script
    assert "--detach" not in made.script
    assert {"--requeue", "--signal=B:USR1@120"} <= set(made.argv)


def test_a_batch_job_without_checkpoints_is_left_to_slurm(tmp_path: Path) -> None:
    made = slurm.batch(["p"], ["--detach"], resolved(tmp_path, "--nnodes=2", "--detach"))
    assert "--resume" not in made.script
    assert not any(word.startswith(("--signal", "--requeue")) for word in made.argv)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("UNLIMITED", None),
        ("", None),
        ("INVALID", None),
        ("0:07", 7),
        ("1:00:00", 3600),
        ("2-01:00:05", 176405),
    ],
)
def test_the_time_that_is_left_is_read(text: str, seconds: float | None) -> None:
    assert slurm_allocation.seconds_left(text) == seconds


@pytest.mark.parametrize(
    ("restarts", "left", "begins_again"),
    [
        ("", "0:30", True),
        ("1", "0:58", False),
        ("3", "2:59", False),
        ("1", "9:00", True),
        ("1", "1-00:00:00", True),
    ],
)
def test_a_batch_job_that_gets_no_time_to_get_on_does_not_begin_again_for_ever(
    tmp_path: Path, restarts: str, left: str, begins_again: bool
) -> None:
    launcher = f"""sh -c 'trap "exit 143" TERM; : > {tmp_path}/up; while :; do sleep 0.02; done'"""
    for name, text in (("squeue", f"echo {left}"), ("scontrol", 'echo "scontrol $*"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    if restarts:
        env["SLURM_RESTART_COUNT"] = restarts
    script = slurm._SCRIPT.format(command=launcher, again="yes")
    with subprocess.Popen(["sh", "-c", script], env=env, stdout=subprocess.PIPE, text=True) as batch:
        wait_for("the launcher", (tmp_path / "up").exists, 20)
        batch.send_signal(signal.SIGUSR1)
        said, _ = batch.communicate(timeout=20)
    assert batch.returncode == 143
    assert ("scontrol requeue 7" in said) is begins_again
    assert ("ask for 5 minutes" in said) is not begins_again
