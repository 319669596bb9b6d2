# SPDX-License-Identifier: Apache-2.0
"""train.py, run as users run it: alone on a small text, and what it says when its part of a cluster is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "workspace_template"
CLUSTER = ("PADDLE_", "OMPI_", "GLOG_", "TRAINING_ROLE")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """train.py beside data made of a text that is easy to learn."""
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\na dog ran to the door\n" * 60, encoding="utf-8")
    folder = tmp_path / "ws"
    prepare = [sys.executable, str(TEMPLATE / "prepare.py"), f"--corpus={text}", f"--out={folder}"]
    subprocess.run(prepare, check=True, capture_output=True, timeout=60)
    shutil.copy(TEMPLATE / "train.py", folder)
    return folder


def train(workspace: Path, code: int = 0, **environment: str) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(CLUSTER)}
    plain |= {"PYTHONPATH": str(ROOT / "runtime"), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=workspace,
        env=plain | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_alone_it_learns_and_writes_a_model_after_every_pass(workspace: Path) -> None:
    output = train(workspace, PADDLE_INIT_NUM_PASSES="3")
    costs = [
        (float(mean), float(test))
        for mean, test in re.findall(r"Train cost ([\d.]+), Test cost ([\d.]+)", output)
    ]
    assert len(costs) == 3
    assert costs[2][0] < costs[1][0] < costs[0][0]
    assert costs[2][1] < costs[0][1]
    assert re.search(
        r"^Pass 0, Batch 0, Cost \d+\.\d+, \{'classification_error_evaluator': ", output, re.MULTILINE
    )
    models = [f"output/pass-{number:05d}/params.tar.gz" for number in range(3)]
    assert sorted(str(path.relative_to(workspace)) for path in workspace.rglob("params*")) == models
    with tarfile.open(workspace / models[-1]) as model:
        assert {"_proj", "_proj.protobuf"} <= set(model.getnames())


def test_the_same_run_gives_the_same_costs(workspace: Path) -> None:
    runs = [train(workspace, PADDLE_INIT_NUM_PASSES="1") for _ in range(2)]
    assert runs[0] == runs[1]


def test_in_a_cluster_it_needs_its_rank(workspace: Path) -> None:
    error = train(workspace, code=1, PADDLE_CLUSTER_TRAIN="True")
    assert "OSError: OMPI_COMM_WORLD_RANK must hold this trainer's id" in error


def test_in_a_cluster_it_says_which_piece_is_missing_and_how_to_make_it(workspace: Path) -> None:
    cluster = {
        "PADDLE_CLUSTER_TRAIN": "True",
        "OMPI_COMM_WORLD_RANK": "3",
        "PADDLE_INIT_TRAINER_ID": "3",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "4",
    }
    error = train(workspace, code=1, **cluster)
    assert "trainer 3 of 4 has no piece ./train.txt-00003" in error
    assert "prepare.py --split_count=4" in error
