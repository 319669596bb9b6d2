# SPDX-License-Identifier: Apache-2.0
"""Takes orders in a trainer process of a benchmark: reads a number of steps, and prints when they began and ended.

Times are from the system's monotonic clock, so that those of several processes are comparable: steps of several
trainers last from the first begin to the last end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

LEARNING_RATE = 0.01
Step: TypeAlias = Callable[[], None]


def take_turns(step: Step) -> None:
    """Report that the step is ready, then execute each order, a number of steps, until standard input ends."""
    for _ in orders():
        step()


def orders() -> Iterator[None]:
    """Do the same as `take_turns` if the loop over steps is external: yield once per step.

    A step ends when the next item is requested. Process IDs may follow the number of steps: then "spent" has, for each
    step, two numbers per process, the seconds that all its threads computed and waited for a core.
    """
    print("ready", flush=True)
    for line in sys.stdin:
        count, *pids = map(int, line.split())
        watched, took, spent = [Threads(pid) for pid in pids], [], []
        begun = time.monotonic()
        for _ in range(count):
            before = [each.spent() for each in watched]
            at = time.monotonic()
            yield
            took.append(time.monotonic() - at)
            if watched:
                now = [each.spent() for each in watched]
                spent.append((np.subtract(now, before) / 1e9).ravel().tolist())
        told = {"begun": begun, "ended": time.monotonic(), "took": took, "spent": spent}
        print(json.dumps(told), flush=True)
        for each in watched:
            each.close()


def use_key(key: str | None) -> None:
    """Use the key of a job, as if the launcher had set it for this process."""
    if key is not None:
        os.environ["PADDLE_JOB_KEY"] = key


class Threads:
    """The current threads of a process, provided that they persist."""

    def __init__(self, pid: int) -> None:
        self._files = [
            os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
        ]

    def spent(self) -> npt.NDArray[np.int64]:
        """Return (2,) ns that they have computed, and waited for a core, since their start."""
        read = [os.pread(each, 64, 0).split()[:2] for each in self._files]
        total: npt.NDArray[np.int64] = np.array(read, np.int64).sum(axis=0)
        return total

    def close(self) -> None:
        """Stop observing."""
        for each in self._files:
            os.close(each)
