# SPDX-License-Identifier: Apache-2.0
"""What users wait for, whole commands and whole steps, each beside its rivals in the same window.

    python -m benchmarks.whole [--json FILE] [--plot FILE.svg] [--write docs/benchmarks.md] [--turns N] [--quick]
                               [--only ROW,...] [--peers_python PYTHON] [--ps_lite_python PYTHON] [--congestion NAME]

A row that cannot be run says why. FILE of --json keeps the rows that this run leaves out, so that rows may be measured
one by one. Hosts and a loopback of one's own need root. docs/benchmarks.md begins with the table.
"""

from __future__ import annotations

import sys

from benchmarks import machine

if __name__ == "__main__":
    sys.exit(machine.run_module("benchmarks.rows.program"))
