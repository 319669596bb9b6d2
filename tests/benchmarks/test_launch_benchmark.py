# SPDX-License-Identifier: Apache-2.0
"""benchmarks.launch runs from end to end with little work; what the figures are is nobody's test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_quick_run_fills_the_table_and_the_file(tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.launch", "--quick", "--hosts", "2", "--json", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(target.read_text())
    assert set(found) == {"machine", "figures", "ratios"}
    assert {
        "start_2_vs_openssh",
        "cold_2_vs_openssh_tar",
        "unchanged_2_vs_rsync",
        "dispatch_100MB_2_vs_openssh",
        "relay_100MB_2_vs_one_copy",
    } <= set(found["ratios"]), done.stdout
    assert found["figures"]["left_2_ours"]["median"] == 0
    sent = found["figures"]["cold_2_100MB_openssh_tar_sent"]["median"]
    assert 4.0 < sent < 4.4  # 2 MB to each of two hosts, counted at the device
    assert "start_2_vs_openssh" in done.stdout


@pytest.mark.cluster
def test_an_unknown_measurement_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.launch", "--only", "startt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "'startt': expected one of start, dispatch_2MB, " in done.stderr
