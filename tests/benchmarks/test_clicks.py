# SPDX-License-Identifier: Apache-2.0
"""The dataset pipeline learns real clicks as well as PyTorch does, from the same values and in the same order."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning import clicks

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "ctr"
BY_TORCH = 0.713  # area under the curve of benchmarks.learning.torch_clicks, PyTorch 2, on the same text


def _write(source: Path, target: Path) -> str:
    """Write Criteo's rows as MultiSlot text: numbers over 100, and categories by their CRC-32."""
    with source.open() as lines, target.open("w") as out:
        for line in lines:
            click, *fields = line.rstrip("\n").split("\t")
            numbers = [
                min(max(float(each), 0.0), 1e3) / 100.0 if each else 0.0 for each in fields[: clicks.NUMBERS]
            ]
            ids = [
                zlib.crc32(f"{at}:{each}".encode()) % clicks.IDS
                for at, each in enumerate(fields[clicks.NUMBERS :])
            ]
            values = " ".join(f"{each:g}" for each in numbers)
            out.write(f"{clicks.NUMBERS} {values}{''.join(f' 1 {each}' for each in ids)} 1 {click}\n")
    return str(target)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no Criteo rows in {DATA}")
def test_the_area_under_the_curve_is_that_of_pytorch(tmp_path: Path) -> None:
    paths = [_write(DATA / f"criteo_kaggle_{part}.txt", tmp_path / part) for part in ("train", "test")]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'runtime'}", "OPENBLAS_NUM_THREADS": "1"}
    argv = [sys.executable, "-m", "benchmarks.learning.fluid_clicks", *paths]
    found = subprocess.run(argv, cwd=ROOT, env=env, check=True, capture_output=True, text=True, timeout=300)
    assert float(found.stdout) == pytest.approx(BY_TORCH, abs=0.005)


def test_the_area_under_a_curve_counts_ties_as_halves() -> None:
    scores = np.array([0.1, 0.4, 0.4, 0.8])
    assert clicks.auc(np.array([0, 0, 1, 1]), scores) == pytest.approx(3.5 / 4)
    assert clicks.auc(np.array([1, 1, 0, 0]), scores) == pytest.approx(0.5 / 4)
