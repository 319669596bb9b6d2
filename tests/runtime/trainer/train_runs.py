# SPDX-License-Identifier: Apache-2.0
"""Configurations as programs of 2016 have them, tiny, with their data; and `paddle train` within this process."""

from __future__ import annotations

import logging
import random
import re
from pathlib import Path

from paddle.env import JobEnvironment
from paddle.trainer import command

WORDS = [f"w{number}" for number in range(20)]


def write_sentences(folder: Path, train: int = 96, test: int = 32) -> None:
    """Lists and files of labelled sentences: label 1 has the word "good" in it, label 0 the word "bad"."""
    draw = random.Random(3)
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data/dict.txt").write_text("\n".join([*WORDS, "good", "bad"]))
    for name, count in (("train", train), ("test", test)):
        rows = []
        for _ in range(count):
            label = draw.randrange(2)
            words = [*draw.choices(WORDS, k=draw.randint(2, 6)), ("bad", "good")[label]]
            draw.shuffle(words)
            rows.append(f"{label}\t{' '.join(words)}\n")
        (folder / f"data/{name}.txt").write_text("".join(rows))
        (folder / f"data/{name}.list").write_text(f"data/{name}.txt\n")


def train(*flags: str) -> int:
    """Run `paddle train` with some flags; return its exit code."""
    log = logging.getLogger("paddle")
    return command.run(["--dot_period=0", "--log_period=0", *flags], JobEnvironment.read({}), log)


def costs(lines: list[str]) -> list[float]:
    """The average cost of each pass, from the lines of the log."""
    return [float(found[1]) for line in lines if (found := re.search(r" Pass=\d+ .*AvgCost=(\S+)", line))]
