# SPDX-License-Identifier: Apache-2.0
"""Job directories that nodes keep: the last ones of a workspace, and all that somebody may still need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher.control_jobs import ROOT

LIMIT_S = 110


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "conf.py"
    path.write_text(f"HOSTS = ['local']\nROOT_DIR = {str(tmp_path / 'nodes')!r}\nKEEP_JOBS = 2\n")
    return path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    (made / "train.py").write_text("import os\nos.mkdir('deep')\nos.symlink('/etc', 'deep/link')\n")
    return made


def run(workspace: Path, conf: Path, *options: str) -> None:
    job = ["-p", str(workspace), f"--conf={conf}", "--mode=collective", *options]
    argv = [sys.executable, str(ROOT / "paddle.py"), *job]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr


def kept(conf: Path) -> list[str]:
    """Names of the job directories, the oldest first."""
    return sorted(path.name for path in (conf.parent / "nodes" / "node_0").glob("JOB*"))


def change(conf: Path, job: str, **fields: object) -> None:
    """Make a record say something else."""
    (path,) = (conf.parent / "nodes/node_0/.paddle/jobs").glob(f"{job}.*")
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_the_last_jobs_of_a_workspace_stay_and_those_of_another_are_not_touched(
    workspace: Path, conf: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_text("")
    run(other, conf)
    (stranger,) = kept(conf)
    seen = []
    for _ in range(4):
        run(workspace, conf)
        seen.append(kept(conf)[-1])
    assert kept(conf) == [stranger, *seen[-2:]]


@pytest.mark.parametrize(
    "record",
    [
        {"keeps_state": True},
        {"ended": {"at": 0, "how": "x", "settled": False}},
        {"ended": None},
        {"job_dir": "/elsewhere"},
        {"submitter": {}},
        {"job_id": "../../ws"},
    ],
)
def test_what_somebody_may_need_stays(workspace: Path, conf: Path, record: dict[str, object]) -> None:
    run(workspace, conf)
    (first,) = kept(conf)
    change(conf, first, **record)
    conf.write_text(conf.read_text().replace("KEEP_JOBS = 2", "KEEP_JOBS = 1"))
    run(workspace, conf)
    assert kept(conf)[0] == first
    assert len(kept(conf)) == 2
    assert (workspace / "train.py").exists()


def test_a_job_says_of_itself_that_its_directory_holds_checkpoints(workspace: Path, conf: Path) -> None:
    conf.write_text(conf.read_text().replace("KEEP_JOBS = 2", "KEEP_JOBS = 1"))
    run(workspace, conf, "--checkpoint_dir=saved")
    run(workspace, conf)
    run(workspace, conf)
    first, *others = kept(conf)
    (record,) = (conf.parent / "nodes/node_0/.paddle/jobs").glob(f"{first}.*")
    assert json.loads(record.read_text())["keeps_state"] is True
    assert len(others) == 1
