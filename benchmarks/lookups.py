# SPDX-License-Identifier: Apache-2.0
"""How long a lookup of 1,000 rows takes by `paddle serve` while a job trains, beside MGET of Redis in the same window.

    python -m benchmarks.lookups [--ids 200000] [--lookups 2000] [--json FILE] [--quick]

Rows of 16 floats, Zipf ids; a trainer pushes 4,096 rows a batch all the time. Redis needs redis-server and, in this
Python, the package redis with hiredis.
"""

from __future__ import annotations

import sys

from benchmarks import machine

if __name__ == "__main__":
    sys.exit(machine.run_module("benchmarks.tables.looking_up"))
