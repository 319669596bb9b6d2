# SPDX-License-Identifier: Apache-2.0
"""A trainer in a process of its own that stops in the middle of a push and waits to be told to go on.

    python -m tests.runtime.pserver.server.pushing_trainer ENDPOINT TRAINER TRAINERS SIZE WIRE NODE ASYNC STEPS STOP_AT

It prints a line at each step, and "halfway" when it has sent `STOP_AT` chunks of its first push; then it reads a line.
"""

from __future__ import annotations

import sys

import numpy as np

from paddle.pserver.client.transfer import Transfer
from paddle.pserver.wire.message import Message, Verb
from tests.runtime.pserver.push_ports import BITS, Way, asynchronous, parameters, start_values


def stop_after(count: int) -> None:
    """Let the next push of several chunks stop once so many were made."""
    plain = Transfer._message
    made = 0

    def counted(transfer: Transfer, index: int) -> Message:
        nonlocal made
        message = plain(transfer, index)
        if message.verb is Verb.CHUNK and message.sections:
            made += 1
            if made == count:
                tell("halfway")
                sys.stdin.readline()
        return message

    Transfer._message = counted  # type: ignore[method-assign,assignment]


def tell(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Train as the arguments say; the gradient of step s is 2^(s * TRAINERS + TRAINER) everywhere."""
    endpoint, wire, node = arguments[0], arguments[4], arguments[5]
    trainer, trainers, size, steps, stop_at = (int(arguments[i]) for i in (1, 2, 3, 7, 8))
    way = Way(endpoint, wire == "curve", node == "node")
    optimizer = asynchronous() if arguments[6] == "async" else BITS
    with way.client(trainer, trainers) as client:
        client.configure(parameters(size), optimizer, start_values(size))
        client.start_pass()
        if stop_at:
            stop_after(stop_at)
        out = {"w": np.zeros(size, np.float32)}
        for step in range(steps):
            client.push_pull({"w": np.full(size, 1 << step * trainers + trainer, np.float32)}, 1, out)
            tell(f"step {step}")
        sys.stdin.readline()
        client.pull(out)
        tell(f"values {np.unique(out['w']).tolist()}")


if __name__ == "__main__":
    main(sys.argv[1:])
