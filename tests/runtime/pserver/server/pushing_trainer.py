# SPDX-License-Identifier: Apache-2.0
"""A trainer in a process of its own that stops in the middle of a push and waits to be told to go on.

    python -m tests.runtime.pserver.server.pushing_trainer

It reads jobs, a line of JSON each: the keys are the arguments of `train`. It prints a line at each step, "halfway" when
it has sent `stop_at` chunks of its first push, "over" when it left; after "halfway" and after the last step it reads a
line before it goes on.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator

import numpy as np

from paddle.pserver.client.request import Request
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import Verb
from tests.runtime.pserver.push_ports import BITS, Way, asynchronous, parameters, start_values


@contextlib.contextmanager
def stopping_after(count: int) -> Iterator[None]:
    """Let the first push within it stop once so many chunks were made; 0: none stops."""
    plain = Request._message
    made = 0

    def counted(transfer: Request, index: int) -> Message:
        nonlocal made
        message = plain(transfer, index)
        if message.verb is Verb.CHUNK and message.sections:
            made += 1
            if made == count:
                tell("halfway")
                sys.stdin.readline()
        return message

    Request._message = counted  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Request._message = plain  # type: ignore[method-assign]


def tell(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def train(
    way: Way, trainer: int, trainers: int, *, size: int, is_async: bool, steps: int, stop_at: int
) -> None:
    """Train from the first step to the last; the gradient of step s is 2^(s * trainers + trainer) everywhere."""
    with way.client(trainer, trainers) as client:
        client.configure(parameters(size), asynchronous() if is_async else BITS, start_values(size))
        client.start_pass()
        out = {"w": np.zeros(size, np.float32)}
        with stopping_after(stop_at):
            for step in range(steps):
                client.push_pull({"w": np.full(size, 1 << step * trainers + trainer, np.float32)}, 1, out)
                tell(f"step {step}: {np.unique(out['w']).tolist()}")
        sys.stdin.readline()
        client.pull(out)
        tell(f"values {np.unique(out['w']).tolist()}")


def main() -> None:
    """Do one job after the other, until there is no more input."""
    while line := sys.stdin.readline():
        job = json.loads(line)
        train(Way(*job.pop("way")), **job)
        tell("over")


if __name__ == "__main__":
    main()
