# SPDX-License-Identifier: Apache-2.0
"""Programs as jobs of three trainers and two pservers: what batches cost is what they cost in one process."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddle.v2.parameters import Parameters
from tests.local_nodes import warm_nodes
from tests.ports import free_range

PROGRAMS = Path(__file__).with_name("programs")
ROOT = PROGRAMS.parents[2]
LIMIT_S = 240.0
TRAINERS, BATCH = 3, 16
MODEL = "output/params.tar.gz"
SAID = re.compile(r"batch (\d+) of pass (\d+) cost (\S+)")


def run(folder: Path, *argv: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of Python, which must end well."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=folder,
        env={**os.environ, **threads, "PYTHONPATH": str(ROOT / "runtime")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def costs(text: str) -> dict[tuple[int, int], float]:
    """What a trainer says that batches cost, by pass and batch."""
    return {(int(pass_id), int(batch)): float(cost) for batch, pass_id, cost in SAID.findall(text)}


def compare(program: str, samples: int, tmp_path: Path, rtol: float, *others: str) -> None:
    """Train alone, to alone.tar.gz, and as a job, to ws/output/params.tar.gz; compare the costs of each batch."""
    workspace = tmp_path / "ws"
    workspace.mkdir()
    for name in (program, "owner", *others):
        shutil.copy(PROGRAMS / f"{name}.py", workspace)
    alone = costs(run(tmp_path, workspace / f"{program}.py", "train", tmp_path / "alone.tar.gz").stderr)
    conf = tmp_path / "conf.py"
    root = warm_nodes(tmp_path / "nodes", TRAINERS)
    hosts = f"HOSTS = ['local'] * {TRAINERS}\nPSERVERS = [0, 1]\n"
    conf.write_text(f"{hosts}PADDLE_PORT = {free_range(4)}\nROOT_DIR = {str(root)!r}\n")
    entry = (f"--conf={conf}", f"--entry={program}.py", "--", "train", MODEL)
    run(tmp_path, ROOT / "paddle.py", f"--job_dispatch_package={workspace}", *entry)
    logs = [workspace / "log" / f"node_{rank}" / "train.log" for rank in range(TRAINERS)]
    told = [costs(log.read_text()) for log in logs]
    assert all(found.keys() == alone.keys() for found in told)
    for pass_id, batch in alone:
        inside = min(BATCH, samples - batch * BATCH)
        shares = [len(range(rank, inside, TRAINERS)) for rank in range(TRAINERS)]
        together = np.average([found[pass_id, batch] for found in told], weights=shares)
        np.testing.assert_allclose(together, alone[pass_id, batch], rtol=rtol, err_msg=f"{pass_id} {batch}")


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize(("program", "samples"), [("ctr", 400), ("text_classification", 300)])
def test_a_job_has_the_costs_of_one_process_on_the_joined_batches(
    program: str, samples: int, tmp_path: Path
) -> None:
    compare(program, samples, tmp_path, 1e-4)
    inferred = run(tmp_path, tmp_path / f"ws/{program}.py", "infer", tmp_path / "ws" / MODEL).stdout
    assert float(inferred.partition(": ")[2].rstrip("}\n")) >= 0.8


@pytest.mark.timeout(2 * LIMIT_S)
def test_attention_learns_in_a_job_what_it_learns_in_one_process(tmp_path: Path) -> None:
    compare("attention", 48, tmp_path, 2e-5, "translation")
    alone, job = (load(tmp_path / name) for name in ("alone.tar.gz", f"ws/{MODEL}"))
    assert set(alone.names()) == set(job.names())
    for name in alone.names():
        np.testing.assert_allclose(job.get(name), alone.get(name), rtol=0, atol=2e-5, err_msg=name)
    inferred = run(tmp_path, tmp_path / "ws/attention.py", "infer", tmp_path / "ws" / MODEL).stdout
    assert inferred.startswith('{"sentences": 24.0, ')


def load(path: Path) -> Parameters:
    """The parameters of a file."""
    file: Any
    with gzip.open(path) as file:
        return Parameters.from_tar(file)
