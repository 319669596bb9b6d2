# SPDX-License-Identifier: Apache-2.0
"""Measures how fast PyTorch recommenders train with rows on a parameter server, compared with rows in the trainers.

    python -m benchmarks.recommender [--only one,three,wire,disk,criteo,avazu] [--ids 50000000] [--turns 10]
        [--samples 10000000] [--disk FOLDER] [--peers_python PYTHON] [--json FILE] [--quick]

8 fields of 1,024 Zipf IDs, rows of 16 floats, an MLP of 64; Adagrad for all. `one`: one trainer and one server against
`torch.nn.Embedding(sparse=True)`, and FBGEMM if that Python has it, in turns. 50 million IDs take 6.4 GB in a process
that has all rows. `three`: three trainers against DDP by gloo, with a tenth of the IDs. `wire`: encrypted against plain
TCP. `disk`: a server with memory for a quarter of the rows, and the others on disk, against one with all in memory,
with a tenth of the IDs. `criteo`, `avazu`: DLRM on repeated clicks from `../shared/data/ctr`, with costs and AUC.
"""

from __future__ import annotations

import sys

from benchmarks import machine

if __name__ == "__main__":
    sys.exit(machine.run_module("benchmarks.tables.recommending"))
