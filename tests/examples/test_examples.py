# SPDX-License-Identifier: Apache-2.0
"""The examples, run as users run them, learn what they say they learn."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the real data sets in {SHARED}")


def run(name: str, folder: Path) -> str:
    environment = {
        "PYTHONPATH": str(ROOT / "runtime"),
        "PADDLE_DATA_HOME": str(SHARED),
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_fit_a_line_predicts_better_than_the_mean_price(tmp_path: Path) -> None:
    costs = [float(cost) for cost in re.findall(r"Test cost ([\d.]+)", run("fit_a_line.py", tmp_path))]
    assert len(costs) == 3
    assert costs[-1] < 20  # always to predict the mean of the training prices costs 93


def test_recognize_digits_reads_nine_digits_in_ten_and_writes_its_model(tmp_path: Path) -> None:
    output = run("recognize_digits.py", tmp_path)
    errors = re.findall(r"Test cost [\d.]+, \{'classification_error_evaluator': ([\d.]+)\}", output)
    assert len(errors) == 3
    assert float(errors[-1]) < 0.1
    assert (tmp_path / "digits.tar.gz").stat().st_size > 100_000
