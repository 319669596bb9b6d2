# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a checkpoint of a large shard: slower training, the time to write it, the time to resume.

    python -m benchmarks.checkpoints [--gb 8] [--dense_gb 3.6] [--dir DIR] [--only sparse,dense] [--rounds 1]
                                     [--json FILE]

With --rounds=5, training continues for five checkpoints, alternating pushes during and between them: on a shared
machine, `kept` is then more reliable.

One server with AdaGrad and one trainer on this machine, a growing table or dense parameters. Needs memory for the state
and, for dense parameters, three times that; the disk of DIR needs twice the state. docs/checkpoints.md has figures.
"""

from __future__ import annotations

import sys

from benchmarks import machine

if __name__ == "__main__":
    sys.exit(machine.run_module("benchmarks.durable.measuring"))
