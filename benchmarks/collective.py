# SPDX-License-Identifier: Apache-2.0
"""Measures how long ranks take to sum arrays, compared with torch.distributed (gloo) and MPI, on one machine.

    python -m benchmarks.collective [--json FILE] [--quick] [--only NAME,...] [--peers_python PYTHON]
                                    [--congestion NAME]

Float32, one thread per rank; TCP with one congestion control for all, that of the machine or the named one, which needs
root and a separate loopback for the run. docs/benchmarks-collective.md explains each figure.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks import machine
from benchmarks.arguments import add_peers_python, parser
from benchmarks.collectives.sides import OUR_PYTHON, Ranks, installed
from benchmarks.report import Report, tell
from benchmarks.rows.loopback import congestion, own_loopback
from benchmarks.serving.measuring import mixed_sizes
from benchmarks.timing import Contender, interleave

SIZES = {"4KB": 4 << 10, "1MB": 1 << 20, "40MB": 40_000_000}
RANKS = (2, 4)
OURS = ("node", "tcp", "sealed")
PEERS = {"gloo": "torch", "mpi": "mpi4py"}
_TURN_BYTES = 200_000_000
_MAX_STEPS = 500


@dataclass(frozen=True)
class Plan:
    """The number and size of measurements.

    Attributes:
        turns: number of turns per side.
        scale: large sizes are multiplied by this factor.
        peers_python: the Python that may have torch and mpi4py.
    """

    report: Report
    turns: int
    scale: float
    peers_python: str

    def size(self, full: int) -> int:
        """Return the bytes of an array that is `full` at full scale; small ones are not scaled."""
        return full if full < 1 << 20 else max(int(full * self.scale) // 4096, 1) * 4096

    def steps(self, nbytes: int) -> int:
        """Return the number of steps per turn."""
        return max(3, min(_MAX_STEPS, int(_TURN_BYTES * self.scale) // nbytes))


def _size(name: str) -> Callable[[Plan], None]:
    def measure(plan: Plan) -> None:
        sizes = [plan.size(SIZES[name])]
        for count in RANKS:
            with _sides(plan, count, (*OURS, *PEERS), name) as sides:
                figures = {f"{way}_{name}_r{count}": (side, sizes) for way, side in sides.items()}
                _in_turns(plan, figures)
            at = f"{name}_r{count}"
            plan.report.compare(f"node_{at}_vs_mpi", f"node_{at}", f"mpi_{at}")
            plan.report.compare(f"tcp_{at}_vs_gloo", f"tcp_{at}", f"gloo_{at}")
            plan.report.compare(f"node_{at}_vs_gloo", f"node_{at}", f"gloo_{at}")
            plan.report.compare(f"sealed_{at}_vs_gloo", f"sealed_{at}", f"gloo_{at}")
            plan.report.compare(f"sealed_{at}_vs_tcp", f"sealed_{at}", f"tcp_{at}")

    return measure


def _mixed(plan: Plan) -> None:
    sizes = mixed_sizes(plan.size(SIZES["40MB"]))
    one = [sum(sizes)]
    with _sides(plan, 2, ("node", "tcp", *PEERS), "mixed") as sides:
        figures = {f"{way}_100_arrays": (side, sizes) for way, side in sides.items()}
        figures |= {f"{way}_one_array": (side, one) for way, side in sides.items()}
        _in_turns(plan, figures)
    for way in ("node", "tcp", *PEERS):
        plan.report.compare(f"{way}_100_vs_one", f"{way}_100_arrays", f"{way}_one_array")


@contextlib.contextmanager
def _sides(plan: Plan, count: int, ways: Sequence[str], name: str) -> Iterator[dict[str, Ranks]]:
    with contextlib.ExitStack() as stack:
        sides: dict[str, Ranks] = {}
        for way in ways:
            python = plan.peers_python if way in PEERS else OUR_PYTHON
            try:
                if way in PEERS and not installed(python, PEERS[way]):
                    raise RuntimeError(f"{PEERS[way]} is not installed in {python}")
                sides[way] = stack.enter_context(Ranks(way, count, python))
            except (RuntimeError, OSError) as error:
                plan.report.lack(f"{way}_{name}_r{count}", str(error))
        yield sides


def _in_turns(plan: Plan, figures: Mapping[str, tuple[Ranks, Sequence[int]]]) -> None:
    """Report microseconds per step: the median of a turn's steps, of the slowest rank."""

    def took(side: Ranks, sizes: Sequence[int]) -> float:
        return max(map(statistics.median, side.steps(sizes, plan.steps(sum(sizes))))) * 1e6

    contenders = [
        Contender(name, lambda turn, side=side, sizes=sizes: took(side, sizes))  # type: ignore[misc]
        for name, (side, sizes) in figures.items()
    ]
    found, failed = interleave(contenders, plan.turns, warm_up=True)
    plan.report.add_all(found, failed, "us")


MEASUREMENTS: Mapping[str, Callable[[Plan], None]] = {
    **{name: _size(name) for name in SIZES},
    "mixed": _mixed,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    arguments = parser("benchmarks.collective", __doc__, MEASUREMENTS)
    add_peers_python(arguments, "torch and mpi4py")
    arguments.add_argument(
        "--congestion",
        default="",
        metavar="NAME",
        help="TCP congestion control of all sides: reno, bbr or cubic",
    )
    given = arguments.parse_args(argv)
    facts = machine.describe(("numpy",), {"mpirun": ("mpirun", "--version")})
    facts["tcp"] = given.congestion or congestion()
    plan = Plan(Report(tell=tell), 1 if given.quick else 7, 0.02 if given.quick else 1.0, given.peers_python)
    with own_loopback(given.congestion) if given.congestion else contextlib.nullcontext():
        for name in given.only:
            tell(f"benchmarks.collective: {name} ...")
            MEASUREMENTS[name](plan)
    plan.report.show(facts, given.json, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
