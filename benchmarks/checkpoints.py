# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint of a large shard costs: training meanwhile, the time to write it, the time to begin with it.

    python -m benchmarks.checkpoints [--gb 8] [--dense_gb 3.6] [--dir DIR] [--only sparse,dense] [--json FILE]

One server with AdaGrad and one trainer on this machine, a growing table or dense parameters. Needs memory for the state
and, for dense parameters, three times that; the disk of DIR needs twice the state. docs/checkpoints.md has figures.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def main() -> int:
    """Measure in a process that finds the package `paddle` before the script of that name."""
    path = {"PYTHONPATH": f"{ROOT / 'runtime'}{os.pathsep}{ROOT}"}
    argv = [sys.executable, "-P", "-m", "benchmarks.durable.measuring", *sys.argv[1:]]
    return subprocess.run(argv, env=os.environ | ONE_THREAD | path, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
