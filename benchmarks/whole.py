# SPDX-License-Identifier: Apache-2.0
"""Measures the commands and steps that users wait for, each compared with its rivals at the same time.

    python -m benchmarks.whole [--json FILE] [--plot FILE.svg] [--write docs/benchmarks.md] [--turns N] [--quick]
                               [--only ROW,...] [--peers_python PYTHON] [--ps_lite_python PYTHON] [--congestion NAME]

A row that cannot run reports why. FILE of --json retains the rows that this run omits, so that rows can be measured one
by one. Hosts and a separate loopback need root. docs/benchmarks.md begins with the table.
"""

from __future__ import annotations

import sys

from benchmarks import machine

if __name__ == "__main__":
    sys.exit(machine.run_module("benchmarks.rows.program"))
