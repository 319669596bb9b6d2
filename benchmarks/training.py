# SPDX-License-Identifier: Apache-2.0
"""Measures one training process: the book's word2vec, and the cost of an operator, compared with PyTorch and numpy.

    python -m benchmarks.training [--json FILE] [--quick] [--only NAME,...] [--peers_python PYTHON] [--gpu]

One thread on every side, and two for pictures; with --gpu, both sides compute on GPU 0.
docs/benchmarks-training.md explains each figure.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks import machine
from benchmarks.arguments import add_peers_python, parser
from benchmarks.learning import work
from benchmarks.report import Report, tell
from benchmarks.timing import Contender, interleave

PACKAGES = ("numpy",)
BATCHES = (32, 512)
# Number of samples, or runs of the chain, per turn.
_SAMPLES, _CHAINS = 16_384, 200
_STEPS = {"lenet": 20, "resnet20": 5, "vgg16": 2, "lstm": 10, "decoder": 10}
_GPU_STEPS = 5  # times as many steps per turn
_ROOT = Path(__file__).resolve().parents[1]
_START_S, _TURN_S, _STOP_S = 300.0, 120.0, 10.0  # torch.compile is slow
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_POLLING = "OPENBLAS_THREAD_TIMEOUT"  # as in jobs


@dataclass(frozen=True)
class Plan:
    """The amount of measurements.

    Attributes:
        turns: number of turns per side.
        scale: the work per turn is multiplied by this factor.
        peers_python: the interpreter that has the peers.
        device: arguments of both sides, empty or `--gpu`.
    """

    report: Report
    turns: int
    scale: float
    peers_python: str
    device: tuple[str, ...] = ()


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


def _network(name: str) -> Callable[[Plan], None]:
    batch = work.PICTURES[name][0] if name in work.PICTURES else work.SENTENCES

    def measure(plan: Plan) -> None:
        steps = max(int(_STEPS[name] * plan.scale), 1)
        for threads in (1, 2) if name in work.PICTURES and not plan.device else (1,):
            at = f"{name}_t{threads}"
            sides = {
                f"{at}_ours": (sys.executable, ["ours", name]),
                f"{at}_torch": (plan.peers_python, ["torch_peer", name]),
            }
            told = _contest(
                plan, sides, steps, lambda turn: batch * steps / turn["wall_s"], "samples/s", threads
            )
            for side, turns in told.items():
                plan.report.add(f"{side}_cpu", min(turn["cpu_s"] for turn in turns) / steps * 1e3, "ms/step")
                plan.report.add(
                    f"{side}_least", min(turn["wall_s"] for turn in turns) / steps * 1e3, "ms/step"
                )
            for figure in ("", "_least", "_cpu"):
                plan.report.compare(f"{at}{figure}_vs_torch", f"{at}_ours{figure}", f"{at}_torch{figure}")

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
    threads: int = 1,
) -> dict[str, list[dict[str, Any]]]:
    """Run sides in turns; return each side's reports of its turns, the first of which is a warm-up."""
    told: dict[str, list[dict[str, Any]]] = {}
    with contextlib.ExitStack() as stack:
        contenders = []
        for name, (python, argv) in sides.items():
            try:
                child = stack.enter_context(Child(python, [*argv, *plan.device], threads))
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
    **{name: _network(name) for name in _STEPS},
    **{f"word2vec_{batch}": _word2vec(batch) for batch in BATCHES},
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    arguments = parser("benchmarks.training", __doc__, MEASUREMENTS)
    add_peers_python(arguments, "PyTorch")
    arguments.add_argument("--gpu", action="store_true", help="compute on GPU 0 instead of the CPU")
    given = arguments.parse_args(argv)
    facts = machine.describe(PACKAGES)
    quick = given.quick
    plan = Plan(
        Report(tell=tell),
        1 if quick else 9,
        (0.05 if quick else 1.0) * (_GPU_STEPS if given.gpu else 1),
        given.peers_python,
        ("--gpu",) * given.gpu,
    )
    for name in given.only:
        tell(f"benchmarks.training: {name} ...")
        MEASUREMENTS[name](plan)
    plan.report.show(facts, given.json, given.plot)
    return 0


class Child:
    """A side's process; a context manager."""

    def __init__(self, python: str, argv: Sequence[str], threads: int) -> None:
        """Start the process and wait until it is ready.

        Args:
            python: the interpreter.
            argv: a module of `benchmarks.learning` and its arguments.
            threads: number of threads.

        Raises:
            RuntimeError: it did not become ready; the message contains its last output.
        """
        path = os.pathsep.join([str(_ROOT), str(_ROOT / "runtime")])
        env = {**os.environ, **dict.fromkeys(_THREADS, str(threads)), _POLLING: "14", "PYTHONPATH": path}
        self._what = f"{python} -m benchmarks.learning.{' '.join(argv)}"
        self._process = subprocess.Popen(
            [python, "-W", "ignore", "-m", f"benchmarks.learning.{argv[0]}", *argv[1:]],
            cwd=_ROOT,
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            self._line(_START_S)
        except RuntimeError:
            self.close()
            raise

    def steps(self, count: int) -> dict[str, Any]:
        """Run `count` steps in the process; return the result of `work.take_turns`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._line(_TURN_S))
        return told

    def close(self) -> None:
        """End the process."""
        process = self._process
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _line(self, limit_s: float) -> str:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if not select.select([self._process.stdout], [], [], limit_s)[0]:
            self._process.kill()
            raise RuntimeError(f"{self._what}: no output within {limit_s:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(_STOP_S)
            last = self._process.stderr.read().strip().splitlines()[-1:]
            raise RuntimeError(f"{self._what} ended: {' '.join(last)}")
        return line


if __name__ == "__main__":
    sys.exit(main())
