# SPDX-License-Identifier: Apache-2.0
"""Whole programs as their owners run them: one process trains and saves, another one loads and infers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.nursery import output_of

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs")
LIMIT_S = 250.0


def run(program: str, *arguments: str | Path) -> dict[str, Any]:
    """What a program prints."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "runtime")}
    argv = [str(PROGRAMS / f"{program}.py"), *map(str, arguments)]
    output, _ = output_of("v2", argv, environment, None, LIMIT_S)
    found: dict[str, Any] = json.loads(output)
    return found


ELSEWHERE = {
    "owner",
    "attention",
}  # attention trains too briefly for this: it is there for test_v2_program_jobs


@pytest.mark.parametrize("program", sorted({path.stem for path in PROGRAMS.glob("*.py")} - ELSEWHERE))
def test_a_program_trains_and_infers(program: str, tmp_path: Path) -> None:
    trained = run(program, "train", tmp_path / "params.tar.gz")
    assert trained["last"] < 0.7 * trained["first"], trained
    for name, value in run(program, "infer", tmp_path / "params.tar.gz").items():
        assert value >= 0.8, name
