# SPDX-License-Identifier: Apache-2.0
"""Measures how much one trainer at a quarter of the speed slows down whole jobs with parameter servers.

    python -m benchmarks.asynchronous [--json FILE] [--quick] [--only resnet_50,200m]

Two servers and three trainers on three nodes of this machine, started by paddle.py with default settings. The 200
million parameters need 12 GB of memory. docs/benchmarks-pserver.md explains each figure.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.arguments import parser
from benchmarks.report import Report, tell
from benchmarks.timing import Contender, interleave

ROOT = Path(__file__).resolve().parents[1]
WORKSPACE = Path(__file__).with_name("serving") / "straggler_workspace"
_SLOWNESS = 4
_LIMIT_S = 570.0
_DISCARDED = re.compile(r"^.*gradients were discarded as too old.*$", re.MULTILINE)
# name -> (whether it is asynchronous, slowdown factor of the last trainer)
WAYS: Mapping[str, tuple[int, int]] = {
    "alike": (1, 1),
    "slow": (1, _SLOWNESS),
    "synchronous_slow": (0, _SLOWNESS),
}


@dataclass(frozen=True)
class Plan:
    """The amount of measurements.

    Attributes:
        turns: number of turns per way.
        steps: number of steps of each fast trainer.
    """

    report: Report
    turns: int
    steps: int


def run(model: str, steps: int, is_async: int, slowness: int) -> tuple[list[dict[str, Any]], str]:
    """Run a whole job; return the records of trainers by rank, and the discard counts that the job reported at its
    end.

    Raises:
        RuntimeError: it failed; the message contains its last lines.
    """
    with tempfile.TemporaryDirectory(prefix="asynchronous-") as scratch:
        place = Path(scratch)
        (place / "conf.py").write_text(
            f"HOSTS = ['local'] * 3\nROOT_DIR = {str(place / 'nodes')!r}\nPSERVERS = [0, 1]\n"
        )
        workspace = place / "ws"
        shutil.copytree(WORKSPACE, workspace, ignore=shutil.ignore_patterns("__pycache__"))
        done = subprocess.run(
            [
                *(sys.executable, str(ROOT / "paddle.py"), f"--job_dispatch_package={workspace}"),
                *(f"--conf={place / 'conf.py'}", "--", model, str(steps), str(is_async), str(slowness)),
            ],
            cwd=place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
        if done.returncode:
            raise RuntimeError(" | ".join(done.stdout.strip().splitlines()[-8:]))
        told = [json.loads(path.read_bytes()) for path in sorted((workspace / "log").rglob("trainer-*.json"))]
        discarded = _DISCARDED.search(done.stdout)
        return told, discarded.group().strip() if discarded else "no gradients were discarded"


def _measure(model: str, plan: Plan) -> None:
    said: dict[str, str] = {}
    distances: dict[str, float] = {}

    def took(way: str, turn: int) -> float:
        del turn
        told, said[way] = run(model, plan.steps, *WAYS[way])
        distances[way] = max(each["distance"] for each in told)
        tell(f"{model} {way}: {told}")
        return max(float(each["wall_s"]) / int(each["steps"]) for each in told[:2])

    contenders = [Contender(f"{model}_{way}", partial(took, way)) for way in WAYS]
    found, failed = interleave(contenders, plan.turns)
    notes = {f"{model}_{way}": f"a step of the fast trainers; {said[way]}" for way in said}
    plan.report.add_all(found, failed, "s", notes)
    for way, distance in distances.items():
        plan.report.add(f"{model}_{way}_distance", distance, "", "to the optimum; 1 at the beginning")
    plan.report.compare(f"{model}_slow_vs_alike", f"{model}_slow", f"{model}_alike")
    plan.report.compare(f"{model}_slow_vs_synchronous", f"{model}_slow", f"{model}_synchronous_slow")


MEASUREMENTS: Mapping[str, Callable[[Plan], None]] = {
    model: partial(_measure, model) for model in ("resnet_50", "200m", "small")
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    given = parser("benchmarks.asynchronous", __doc__, MEASUREMENTS).parse_args(argv)
    plan = Plan(Report(tell=tell), 1 if given.quick else 3, 6 if given.quick else 30)
    for name in given.only:
        tell(f"benchmarks.asynchronous: {name} ...")
        MEASUREMENTS[name](plan)
    plan.report.show(machine.describe(("numpy", "zmq")), given.json, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
