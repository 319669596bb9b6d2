# SPDX-License-Identifier: Apache-2.0
"""The example of a dataset with a pipe command: on rows that it makes up in a job, and on real clicks alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid

ROOT = Path(__file__).resolve().parents[2]
CLICKS = ROOT.parent / "shared" / "data" / "ctr"
LIMIT_S = 110
BUCKETS = 100_003

real = pytest.mark.skipif(not CLICKS.is_dir(), reason=f"needs the click logs in {CLICKS}")


@pytest.fixture
def example(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "examples" / "ctr_dataset", tmp_path / "example"))


def run(folder: Path, *argv: str | Path, given: bytes | None = None) -> bytes:
    """Run Python and return its standard output."""
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "runtime")},
        input=given or b"",
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    logs = b"".join(path.read_bytes() for path in sorted(folder.glob("*log*/*")))
    assert done.returncode == 0, (done.stdout + done.stderr + logs).decode()
    return done.stdout + logs


def areas(text: bytes) -> list[float]:
    """The AUC of each line that has one."""
    return [float(found) for found in re.findall(rb"AUC: \[([\d.]+)\]", text)]


def test_trainers_of_a_job_learn_from_datasets(example: Path, tmp_path: Path) -> None:
    launch = ("-m", "paddle.distributed.launch_ps", "--server_num=2", "--worker_num=2")
    told = run(tmp_path, *launch, example / "train.py", "--passes=3", "--made_up=1200", "--threads=1")
    assert len(re.findall(rb"19 batches, 1200 samples in", told)) == 2 * 3
    assert max(areas(told)) > 0.6


@real
def test_the_area_under_the_curve_rises_on_real_clicks(example: Path, tmp_path: Path) -> None:
    lines = (CLICKS / "criteo_kaggle_train.txt").read_bytes().splitlines(keepends=True)
    parts = [tmp_path / "part-0", tmp_path / "part-1"]
    for number, part in enumerate(parts):
        part.write_bytes(b"".join(lines[number::2]))
    test = f"--test={CLICKS / 'criteo_kaggle_test.txt'}"
    told = run(tmp_path, example / "train.py", "--passes=2", test, "--train", *parts)
    assert told.count(b" 7200 samples in ") == 2
    *training, held_back = areas(told)
    half = len(training) // 2
    assert training[half - 1] > 0.6  # with racing threads 0.648 to 0.713 in ten runs
    assert training[-1] > training[half] > training[1]
    assert held_back > 0.65


@real
def test_real_clicks_are_parsed_as_by_a_loop(example: Path, tmp_path: Path) -> None:
    rows = (CLICKS / "criteo_kaggle_dev.txt").read_bytes()
    text = run(example, "clicks.py", str(BUCKETS), given=rows)
    (tmp_path / "text").write_bytes(text)
    names = [f"C{at}" for at in range(1, 27)]
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        dense = fluid.layers.data("dense_input", [13])
        ids = [fluid.layers.data(name, [1], dtype="int64", lod_level=1) for name in names]
        made: Any = fluid.DatasetFactory().create_dataset("InMemoryDataset")
        made.set_use_var([dense, *ids, fluid.layers.data("label", [1], dtype="int64")])
    made.set_batch_size(1000)
    made.set_filelist([str(tmp_path / "text")])
    made.load_into_memory()
    (batch,) = (each.feed() for each in made.batches())
    tokens = np.array([line.split() for line in text.splitlines()])
    assert tokens.shape == (409, 14 + 26 * 2 + 2)
    np.testing.assert_array_equal(batch["dense_input"], tokens[:, 1:14].astype("float64").astype("float32"))
    for at, name in enumerate(names):
        np.testing.assert_array_equal(batch[name].data[:, 0], tokens[:, 15 + 2 * at].astype("int64"))
        assert batch[name].lengths() == [[1] * 409]
    np.testing.assert_array_equal(batch["label"][:, 0], [int(row[:1]) for row in rows.splitlines()])
