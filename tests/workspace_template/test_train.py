# SPDX-License-Identifier: Apache-2.0
"""train.py, run as users run it: alone on a small text, and what it says when its part of a cluster is missing."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pathspec import GitIgnoreSpec

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "workspace_template"
CLUSTER = ("PADDLE_", "OMPI_", "GLOG_", "TRAINING_ROLE")
IGNORE = Path(__file__).resolve().parents[2] / "workspace_template" / ".paddleignore"


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


def train(workspace: Path, environment: dict[str, str], *options: str, code: int = 0) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(CLUSTER)}
    plain |= {"PYTHONPATH": str(ROOT / "runtime"), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "train.py", *options],
        cwd=workspace,
        env=plain | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def costs_in(output: str) -> NDArray[np.float64]:
    """(passes, 2): the mean training cost and the test cost of every pass."""
    return np.array(re.findall(r"Train cost ([\d.]+), Test cost ([\d.]+)", output), np.float64)


def test_alone_it_learns_and_writes_a_model_after_every_pass(workspace: Path) -> None:
    output = train(workspace, {"PADDLE_INIT_NUM_PASSES": "3"})
    costs = costs_in(output)
    assert costs.shape == (3, 2)
    assert (np.diff(costs, axis=0) < 0).all()
    models = [f"output/pass-{number:05d}/params.tar.gz" for number in range(3)]
    assert sorted(str(path.relative_to(workspace)) for path in workspace.rglob("params*")) == models
    with tarfile.open(workspace / models[-1]) as model:
        assert {"_proj", "_proj.protobuf"} <= set(model.getnames())


def test_at_the_end_words_are_told_that_occur_in_the_same_places(workspace: Path) -> None:
    text = workspace.parent / "text.txt"
    pairs = [("must", "should"), ("is", "was"), ("when", "if")]
    frames = ("you {} go home now", "she said it {} not so", "come back {} all is done")
    lines = [frame.format(word) for frame, pair in zip(frames, pairs, strict=True) for word in pair]
    text.write_text("\n".join(lines * 100), encoding="utf-8")
    subprocess.run(
        [sys.executable, str(TEMPLATE / "prepare.py"), f"--corpus={text}", f"--out={workspace}"], check=True
    )
    output = train(workspace, {"PADDLE_INIT_NUM_PASSES": "3"})
    assert re.findall(r"^Nearest to '(\w+)': (\w+), ", output, re.MULTILINE) == pairs
    assert "Nearest" not in train(workspace, {"PADDLE_INIT_NUM_PASSES": "0"})


def test_the_test_cost_falls_from_pass_to_pass_faster_than_with_the_settings_of_the_manual(
    workspace: Path,
) -> None:
    prepare = [sys.executable, str(TEMPLATE / "prepare.py"), f"--out={workspace}"]
    subprocess.run(prepare, check=True, capture_output=True, timeout=60)
    for name in ("train.txt", "test.txt"):
        lines = (workspace / name).read_text().splitlines(keepends=True)
        (workspace / name).write_text("".join(lines[:20000]))
    passes = {"PADDLE_INIT_NUM_PASSES": "2"}
    quick = costs_in(train(workspace, passes))[:, 1]
    manual = costs_in(train(workspace, passes, "--manual_settings"))[:, 1]
    assert quick[1] < quick[0] - 0.1
    assert quick[1] < manual[1] - 0.3


def test_the_same_run_gives_the_same_costs(workspace: Path) -> None:
    runs = [train(workspace, {"PADDLE_INIT_NUM_PASSES": "1"}) for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.fixture
def endpoints() -> Iterator[dict[str, str]]:
    """A parameter server for one trainer, as the environment that tells a trainer of it."""
    reading, writing = os.pipe()
    argv = [sys.executable, "-P", "-m", "paddle", "pserver", "--port=0", "--ports_num_for_sparse=1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "runtime"), "PADDLE_REPORT_FD": str(writing)}
    process = subprocess.Popen([*argv, "--bind=127.0.0.1"], env=environment, pass_fds=[writing])
    os.close(writing)
    try:
        with open(reading) as reports:
            assert select.select([reports], [], [], 30)[0], "the server did not get ready"
            ready = json.loads(reports.readline())
            yield {
                "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(ready["endpoints"]),
                "PADDLE_PSERVERS_SPARSE_IP_PORT_LIST": ",".join(ready["sparse_endpoints"]),
            }
    finally:
        process.terminate()
        process.wait(30)


def test_the_only_trainer_of_a_cluster_reads_all_pieces_and_gets_the_costs_of_training_alone(
    workspace: Path, endpoints: dict[str, str]
) -> None:
    alone = costs_in(train(workspace, {"PADDLE_INIT_NUM_PASSES": "3"}))
    shutil.rmtree(workspace / "output")
    (workspace / "train.txt").unlink()
    (workspace / "test.txt").unlink()
    (workspace / "train.txt-00000.bak").write_text("not a piece")
    cluster = {"PADDLE_CLUSTER_TRAIN": "True", "OMPI_COMM_WORLD_RANK": "0", "PADDLE_INIT_NUM_PASSES": "3"}
    together = costs_in(train(workspace, cluster | endpoints))
    assert together == pytest.approx(alone, abs=1e-5)
    assert (workspace / "output" / "pass-00002" / "params.tar.gz").is_file()


def test_in_a_cluster_it_needs_its_rank(workspace: Path) -> None:
    error = train(workspace, {"PADDLE_CLUSTER_TRAIN": "True"}, code=1)
    assert "OSError: OMPI_COMM_WORLD_RANK must hold this trainer's id" in error


def test_in_a_cluster_it_says_which_piece_is_missing_and_how_to_make_it(workspace: Path) -> None:
    cluster = {
        "PADDLE_CLUSTER_TRAIN": "True",
        "OMPI_COMM_WORLD_RANK": "3",
        "PADDLE_INIT_TRAINER_ID": "3",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "4",
    }
    error = train(workspace, cluster, code=1)
    assert "trainer 3 of 4 has no piece ./train.txt-00003" in error
    assert "prepare.py --split_count=4" in error


@pytest.mark.parametrize(
    ("path", "travels"),
    [
        ("train.py", True),
        ("word_dict.pickle", True),
        ("train.txt-00000", True),
        ("test.txt-00002", True),
        ("my_lib/layers.py", True),
        ("train.txt", False),
        ("test.txt", False),
        ("prepare.py", False),
        ("train.txt-00001.part", False),
        ("params.tar.gz.part", False),
        ("__pycache__/train.cpython-311.pyc", False),
    ],
)
def test_nodes_get_the_program_the_dictionary_and_the_pieces(path: str, travels: bool) -> None:
    rules = GitIgnoreSpec.from_lines(IGNORE.read_text(encoding="utf-8").splitlines())
    assert rules.match_file(path) is not travels
