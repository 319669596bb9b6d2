# SPDX-License-Identifier: Apache-2.0
"""Campaigns: `PYTHONPATH=runtime python -m tests.fuzz --minutes=10 --seed=1 [entry ...]` attacks entry points.

A finding is printed with its smallest example, and ends the campaign of its entry; so do an example that takes
HANG_S, and memory that grows by more than GROWTH. Exit code: how many entries have findings.
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import sys
import time
import traceback

import hypothesis
from hypothesis import HealthCheck, settings

from tests.fuzz import job_attacks
from tests.fuzz.entries import ENTRIES, Entry

BATCH = 300  # examples of one seed
HANG_S = 60
GROWTH = 512 << 20  # bytes


def campaign(name: str, entry: Entry, seconds: float, seed: int) -> bool:
    """Attack one entry point; True when nothing was found."""
    began, count = time.monotonic(), 0
    before = _peak()

    def attack(example: object) -> None:
        nonlocal count
        count += 1
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        entry.attack(example)
        faulthandler.cancel_dump_traceback_later()

    while time.monotonic() - began < seconds:
        test = settings(
            max_examples=BATCH,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )(hypothesis.seed(seed)(hypothesis.given(entry.examples)(attack)))
        try:
            test()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
            faulthandler.cancel_dump_traceback_later()
            traceback.print_exception(error)
            _say(f"{name}: FOUND with seed {seed} after {count} examples")
            return not isinstance(error, Exception | BaseExceptionGroup)
        seed += 1
    grown = _peak() - before
    _say(
        f"{name}: {count} examples in {time.monotonic() - began:.0f} s, next seed {seed}, memory +{grown >> 20} MiB"
    )
    return grown <= GROWTH


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Read the words, run the campaigns one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Attack entry points.")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each entry")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("entry", nargs="*", help="all when left out: " + ", ".join(ENTRIES))
    given = parser.parse_args()
    names = given.entry or list(ENTRIES)
    try:
        clean = [campaign(name, ENTRIES[name], given.minutes * 60, given.seed) for name in names]
    finally:
        job_attacks.let_go()
    return clean.count(False)


if __name__ == "__main__":
    sys.exit(main())
