# SPDX-License-Identifier: Apache-2.0
"""Measures one server's growing table: lookups and updates, memory, and interruptions while it grows.

    python -m benchmarks.sparse [--rows 10000000] [--turns 20] [--peers_python PYTHON] [--json FILE] [--quick]

64 floats per row, AdaGrad, batches of 50,000 IDs, one thread; docs/sparse-tables.md explains each figure. Needs about
6 GB for 10 million rows, and the same again for each peer, one after the other.
"""

from __future__ import annotations

import sys

from benchmarks import machine

if __name__ == "__main__":
    sys.exit(machine.run_module("benchmarks.tables.measuring"))
