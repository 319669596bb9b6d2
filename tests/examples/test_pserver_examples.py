# SPDX-License-Identifier: Apache-2.0
"""The examples with parameter servers, run as users run them, and PyTorch's with tensors of another library."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from paddle.pserver import Client
from tests.runtime.pserver.neutral_job import run, server
from tests.runtime.pserver.other_tensors import OldTensor
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60


def start(
    name: str, folder: Path, process: PserverProcess, trainer: int, *args: str
) -> subprocess.Popen[str]:
    environ = {
        "PYTHONPATH": str(ROOT / "runtime"),
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(process.endpoints),
        "PADDLE_TRAINER_ID": str(trainer),
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_JOB_KEY": KEY,
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / name), *args],
        cwd=folder,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def outputs(processes: list[subprocess.Popen[str]]) -> list[str]:
    try:
        found = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), "\n".join(found)
    return found


def test_word_vectors_on_two_processes_tell_unseen_pairs_apart_while_a_third_looks_on(tmp_path: Path) -> None:
    with server(2, "--ports_num=2") as process:
        looks = start("read_pserver.py", tmp_path, process, 0, "--looks=3", "--every_s=0")
        trains = [start("numpy_pserver.py", tmp_path, process, i) for i in range(2)]
        *found, looked = outputs([*trains, looks])
    assert "bias: (1,)\nvectors: rows by id, width 16\n" in looked
    assert len(re.findall(r"batch \d+: \|bias\| = ", looked)) == 3
    told = [re.findall(r"([\d.]+) of unseen pairs correct", text) for text in found]
    assert told[0] == told[1]
    assert float(told[0][0]) > 0.9
    costs = [float(cost) for cost in re.findall(r"cost ([\d.]+)", found[0])]
    assert costs[-1] < 0.5 * costs[0]
    saved = np.load(tmp_path / "output" / "vectors.npz")
    assert saved["vectors"].shape == (len(saved["words"]), 16)


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed: it is gigabytes"
)
def test_torch_on_two_processes_learns_the_spirals(tmp_path: Path) -> None:
    with server(2) as process:
        found = outputs([start("torch_pserver.py", tmp_path, process, i) for i in range(2)])
    told = [re.findall(r"test accuracy ([\d.]+)", text) for text in found]
    assert told[0] == told[1]
    assert float(told[0][0]) > 0.95


def example_of(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_training_works_with_tensors_of_any_library() -> None:
    example = example_of("torch_pserver")
    true = np.array([1.0, -2.0, 0.5], np.float32)

    def train(client: Client, trainer: int) -> np.ndarray:
        # Each begins elsewhere and has another number of batches; in the end both have what one process would find.
        w = OldTensor(np.full(3, float(trainer), np.float32), requires_grad=True)

        def gradients_of(points: np.ndarray) -> tuple[float, dict[str, Any]]:
            error = points @ w.array - points @ true
            slope = points.T @ error / len(points) / client.num_trainers
            return float(error @ error), {"w": OldTensor(slope.astype(np.float32))}

        def batches() -> Iterator[np.ndarray]:
            rng = np.random.default_rng(trainer)
            for _ in range(150 + 50 * trainer):
                yield rng.standard_normal((16, 3)).astype(np.float32)

        example.train(client, {"w": w}, gradients_of, batches(), learning_rate=0.05)
        return w.array

    with server(2) as process:
        one, other = run(process, 2, train)
    assert np.array_equal(one, other)
    np.testing.assert_allclose(one, true, atol=0.05)


def test_an_embedding_of_any_numbers_tells_who_clicks_on_what() -> None:
    pytest.importorskip(
        "torch", reason="torch is not installed here: it is gigabytes; run it by a Python that has it"
    )
    example = example_of("torch_embedding")
    few = {"passes": 8, "samples": 4096, "batch_size": 256, "width": 16, "people": 200, "ads": 80}

    def train(client: Client, trainer: int) -> float:
        return float(example.train(argparse.Namespace(**few, learning_rate=0.3), client))

    with server(2) as process:
        one, other = run(process, 2, train)
    assert one == other > 0.95
