# SPDX-License-Identifier: Apache-2.0
"""Whole scripts as they were written for Fluid: each trains alone, and those with roles as two trainers on two servers.

Those that ask for a GPU have the losses of the CPU: all with a real GPU, some with a stand-in. The scripts share
nothing with each other, as scripts of users do not, and print a line "loss: x" for each step.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.gpus import missing_gpu
from tests.nursery import output_of
from tests.runtime.fluid.remote.role_processes import ROOT, Processes

HERE = Path(__file__).parent / "collection"
SCRIPTS = sorted(each.stem for each in HERE.glob("*.py"))
DEADLINE_S = 250
ALONE = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "runtime"), "OPENBLAS_NUM_THREADS": "1"}

# Losses of two trainers are those of one process up to rounding, and this much where that is not so by definition: Adam
# does not see that a sum over half a batch is half as large but for its epsilon.
DISTRIBUTED = {
    "book_0_11": 1e-4,
    "ctr_dnn": 0.02,
    "din": 1e-3,
    "gru4rec": 1e-3,
    "gru4rec_sampled": 1e-3,
    "multiview_simnet": 1e-5,
    "ssr": 2e-3,
    "tagspace": 1e-3,
    "transformer": 2e-3,
    "word2vec": 1e-3,
}

# A reader in the scope and executors of several lanes; an evaluator; a loop that a search ends; results of kernels that
# work on the host.
REPRESENTATIVE = ("ctr_dnn", "digits_0_11", "ocr_attention", "ocr_recognition")
_ON_CPU_ONLY = {"text_classification_files"}  # AsyncExecutor takes a CPUPlace, as in the original
_PLACES = {
    r"fluid\.CPUPlace\(\)": "fluid.CUDAPlace(0)",
    r"core\.CPUPlace\(\)": "core.CUDAPlace(0)",
    r"use_cuda ?= ?False": "use_cuda=True",
}


def losses_of(text: str) -> list[float]:
    return [float(line.split()[1]) for line in text.splitlines() if line.startswith("loss: ")]


@functools.cache  # a script that begins from its own seeds gives the same losses each time
def alone(script: str) -> list[float]:
    output, _ = output_of("fluid", [str(HERE / f"{script}.py")], ALONE, None, DEADLINE_S)
    return losses_of(output)


def together(script: str) -> list[list[float]]:
    """Return the losses of each of two trainers with two servers."""
    processes = Processes(2, 2, HERE / f"{script}.py")
    # what the cloud of 0.11 and 0.12 said
    processes.env |= {"PSERVERS": ",".join(processes.endpoints), "TRAINERS": "2"}
    try:
        for number, endpoint in enumerate(processes.endpoints):
            own = {"PADDLE_TRAINING_ROLE": "PSERVER", "SERVER_ENDPOINT": endpoint}
            processes.start("PSERVER", number, endpoint, None, **own)
        for rank in range(2):
            own = {"PADDLE_TRAINING_ROLE": "TRAINER", "PADDLE_INIT_TRAINER_ID": str(rank)}
            processes.start("TRAINER", rank, "", None, **own)
        outputs = processes.outputs()
        codes = [each.returncode for each in processes.running]
        assert codes == [0, 0, 0, 0], "\n".join(error for _, error in outputs)
        return [losses_of(said) for said, _ in outputs[2:]]
    finally:
        processes.end()


def assert_agree(found: np.ndarray, expected: list[float], tolerance: float) -> None:
    """Compare losses; rounding differences grow in training, on some CPUs to 1 % after 60 steps."""
    np.testing.assert_allclose(found[:40], expected[:40], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found, expected, rtol=max(tolerance, 0.05))


def assert_falls(losses: list[float]) -> None:
    assert len(losses) >= 20
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_trains_alone(script: str) -> None:
    assert_falls(alone(script))


@pytest.mark.parametrize("script", DISTRIBUTED)
def test_two_trainers_and_two_servers_have_the_losses_of_one_process(script: str) -> None:
    found = np.mean(together(script), axis=0)
    assert_agree(found, alone(script), DISTRIBUTED[script])


@pytest.mark.parametrize("script", ["multiview_simnet", "transformer"])
def test_two_ranks_of_launch_have_the_losses_of_one_process(script: str, tmp_path: Path) -> None:
    path = str(HERE / f"{script}.py")
    subprocess.run(
        [sys.executable, "-P", "-m", "paddle.distributed.launch", "--gpus=2", f"--log_dir={tmp_path}", path],
        env={**ALONE, "CPU_NUM": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    ranks = [losses_of((tmp_path / f"workerlog.{rank}").read_text()) for rank in range(2)]
    assert_agree(np.mean(ranks, axis=0), alone(script), 1e-4)


def test_two_trainers_with_batch_normalisation_of_their_own_train() -> None:
    for losses in together("image_classification"):
        assert_falls(losses)


@pytest.mark.parametrize("script", REPRESENTATIVE if missing_gpu() else sorted(set(SCRIPTS) - _ON_CPU_ONLY))
def test_a_script_on_a_gpu_has_the_losses_of_the_cpu(script: str, tmp_path: Path) -> None:
    text = (HERE / f"{script}.py").read_text()
    moved = text
    for place, gpu in _PLACES.items():
        moved = re.sub(place, gpu, moved)
    assert moved != text
    (tmp_path / f"{script}.py").write_text(moved)
    stand_in = [str(ROOT / "tests" / "gpu_stand_in")] if missing_gpu() else []
    done = subprocess.run(
        [sys.executable, "-P", str(tmp_path / f"{script}.py")],
        env={**ALONE, "PYTHONPATH": ":".join([ALONE["PYTHONPATH"], *stand_in])},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    found, expected = losses_of(done.stdout), alone(script)
    assert len(found) == len(expected) > 0
    # Some sums are made in another order, on a real GPU all of them, and training enlarges the difference.
    tolerance = 1e-5 if missing_gpu() else 0.02
    np.testing.assert_allclose(found[:10], expected[:10], rtol=tolerance, atol=tolerance)
