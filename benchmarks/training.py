# SPDX-License-Identifier: Apache-2.0
"""How fast one process trains: word2vec as the book has it, and what an operator costs, beside PyTorch and plain numpy.

    python -m benchmarks.training [--json FILE] [--quick] [--only NAME,...] [--peers_python PYTHON]

One thread on every side. docs/benchmarks-training.md says what each figure means.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import machine
from benchmarks.arguments import add_peers_python, parser
from benchmarks.learning import work
from benchmarks.learning.child import Child
from benchmarks.report import Report, tell
from benchmarks.timing import Contender, interleave

PACKAGES = ("numpy", "numba")
BATCHES = (32, 512)
# So many samples, or runs of the chain, a turn.
_SAMPLES, _CHAINS = 16_384, 200


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
        turns: of each side.
        scale: turns do this share of their full work.
        peers_python: the interpreter that has the peers.
    """

    report: Report
    turns: int
    scale: float
    peers_python: str


def _word2vec(batch: int) -> Callable[[Plan], None]:
    def measure(plan: Plan) -> None:
        steps = max(int(_SAMPLES * plan.scale) // batch, 1)
        at = f"word2vec_b{batch}"
        sides = {
            f"{at}_ours": (sys.executable, ["ours", "word2vec", str(batch)]),
            f"{at}_torch": (plan.peers_python, ["torch_peer", "word2vec", str(batch)]),
        }
        told = _contest(plan, sides, steps, lambda turn: batch * steps / turn["wall_s"], "samples/s")
        for name, turns in told.items():
            plan.report.add(f"{name}_cpu", min(turn["cpu_s"] for turn in turns) / steps * 1e3, "ms/step")
            plan.report.add(f"{name}_cost", turns[-1]["cost"], "", f"after {len(turns) * steps} steps")
        plan.report.compare(f"{at}_vs_torch", f"{at}_ours", f"{at}_torch")
        plan.report.compare(f"{at}_cpu_vs_torch", f"{at}_ours_cpu", f"{at}_torch_cpu")

    return measure


def _operators(plan: Plan) -> None:
    runs = max(int(_CHAINS * plan.scale), 1)
    count = 2 * work.PAIRS * runs
    sides = {
        "operator_ours": (sys.executable, ["ours", "operators"]),
        "operator_numpy": (sys.executable, ["plain_numpy"]),
        "operator_torch": (plan.peers_python, ["torch_peer", "operators"]),
    }
    told = _contest(plan, sides, runs, lambda turn: turn["wall_s"] / count * 1e6, "us")
    if {"operator_ours", "operator_numpy"} <= told.keys():
        ours, plain = (min(turn["cpu_s"] for turn in told[f"operator_{side}"]) for side in ("ours", "numpy"))
        plan.report.add(
            "operator_overhead", (ours - plain) / count * 1e6, "us", "least CPU time, less numpy's"
        )
    plan.report.compare("operator_vs_numpy", "operator_ours", "operator_numpy")
    plan.report.compare("operator_vs_torch", "operator_ours", "operator_torch")


def _contest(
    plan: Plan,
    sides: Mapping[str, tuple[str, Sequence[str]]],
    steps: int,
    measured: Callable[[dict[str, Any]], float],
    unit: str,
) -> dict[str, list[dict[str, Any]]]:
    """Let sides take turns; return what each told of its turns, the first of which warms up."""
    told: dict[str, list[dict[str, Any]]] = {}
    with contextlib.ExitStack() as stack:
        contenders = []
        for name, (python, argv) in sides.items():
            try:
                child = stack.enter_context(Child(python, argv))
            except (RuntimeError, OSError) as error:
                plan.report.lack(name, str(error))
                continue

            def run(turn: int, name: str = name, child: Child = child) -> float:
                found = child.steps(steps)
                told.setdefault(name, []).append(found)
                return measured(found)

            contenders.append(Contender(name, run))
        found, failed = interleave(contenders, plan.turns, warm_up=True)
    plan.report.add_all(found, failed, unit)
    return {name: turns for name, turns in told.items() if name in found}


MEASUREMENTS: Mapping[str, Callable[[Plan], None]] = {
    "operators": _operators,
    **{f"word2vec_{batch}": _word2vec(batch) for batch in BATCHES},
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    arguments = parser("benchmarks.training", __doc__, MEASUREMENTS)
    add_peers_python(arguments, "PyTorch")
    given = arguments.parse_args(argv)
    facts = machine.describe(PACKAGES)
    quick = given.quick
    plan = Plan(Report(tell=tell), 1 if quick else 9, 0.05 if quick else 1.0, given.peers_python)
    for name in given.only:
        tell(f"benchmarks.training: {name} ...")
        MEASUREMENTS[name](plan)
    plan.report.show(facts, given.json, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
