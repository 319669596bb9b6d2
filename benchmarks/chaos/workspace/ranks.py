# SPDX-License-Identifier: Apache-2.0
"""A collective program whose ranks sum arrays in step; a rank that finds `leave-RANK` ends with exit code 0.

--batches=N    steps of each of three passes
--places=DIR   where `beats-RANK` grows by one byte per step, and where `leave-RANK` may appear
"""

import os
import sys

import numpy as np

from paddle import collective

flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
with collective.connect(collective.Membership.of_environment()) as group:
    beats, leave = (os.path.join(flags["places"], f"{name}-{group.rank}") for name in ("beats", "leave"))
    for step in range(3 * int(flags["batches"])):
        if os.path.exists(leave):
            os._exit(0)  # like a rank whose data ended: without leaving its group properly
        total = np.full(1000, step, np.float32)
        group.all_reduce([total])
        if total[0] != step * group.size:
            raise ValueError(f"step {step}: the sum is {total[0]}")
        with open(beats, "ab") as file:
            file.write(b".")
