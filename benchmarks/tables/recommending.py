# SPDX-License-Identifier: Apache-2.0
"""Measures a recommender by PyTorch, its rows in its process and on a server: see `benchmarks.recommender`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from benchmarks import arguments, machine
from benchmarks.report import Report, tell
from benchmarks.tables.peers import Peer
from benchmarks.tables.recommender_side import BATCH, FIELDS, POOL, batch_of
from benchmarks.timing import Contender, Samples, interleave
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

KINDS = ("known", "coming")
_SAYS = {
    "known": "ms a step with rows that were there before",
    "coming": "ms a step while rows of new batches come",
}
_MODULE = "benchmarks.tables.recommender_side"


class _Size(NamedTuple):
    """How much is done: ids below which there are rows, steps of a turn, turns."""

    ids: int
    steps: int
    turns: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = _parse(argv)
    size = _Size(100_000, 5, 2) if given.quick else _Size(given.ids, given.steps, given.turns)
    report = Report(tell=tell)
    facts = machine.describe(("numpy",))
    distinct = [len(np.unique(batch_of((0, number), size.ids)[0])) for number in range(POOL)]
    report.add("distinct_ids", float(np.mean(distinct)), "ids", f"of the {BATCH * FIELDS} of a batch")
    try:
        measure(report, given.peers_python, size)
    except RuntimeError as error:
        for kind in KINDS:
            report.lack(kind, str(error))
    report.show(facts, given.json, given.plot)
    return 0


def measure(report: Report, python: str, size: _Size) -> None:
    """Let both sides take turns. Raises RuntimeError: that Python has no PyTorch, or a side ended."""
    with ExitStack() as stack:
        server = stack.enter_context(PserverProcess("--port=0", "--num_gradient_servers=1"))
        sides = {}
        for name, more in (("in_process", ()), ("servers", (KEY, *server.endpoints))):
            argv = [python, "-P", "-m", _MODULE, name, str(size.ids), *more]
            sides[name] = Peer(argv, "is PyTorch there? See --peers_python", {"PYTHONPATH": "runtime:."})
            stack.callback(sides[name].close)
        for kind in KINDS:
            contenders = [
                Contender(f"{name}_{kind}", _asking(side, f"{kind} {size.steps}"))
                for name, side in sides.items()
            ]
            found, failed = interleave(contenders, size.turns, warm_up=True)
            per_step = {
                name: Samples(tuple(1e3 * seconds / size.steps for seconds in samples.values))
                for name, samples in found.items()
            }
            report.add_all(per_step, failed, "ms", dict.fromkeys(per_step, _SAYS[kind]))
            report.compare(f"speed_{kind}", f"in_process_{kind}", f"servers_{kind}")


def _asking(side: Peer, line: str) -> Callable[[int], float]:
    return lambda turn: side.ask(line)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments.parser("benchmarks.recommender", __doc__, KINDS)
    arguments.add_peers_python(parser, "PyTorch, numpy and pyzmq")
    parser.add_argument("--ids", type=int, default=50_000_000, help="in all fields together")
    parser.add_argument("--steps", type=int, default=100, help="of one turn")
    parser.add_argument("--turns", type=int, default=10)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
