# SPDX-License-Identifier: Apache-2.0
"""How fast one server's growing table looks up and updates rows, what it takes, and how long growing stops it.

    python -m benchmarks.sparse [--rows 10000000] [--turns 20] [--peers_python PYTHON] [--json FILE] [--quick]

64 floats a row, AdaGrad, batches of 50,000 ids, one thread; docs/sparse-tables.md says what each figure means. Needs
about 6 GB for 10 million rows, and as much again for each peer, one after the other.
"""

from __future__ import annotations

import sys

from benchmarks import machine

if __name__ == "__main__":
    sys.exit(machine.run_module("benchmarks.tables.measuring"))
