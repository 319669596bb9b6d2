# SPDX-License-Identifier: Apache-2.0
"""Scripts of users that ask for a GPU have the losses of the CPU: all with a real GPU, some with a stand-in."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.book.test_fluid_collection import ALONE, DEADLINE_S, HERE, SCRIPTS, alone, losses_of
from tests.gpus import missing_gpu
from tests.runtime.fluid.remote.role_processes import ROOT

# A reader in the scope and executors of several lanes; an evaluator; a loop that a search ends; results of kernels that
# work on the host.
REPRESENTATIVE = ("ctr_dnn", "digits_0_11", "ocr_attention", "ocr_recognition")
_ON_CPU_ONLY = {"text_classification_files"}  # AsyncExecutor takes a CPUPlace, as in the original
_PLACES = {
    r"fluid\.CPUPlace\(\)": "fluid.CUDAPlace(0)",
    r"core\.CPUPlace\(\)": "core.CUDAPlace(0)",
    r"use_cuda ?= ?False": "use_cuda=True",
}


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
