# SPDX-License-Identifier: Apache-2.0
"""Measures how fast jobs start, dispatch and stop, compared with other tools, on hosts created for the measurement.

    python -m benchmarks.launch [--hosts 16 64] [--json FILE] [--quick] [--only NAME,...]

Needs root. docs/benchmarks.md explains each figure.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import machine
from benchmarks.arguments import parser
from benchmarks.launching import dispatch, engines, rivals, start, stop
from benchmarks.launching.run import Run
from benchmarks.report import Report, tell
from tests.cluster.hosts import missing_tools

PACKAGES = ("fabric", "paramiko", "cryptography")


def _starts(run: Run, hosts: Sequence[int]) -> None:
    for count in hosts:
        start.measure(run, count)


# name -> measurement, given the numbers of hosts; all but the first use the smallest of them
MEASUREMENTS: Mapping[str, Callable[[Run, Sequence[int]], None]] = {
    "start": _starts,
    "dispatch_2MB": lambda run, hosts: dispatch.measure_small(run, min(hosts)),
    "dispatch_100MB": lambda run, hosts: dispatch.measure_big(run, min(hosts)),
    "dispatch_1GB": lambda run, hosts: dispatch.measure_huge(run, min(hosts)),
    "relay": lambda run, hosts: dispatch.measure_relay(run, min(hosts)),
    "engines": lambda run, hosts: engines.measure(run, min(hosts)),
    "stop": lambda run, hosts: stop.measure(run, min(hosts)),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    arguments = parser("benchmarks.launch", __doc__, MEASUREMENTS)
    arguments.add_argument("--hosts", type=int, nargs="+", default=[16, 64], metavar="N")
    given = arguments.parse_args(argv)
    if reason := missing_tools():
        print(f"benchmarks.launch: {reason}", file=sys.stderr)
        return 2
    facts = machine.describe(PACKAGES, rivals.TOOLS)
    with tempfile.TemporaryDirectory(prefix="paddle-benchmark-") as scratch:
        quick = given.quick
        run = Run(
            turns=1 if quick else 7,
            long_turns=1 if quick else 3,
            scale=0.02 if quick else 1.0,
            settle_s=1.0 if quick else 5.0,
            scratch=Path(scratch),
            report=Report(tell=tell),
        )
        for name in given.only:
            tell(f"benchmarks.launch: {name} ...")
            try:
                MEASUREMENTS[name](run, given.hosts)
            except (RuntimeError, AssertionError) as error:  # the other measurements are still useful
                run.report.lack(name, f"failed: {str(error)[-500:]}")
        run.report.show(facts, given.json, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
