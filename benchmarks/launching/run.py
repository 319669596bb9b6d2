# SPDX-License-Identifier: Apache-2.0
"""A run of benchmarks.launch: the amount of work, the place of temporary files, and the report of all results."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Report

ROOT = Path(__file__).resolve().parents[2]
SEED = 20261121
IDLE_SCRIPT = "print('here')\n"


@dataclass(frozen=True)
class Run:
    """The values shared by the measurements.

    Attributes:
        turns: repetitions of measurements that take about a second.
        long_turns: repetitions of longer measurements.
        scale: payload sizes are multiplied by this factor.
        settle_s: how long other tools have to end their processes after Ctrl+C.
        scratch: a directory that is removed at the end.
    """

    turns: int
    long_turns: int
    scale: float
    settle_s: float
    scratch: Path
    report: Report
    root: Path = ROOT

    def workspace(self, name: str, script: str = IDLE_SCRIPT) -> Path:
        """Create a directory with a train.py."""
        directory = self.scratch / name
        directory.mkdir(exist_ok=True)
        (directory / "train.py").write_text(script)
        return directory

    def size(self, full: int) -> int:
        """Return the size in bytes of a payload of `full` bytes at full scale."""
        return max(1, int(full * self.scale))


def fill(path: Path, size: int, seed: int) -> None:
    """Write incompressible bytes; the same seed gives the same bytes."""
    source = random.Random(f"{SEED}-{seed}")
    with path.open("wb") as file:
        for begin in range(0, size, 1 << 22):
            file.write(source.randbytes(min(1 << 22, size - begin)))
