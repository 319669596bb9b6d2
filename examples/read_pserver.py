# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""Prints the tensors on the servers of a running job, and how they change, until the job ends.

This script does not affect the trainers. It needs the job's endpoints and, if connections are encrypted, its key:

    PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:7164 PADDLE_WIRE=plain python examples/read_pserver.py
"""

import argparse
import time

import numpy as np

from paddle.errors import PserverLost
from paddle.pserver import Reader


def main():
    """Print the tensors once, then one line per poll."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--looks", type=int, default=0, help="number of reads; 0: until the servers exit")
    parser.add_argument("--every_s", type=float, default=1.0)
    args = parser.parse_args()

    with Reader.connect(patience_s=5.0) as reader:
        for name, tensor in reader.tensors.items():
            print(f"{name}: {f'rows by id, width {tensor.shape[1]}' if tensor.growing else tensor.shape}")
        out = {name: np.empty(t.shape, t.dtype) for name, t in reader.tensors.items() if not t.growing}
        look = 0
        while not args.looks or look < args.looks:
            try:
                version = reader.pull(out)
            except PserverLost:
                print("the servers have exited")
                return
            norms = ", ".join(f"|{name}| = {np.linalg.norm(value):.4g}" for name, value in out.items())
            print(f"batch {version}: {norms}", flush=True)
            look += 1
            time.sleep(args.every_s)


if __name__ == "__main__":
    main()
