# SPDX-License-Identifier: Apache-2.0
"""How fast a small recommender by PyTorch trains with its rows on a parameter server, beside rows in its own process.

    python -m benchmarks.recommender [--ids 50000000] [--turns 10] [--peers_python PYTHON] [--json FILE] [--quick]

8 fields of 1,024 Zipf ids, rows of 16 floats, an MLP of 64; Adagrad for all. One trainer and one server against
`torch.nn.Embedding(sparse=True)`, in turns. 50 million ids take 6.4 GB in the process that has all rows.
"""

from __future__ import annotations

import sys

from benchmarks import machine

if __name__ == "__main__":
    sys.exit(machine.run_module("benchmarks.tables.recommending"))
