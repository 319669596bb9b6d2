# SPDX-License-Identifier: Apache-2.0
"""Measures a lookup of 1,000 rows by `paddle serve` while a job trains, compared with MGET of Redis.

    python -m benchmarks.lookups [--ids 200000] [--lookups 2000] [--json FILE] [--quick]

Rows of 16 floats, Zipf IDs, both sides in the same window; a trainer continuously pushes batches of 4,096 rows. Redis
needs redis-server and, in this Python, the package redis with hiredis.
"""

from __future__ import annotations

import sys

from benchmarks import machine

if __name__ == "__main__":
    sys.exit(machine.run_module("benchmarks.tables.looking_up"))
