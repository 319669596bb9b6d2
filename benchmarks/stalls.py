# SPDX-License-Identifier: Apache-2.0
"""Measures each single step, especially the longest ones, and the cause of their delays.

    python -m benchmarks.stalls [--json FILE] [--plot FILE.svg] [--quick] [--only 4KB,1MB,table,cpu]

One server and one trainer on this machine: shared memory, plain and encrypted TCP, and plain sockets that do the same;
1,500 steps each, in alternating blocks. Processes run where the system places them, as those of jobs do, and then with
a core each (`pinned`). `table`: the first 100 batches of a growing table. The parts of a step are counted by the system
for all threads of server and trainer: computing, and waiting for an occupied core; the rest is sleep. `cpu`: the CPU
time of steps of 1 MB with 1 to 8 trainers, and with two ports, which other processes disturb less than its duration.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks import machine
from benchmarks.arguments import parser
from benchmarks.report import Report, tell
from benchmarks.serving.contest import Threads
from benchmarks.serving.sides import KEY, Processes, ours, raw
from benchmarks.timing import Samples

STEPS, BATCHES, BLOCKS = 1500, 100, 10
WARM_UP = 10
"""Steps that can take longer: buffers are allocated, and both ends adapt their waiting to fast answers."""
STOP_S = 0.05
_ROWS, _WIDTH = 20_000, 16  # per batch of a table
_QUANTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)
_DRAWN = (50, 99, 99.9)
_SIZES = {"4KB": 4 << 10, "1MB": 1 << 20}
_OURS: Mapping[str, Mapping[str, Any]] = {
    "node": {},
    "plain": {"within_node": False},
    "sealed": {"within_node": False, "key": KEY},
}


class Step(NamedTuple):
    """Seconds of one step, and of all threads in it: computing and waiting for a core, of server and trainer."""

    took: float
    server: tuple[float, float]
    trainer: tuple[float, float]

    def __str__(self) -> str:
        server, trainer = (
            f"computed {one:.1f}, waited for a core {other:.1f} ms" for one, other in self._ms()
        )
        return f"{1e3 * self.took:.1f} ms; server {server}; trainer {trainer}"

    def _ms(self) -> list[tuple[float, float]]:
        return [(1e3 * computed, 1e3 * queued) for computed, queued in (self.server, self.trainer)]


def steps_of(side: Processes, count: int) -> list[Step]:
    """Run steps of a side's only trainer."""
    (seen,) = side.steps(count, is_watched=True)
    return [
        Step(took, (spent[0], spent[1]), (spent[2], spent[3]))
        for took, spent in zip(seen["took"], seen["spent"], strict=True)
    ]


def _dense(name: str, report: Report, count: int) -> None:
    size = _SIZES[name]
    starts: dict[str, Callable[[], Processes]] = {
        "sockets": partial(raw, size, 1),
        **{way: partial(ours, [size], 1, in_place=way == "node", **more) for way, more in _OURS.items()},
    }
    for is_pinned in (False, True):
        _contest(report, f"{name}{'_pinned' if is_pinned else ''}", starts, count, is_pinned=is_pinned)


def _table(report: Report, count: int) -> None:
    starts = {way: partial(ours, [], 1, table=[_ROWS, _WIDTH], **more) for way, more in _OURS.items()}
    found = _contest(report, "table", starts, min(count, BATCHES), warm_up=0)
    for way, steps in found.items():
        last = float(np.median([each.took for each in steps[-10:]]))
        report.add(
            f"{way}_table_first",
            steps[0].took / last,
            "times",
            "the first batch, relative to one of the last ten",
        )


