# SPDX-License-Identifier: Apache-2.0
"""How fast one server's growing table looks up and updates rows, what it takes, and how long growing stops it.

    python -m benchmarks.sparse [--rows 10000000] [--turns 20] [--peers_python PYTHON] [--json FILE] [--quick]

64 floats a row, AdaGrad, batches of 50,000 ids, one thread; docs/sparse-tables.md says what each figure means. Needs
about 6 GB for 10 million rows, and as much again for each peer, one after the other.
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
    argv = [sys.executable, "-P", "-m", "benchmarks.tables.measuring", *sys.argv[1:]]
    return subprocess.run(argv, env=os.environ | ONE_THREAD | path, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
