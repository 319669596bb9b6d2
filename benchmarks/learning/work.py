# SPDX-License-Identifier: Apache-2.0
"""The work of all sides, using only the standard library, since a peer may run in its own Python.

Model: a fifth word from four, one table of 32 numbers per word, 256 hidden units, softmax over 2,073 words, AdaGrad.
A chain of small operators: x = max(x + y, 0), 150 times, over 8 numbers.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

WORDS, WIDTH, HIDDEN, CONTEXT = 2073, 32, 256, 4
RATE = 3e-3
BATCHES = 16
PAIRS, LENGTH = 150, 8
# Network -> pictures per batch, and their shape.
PICTURES = {"lenet": (128, (1, 28, 28)), "resnet20": (128, (3, 32, 32)), "vgg16": (32, (3, 32, 32))}
PICTURE_RATE = 1e-2
# Lengths of sentences in words, evenly distributed; words in the table, and the width of word and state.
LENGTHS = {"lstm": (20, 100), "recurrent": (20, 100), "decoder": (10, 30)}
VOCABULARY, WORD_WIDTH, STATE, SENTENCES = 1000, 64, 128, 32
# CTC: sequences in a batch, the longest one in time steps, classes with the blank one, which is 0, and labels.
SEQUENCES, TIMES, CLASSES, LABELS, CTC_BATCHES = 16, 300, 40, 60, 4
SEED = 20261121
ON_GPU = "--gpu" in sys.argv


def windows(batch: int) -> list[tuple[list[list[int]], list[int]]]:
    """Return batches of (contexts, next words); word frequencies are as uneven as in text."""
    drawn = random.Random(SEED)
    weights = [1.0 / (rank + 3) for rank in range(WORDS)]
    result = []
    for _ in range(BATCHES):
        words = drawn.choices(range(WORDS), weights, k=batch * (CONTEXT + 1))
        rows = [words[at : at + CONTEXT + 1] for at in range(0, len(words), CONTEXT + 1)]
        result.append(([row[:-1] for row in rows], [row[-1] for row in rows]))
    return result


def sentences(name: str) -> list[list[list[int]]]:
    """Return batches of sentences, in which each word is a number."""
    drawn = random.Random(SEED)
    return [
        [drawn.choices(range(VOCABULARY), k=drawn.randint(*LENGTHS[name])) for _ in range(SENTENCES)]
        for _ in range(BATCHES)
    ]


def heard() -> list[list[tuple[list[list[float]], list[int]]]]:
    """Return batches of (scores of all classes at each time step, labels) for CTC."""
    drawn = random.Random(SEED)
    return [
        [
            (
                [
                    [drawn.gauss(0.0, 1.0) for _ in range(CLASSES)]
                    for _ in range(drawn.randint(TIMES // 2, TIMES))
                ],
                drawn.choices(range(1, CLASSES), k=LABELS),
            )
            for _ in range(SEQUENCES)
        ]
        for _ in range(CTC_BATCHES)
    ]


def place(fluid: Any) -> Any:
    """Return the place on which our side computes."""
    return fluid.CUDAPlace(0) if ON_GPU else fluid.CPUPlace()


def take_turns(step: Callable[[int], float]) -> None:
    """Print "ready" after a few steps; then take the number of steps on each line, and print their duration.

    Args:
        step: takes one step, given its number, and returns the cost.
    """
    done = 0
    for _ in range(3):
        step(done)
        done += 1
    print("ready", flush=True)
    for line in sys.stdin:
        cost = 0.0
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            cost = step(done)
            done += 1
        told = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu, "cost": cost}
        print(json.dumps(told), flush=True)