def _contest(
    report: Report,
    at: str,
    starts: Mapping[str, Callable[[], Processes]],
    count: int,
    *,
    warm_up: int = WARM_UP,
    is_pinned: bool = False,
) -> dict[str, list[Step]]:
    """Return the steps of each side, and report their statistics."""
    found: dict[str, list[Step]] = {way: [] for way in starts}
    with ExitStack() as stack:
        sides = {way: stack.enter_context(start()) for way, start in starts.items()}
        for side in sides.values() if is_pinned else ():
            side.part()
        for block in range(BLOCKS):
            for way, side in sides.items():
                found[way] += steps_of(side, count * (block + 1) // BLOCKS - count * block // BLOCKS)
    for way, steps in found.items():
        report_steps(report, f"{way}_{at}", steps[warm_up:])
    for way in _OURS if "sockets" in found else ():
        for part in ("p50", "p99"):
            report.compare(f"{way}_{at}_{part}_vs_sockets", f"{way}_{at}_{part}", f"sockets_{at}_{part}")
    return found


def report_steps(report: Report, name: str, steps: Sequence[Step]) -> None:
    """Report the spread of one side's steps, the longest one, and the number of stops."""
    took = np.array([each.took for each in steps])
    for quantile in _DRAWN:
        report.add(f"{name}_p{quantile:g}", 1e6 * float(np.percentile(took, quantile)), "us")
    spread = ", ".join(f"p{each:g} {1e6 * np.percentile(took, each):.0f}" for each in _QUANTILES)
    longest = max(range(len(steps)), key=lambda number: took[number])
    report.add(f"{name}_longest", 1e3 * float(took[longest]), "ms", f"step {longest}: {steps[longest]}")
    computed = float(np.mean([each.server[0] + each.trainer[0] for each in steps]))
    report.add(
        f"{name}_cpu", 1e6 * computed, "us of CPU a step", f"server and trainer; steps in us: {spread}"
    )
    stops = [number for number, each in enumerate(took) if each > STOP_S]
    report.add(f"{name}_stops", float(len(stops)), f"steps above {1e3 * STOP_S:.0f} ms", f"of {len(steps)}")


def _cpu(report: Report, count: int) -> None:
    size, unit = _SIZES["1MB"], "us of CPU a step"
    plain, sealed = (partial(ours, [size], **_OURS[way]) for way in ("plain", "sealed"))
    for trainers in (1, 2, 4, 8):
        sockets = partial(raw, size, congestion="reno")
        starts = {"sockets": sockets, "checked_sockets": partial(sockets, checked="checked")}
        starts |= {"plain": plain, "sealed": sealed}
        if trainers == 2:
            starts |= {"plain_ports2": partial(plain, ports=2), "sealed_ports2": partial(sealed, ports=2)}
        at = f"1MB_w{trainers}_cpu"
        with ExitStack() as stack:
            sides = {way: stack.enter_context(start(trainers=trainers)) for way, start in starts.items()}
            spent: dict[str, list[list[float]]] = {way: [] for way in sides}
            for _ in range(BLOCKS + 1):
                for way, side in sides.items():
                    spent[way].append(cpu_of(side, max(count // (30 * trainers), 2)))
        for way, blocks in spent.items():
            server, *_ = np.median(blocks[1:], axis=0)
            total = Samples(tuple(1e6 * sum(each) for each in blocks[1:]))
            report.add(f"{way}_{at}", total, unit, f"{1e6 * server:.0f} of it in the server")
        for way in list(starts)[1:]:
            report.compare(f"{way}_{at}_vs_sockets", f"{way}_{at}", f"sockets_{at}")


def cpu_of(side: Processes, count: int) -> list[float]:
    """Run steps of all trainers; return seconds of CPU per step: of the server, and of each trainer."""
    watched = [Threads(child) for child in side.pids]
    before = [each.spent()[0] for each in watched]
    side.steps(count)
    found = [(each.spent()[0] - at) / 1e9 / count for each, at in zip(watched, before, strict=True)]
    for each in watched:
        each.close()
    return found


MEASUREMENTS: Mapping[str, Callable[[Report, int], None]] = {
    **{name: partial(_dense, name) for name in _SIZES},
    "table": _table,
    "cpu": _cpu,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    given = parser("benchmarks.stalls", __doc__, MEASUREMENTS).parse_args(argv)
    report = Report(tell=tell)
    facts = machine.describe(("numpy", "pyzmq"))
    for name in given.only:
        tell(f"benchmarks.stalls: {name} ...")
        MEASUREMENTS[name](report, 40 if given.quick else STEPS)
    report.show(facts, given.json, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
