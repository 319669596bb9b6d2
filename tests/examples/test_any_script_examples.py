# SPDX-License-Identifier: Apache-2.0
"""The examples without `paddle`: they agree with themselves on one process and on several."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.other_python import python_with
from tests.ports import free_endpoints, free_range
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60


def start(
    name: str, folder: Path, environ: Mapping[str, str], *args: str, python: str = sys.executable
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, str(ROOT / "examples" / name), *args],
        cwd=folder,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 0, output
    return output


def weights(output: str) -> list[float]:
    (line,) = re.findall(r"^weights (.*)$", output, re.MULTILINE)
    return [float(word) for word in line.split()]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("features", [1, 8])  # with one, some parts of the array are empty
def test_a_ring_finds_the_weights_of_one_process(tmp_path: Path, size: int, features: int) -> None:
    args = (f"--features={features}", "--steps=20")
    alone = weights(end(start("numpy_allreduce.py", tmp_path, {}, *args)))
    endpoints = ",".join(free_endpoints(size))
    environ = {"PADDLE_TRAINER_ENDPOINTS": endpoints, "PADDLE_JOB_KEY": "k"}
    processes = [
        start("numpy_allreduce.py", tmp_path, {**environ, "PADDLE_TRAINER_ID": str(rank)}, *args)
        for rank in range(size)
    ]
    found = [weights(end(process)) for process in processes]
    assert all(one == found[0] for one in found)
    assert found[0] == pytest.approx(alone, abs=1e-6)


def test_a_ring_sends_strangers_away(tmp_path: Path) -> None:
    environ = {"PADDLE_TRAINER_ENDPOINTS": ",".join(free_endpoints(2)), "PADDLE_JOB_KEY": "k"}
    process = start("numpy_allreduce.py", tmp_path, {**environ, "PADDLE_TRAINER_ID": "0"}, "--steps=3")
    other = start(
        "numpy_allreduce.py", tmp_path, {**environ, "PADDLE_TRAINER_ID": "1", "PADDLE_JOB_KEY": "other"}
    )
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=1)  # it still waits for one that knows the key
    finally:
        for one in (process, other):
            one.kill()
            one.communicate()


def test_ddp_learns_the_spirals_on_two_processes(tmp_path: Path) -> None:
    python = python_with("torch")
    port = free_range(1)
    environ = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "PYTHONPATH": str(ROOT / "runtime"),  # paddle_job
    }
    processes = [
        start(
            "torch_ddp.py", tmp_path, {**environ, "RANK": str(rank), "LOCAL_RANK": str(rank)}, python=python
        )
        for rank in range(2)
    ]
    found = [re.findall(r"test accuracy ([\d.]+), model (\w+)", end(process)) for process in processes]
    assert found[0] == found[1]
    assert float(found[0][0][0]) > 0.95


def test_ddp_trains_the_dense_layers_and_servers_the_rows(tmp_path: Path) -> None:
    python = python_with("torch")
    port = free_range(1)
    with PserverProcess("--port=0", "--num_gradient_servers=2") as server:
        environ = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": "2",
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(server.endpoints),
            "PADDLE_TRAINERS_NUM": "2",
            "PADDLE_JOB_KEY": KEY,
            "PYTHONPATH": str(ROOT / "runtime"),
        }
        ranks = [{"RANK": str(rank), "PADDLE_TRAINER_ID": str(rank)} for rank in range(2)]
        processes = [
            start("torch_embedding_ddp.py", tmp_path, {**environ, **rank}, python=python) for rank in ranks
        ]
        told = r"([\d.]+) of 2048 unseen pages classified correctly, model (\S+)"
        found = [re.findall(told, end(process)) for process in processes]
    assert found[0] == found[1]
    assert float(found[0][0][0]) > 0.95
