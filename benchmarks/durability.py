# SPDX-License-Identifier: Apache-2.0
"""Measures how much a `kill -9` of a parameter server delays a whole job, and checks that no data is lost.

    python -m benchmarks.durability [--kills 20] [--kills_a_job 4] [--seed 1] [--json FILE]

Two embedded nodes with a server and a trainer each, through paddle.py. Exits with 1 if a job did not end by itself
with code 0, ended with other bits, lost or repeated a push, or took longer than 5 s per kill; docs/checkpoints.md has
figures.

Judges what trainers observed while their servers were killed: every push is applied once, and none is undone.

Each trainer has its own counter in a vector on a server, and every push adds one to it. The answers therefore show the
server's history: of any two observed states, one contains all of the other.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks import machine
from benchmarks.durable.jobs import Jobs, Outcome
from benchmarks.report import Report, tell
from benchmarks.timing import Samples

A_KILL_COSTS_S = 5.0
STEPS, PAUSE_S = 120, 0.01
State = Sequence[float]


def measure(jobs: Jobs, report: Report, is_async: bool, args: argparse.Namespace) -> list[str]:
    """Run the jobs of one mode; return the errors."""
    mode = "async" if is_async else "sync"
    quiet = [jobs.run(is_async) for _ in range(2)]
    wrong = [f"{mode}, undisturbed: {text}" for each in quiet for text in judge(each, quiet[0], jobs.steps)]
    quiet_s = Samples(tuple(each.wall_s for each in quiet))
    report.add(f"{mode}_undisturbed", quiet_s, "s", "a complete job without kills")
    costs, left, seed = [], args.kills, args.seed
    while left > 0:
        kills = min(left, args.kills_a_job)
        found = jobs.run(is_async, seed, kills)
        texts = judge(found, quiet[0], jobs.steps)
        costs.append((found.wall_s - quiet_s.high) / max(found.kills, 1))
        if costs[-1] > args.a_kill_may_cost:
            texts.append(f"took {found.wall_s:.1f} s with {found.kills} kills")
        wrong += [f"{mode}, seed {seed}: {text}" for text in texts]
        tell(
            f"{mode}, seed {seed}: {found.kills} kills, {found.wall_s:.1f} s, {'; '.join(texts) or 'correct'}"
        )
        left, seed = left - max(found.kills, 1), seed + 1
    report.add(f"{mode}_kills", args.kills - left, "kills", "servers killed, at random moments")
    report.add(
        f"{mode}_a_kill_costs",
        Samples(tuple(costs)),
        "s",
        "extra time per kill, compared with the slower undisturbed job",
    )
    report.add(
        f"{mode}_wrong", len([text for text in wrong if text.startswith(mode)]), "errors", "expected 0"
    )
    return wrong


def judge(found: Outcome, quiet: Outcome, steps: int) -> list[str]:
    """Return the errors of a job, compared with an undisturbed one."""
    if found.code != 0 or not found.told:
        return [f"exit code {found.code}: ...{found.text[-2000:]}"]
    if "digest" in found.told[0]:
        digests = {each["digest"] for each in (*found.told, *quiet.told)}
        return [] if len(digests) == 1 else [f"the final parameters differ: {sorted(digests)}"]
    texts = []
    final = found.told[0]["final"]
    for name in found.told[0]["seen"]:
        texts += [
            f"{name}: {text}" for text in faults([t["seen"][name] for t in found.told], final[name], steps)
        ]
    return texts + ([f"rows: {final['rows']}"] if set(final["rows"]) != {float(steps)} else [])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    args = _parse(argv)
    facts = machine.describe(("numpy", "pyzmq"))
    report, wrong = Report(tell=tell), []
    with tempfile.TemporaryDirectory(prefix="paddle-durability-") as scratch:
        jobs = Jobs(Path(scratch), args.steps, PAUSE_S)
        for is_async in (False, True):
            wrong += measure(jobs, report, is_async, args)
    report.show(facts, args.json)
    for text in wrong:
        tell(f"WRONG: {text}")
    return 1 if wrong else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durability")
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="kill N servers in each mode")
    parser.add_argument("--kills_a_job", type=int, default=4, metavar="N")
    parser.add_argument(
        "--steps", type=int, default=STEPS, metavar="N", help="steps of each trainer in a job"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the random moments")
    parser.add_argument(
        "--a_kill_may_cost",
        type=float,
        default=A_KILL_COSTS_S,
        metavar="SECONDS",
        help="the most that a kill may add to a job",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    return parser.parse_args(argv)


def faults(seen: Sequence[Sequence[State]], final: State, pushes: int) -> list[str]:
    """Return the errors in the history of one vector; empty if there are none.

    Args:
        seen: for each trainer, the vector after each of its pushes.
        final: the vector after the last push of all.
        pushes: number of pushes per trainer.
    """
    found = [
        f"trainer {trainer}: {got:g} of {pushes} pushes are in the final state"
        for trainer, got in enumerate(final)
        if got != pushes
    ]
    for trainer, states in enumerate(seen):
        if len(states) != pushes:
            found.append(f"trainer {trainer}: {len(states)} answers to {pushes} pushes")
        found += [
            f"trainer {trainer}: push {number} was answered with {state[trainer]:g} of its pushes"
            for number, state in enumerate(states, 1)
            if state[trainer] != number
        ]
    found += [
        f"trainer {trainer}: {text}" for trainer, states in enumerate(seen) for text in _steps_back(states)
    ]
    everything = sorted(
        (tuple(state) for states in seen for state in states), key=lambda state: (sum(state), state)
    )
    found += [
        f"two trainers saw states that no order of pushes explains: {text}"
        for text in _steps_back(everything)
    ]
    return found


def _steps_back(states: Sequence[State]) -> list[str]:
    return [
        f"{list(before)} before {list(after)}"
        for before, after in pairwise(states)
        if any(one > other for one, other in zip(before, after, strict=True))
    ]


if __name__ == "__main__":
    sys.exit(main())
