# SPDX-License-Identifier: Apache-2.0
"""How a trainer process of a benchmark takes orders: a number of steps in, a line with begin and end out.

Times are of the system's monotonic clock, so that those of several processes compare: steps of several trainers last
from the first begin to the last end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

LEARNING_RATE = 0.01
Step: TypeAlias = Callable[[], None]


def take_turns(step: Step) -> None:
    """Say that the step is ready, then answer each order, a number of steps, until standard input ends."""
    for _ in orders():
        step()


def orders() -> Iterator[None]:
    """Do what `take_turns` does where the loop over steps is another's: yield once for each step.

    A step is over when the next item is asked for.
    """
    print("ready", flush=True)
    for line in sys.stdin:
        took = []
        begun = time.monotonic()
        for _ in range(int(line)):
            at = time.monotonic()
            yield
            took.append(time.monotonic() - at)
        print(json.dumps({"begun": begun, "ended": time.monotonic(), "took": took}), flush=True)
