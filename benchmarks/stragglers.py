# SPDX-License-Identifier: Apache-2.0
"""Measures three trainers without servers, one of them slow, with the same number of samples: synchronous or not.

    python -m benchmarks.stragglers [--json FILE] [--quick] [--only steady,turns]

docs/collective.md explains each figure.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import machine
from benchmarks.arguments import parser
from benchmarks.collectives.sides import ROOT, free_endpoints
from benchmarks.report import Report, tell
from benchmarks.timing import Contender, interleave

CONFIGS: Mapping[str, dict[str, Any]] = {
    "summed": {},
    "local_sgd_4": {"k_steps": 4},
    "asynchronous": {"sync_mode": False},
    "asynchronous_4": {"sync_mode": False, "k_steps": 4},
}
_STEP_S = 0.02
_TIMES = 4  # a slow step takes this many times the duration of a step
_TURN_S = 300.0
Pauses = list[list[float]]


@dataclass(frozen=True)
class Plan:
    """The amount of measurements.

    Attributes:
        turns: number of turns per side.
        batches: number of batches of all trainers together.
    """

    report: Report
    turns: int
    batches: int


def steady(batches: int, shared: bool) -> Pauses:
    """Return pauses with one trainer always slow; if shares may be unequal, each takes what it can."""
    slow = batches // 3 if shared else batches // (2 * _TIMES + 1)
    fast = (batches - slow) // 2
    return [[_STEP_S] * fast, [_STEP_S] * fast, [_STEP_S * _TIMES] * slow]


def turns(batches: int, shared: bool) -> Pauses:
    """Return pauses with another, randomly drawn trainer slow in every step; all have equal shares."""
    lots = random.Random(7)
    found: Pauses = [[], [], []]
    for _ in range(batches // 3):
        slow = lots.randrange(3)
        for rank, each in enumerate(found):
            each.append(_STEP_S * (_TIMES if rank == slow else 1))
    return found


def took(config: Mapping[str, Any], pauses: Pauses) -> float:
    """Run three trainers and return the seconds until the last one finished.

    Raises:
        RuntimeError: one failed; the message contains its last output.
    """
    everyone = free_endpoints(len(pauses))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    started = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.collectives.straggler"),
                json.dumps({"config": config, "pauses_s": mine}),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                **threads,
                "PYTHONPATH": f"{ROOT / 'runtime'}{os.pathsep}{ROOT}",
                "PADDLE_COLLECTIVE_TIMEOUT_S": "30",
                "PADDLE_TRAINER_ID": str(rank),
                "PADDLE_TRAINER_ENDPOINTS": ",".join(everyone),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, mine in enumerate(pauses)
    ]
    try:
        said = [each.communicate(timeout=_TURN_S) for each in started]
    finally:
        for each in started:
            each.kill()
            each.wait(_TURN_S)
    for each, (_, err) in zip(started, said, strict=True):
        if each.returncode:
            raise RuntimeError(err.strip().splitlines()[-1] if err.strip() else "a trainer failed")
    return max(float(out) for out, _ in said)


def _measure(name: str, delays: Callable[[int, bool], Pauses], plan: Plan) -> None:
    def run(config: Mapping[str, Any], turn: int) -> float:
        del turn
        return took(config, delays(plan.batches, config.get("sync_mode", True)))

    contenders = [Contender(f"{way}_{name}", partial(run, config)) for way, config in CONFIGS.items()]
    found, failed = interleave(contenders, plan.turns)
    plan.report.add_all(found, failed, "s")
    for way in CONFIGS:
        if way != "summed":
            plan.report.compare(f"{way}_{name}_vs_summed", f"{way}_{name}", f"summed_{name}")


MEASUREMENTS: Mapping[str, Callable[[Plan], None]] = {
    "steady": partial(_measure, "steady", steady),
    "turns": partial(_measure, "turns", turns),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    given = parser("benchmarks.stragglers", __doc__, MEASUREMENTS).parse_args(argv)
    facts = machine.describe(("numpy",))
    plan = Plan(Report(tell=tell), 1 if given.quick else 3, 36 if given.quick else 450)
    for name in given.only:
        tell(f"benchmarks.stragglers: {name} ...")
        MEASUREMENTS[name](plan)
    plan.report.show(facts, given.json, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
