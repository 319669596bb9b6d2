# SPDX-License-Identifier: Apache-2.0
"""Fluid's examples, run as their pages say, on a small part of the real data."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local_nodes import warm_nodes

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
LIMIT_S = 100

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the real data sets in {SHARED}")


def run(folder: Path, *argv: str | Path) -> str:
    environment = {"PYTHONPATH": str(ROOT / "runtime"), "PADDLE_DATA_HOME": str(SHARED)}
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=folder,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def copied(name: str, folder: Path) -> Path:
    """A copy of an example, which gets the logs and the model."""
    return Path(shutil.copytree(ROOT / "examples" / name, folder / name))


def test_word2vec_learns_from_two_trainers_and_brings_home_what_the_pserver_has(tmp_path: Path) -> None:
    workspace = copied("fluid_word2vec", tmp_path)
    conf = tmp_path / "conf.py"
    root = warm_nodes(tmp_path / "nodes", 2)
    conf.write_text(f"HOSTS = ['local'] * 2\nPSERVERS = [0]\nROOT_DIR = {str(root)!r}\n")
    job = ("--mode=fluid", "--env=PADDLE_DATA_HOME", "--batches=20")
    told = run(tmp_path, ROOT / "paddle.py", "-p", workspace, f"--conf={conf}", *job)
    assert "NOT CLEANED" not in told
    for node_id in range(2):
        log = (workspace / "log" / f"node_{node_id}" / "train.log").read_text()
        first, mean = (float(cost) for cost in re.findall(r"[cC]ost ([\d.]+)", log))
        assert first > 7.5  # ln 2073 = 7.64: any word may come
        assert mean < 7.3
    sums_of_squares = (workspace / "output" / "parameters" / "shared_w_moment_0").read_bytes()
    assert any(sums_of_squares[-2073 * 32 * 4 :])  # the servers alone have counted them


@pytest.mark.parametrize("flags", [(), ("--asynchronous", "--k_steps=2")])
def test_two_processes_without_servers_read_most_digits(tmp_path: Path, flags: tuple[str, ...]) -> None:
    script = copied("collective_mnist", tmp_path) / "train.py"
    launch = ("-m", "paddle.distributed.launch", "--gpus=2")
    run(tmp_path, *launch, script, "--passes=1", "--batches=60", *flags)
    (accuracy,) = re.findall(r"Test accuracy ([\d.]+)", (tmp_path / "mylog" / "workerlog.0").read_text())
    assert float(accuracy) > 0.8
    assert (tmp_path / "output" / "parameters").is_dir()
