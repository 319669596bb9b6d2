# SPDX-License-Identifier: Apache-2.0
"""Measures one growing table: growth, lookups and updates beside those of peers, copies. See `benchmarks.sparse`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import machine
from benchmarks.report import Report, tell
from benchmarks.tables.sides import Numpy, Ours, Side, Torch
from benchmarks.tables.workload import BATCH, WIDTH, Workload, workload
from benchmarks.timing import Contender, Samples, interleave

PEERS: Mapping[str, Callable[[Workload], Side]] = {"numpy": Numpy, "torch": Torch}
FLOATS = 2 * WIDTH  # values and AdaGrad's sums
SINCE = 10  # batches between two incremental copies


def grow(report: Report, side: Ours, load: Workload) -> None:
    """Fill the table with new ids alone."""
    rows = len(load.ids)
    # A virtual machine's memory is found when it is first touched, which is none of the table's business.
    start = time.perf_counter()
    np.ones(rows * (FLOATS + 4), np.float32)
    report.add(
        "memory_first_touch_GBps", 4 * rows * (FLOATS + 4) / 1e9 / (time.perf_counter() - start), "GB/s"
    )
    before = _resident()
    took = []
    for at in range(0, rows, BATCH):
        positions = np.arange(at, min(at + BATCH, rows))
        start = time.perf_counter()
        side.update(positions, load.gradient[: len(positions)])
        took.append(time.perf_counter() - start)
    table = side.table
    report.add(
        "growth_rows_per_s", rows / sum(took[1:]), "rows/s", "all ids new; the first batch is not counted"
    )
    batches = Samples(tuple(1e3 * seconds for seconds in took[1:]))
    report.add("growth_batch_ms", batches, "ms", "one batch of new ids")
    report.add("growth_longest_stop_ms", batches.high, "ms", "the longest of these, its work included")
    report.add("live_rows", len(table), "rows")
    report.add(
        "bytes_beside_payload", (table.nbytes - table.payload_bytes) / len(table), "bytes/row", "counted"
    )
    resident = (_resident() - before - table.payload_bytes) / len(table)
    report.add("bytes_beside_payload_resident", resident, "bytes/row", "what the process grew by")


def copy(report: Report, side: Ours, load: Workload) -> None:
    """Take a full copy and an incremental one while nothing else happens."""
    for name, since in (("full", None), ("incremental", side.table.clock)):
        if since is not None:
            for positions in load.positions["zipf"][:SINCE]:
                side.update(positions, load.gradient)
        snapshot = side.table.snapshot(since)
        took, rows = [], 0
        while True:
            start = time.perf_counter()
            block = snapshot.next_block()
            took.append(time.perf_counter() - start)
            if block is None:
                break
            rows += len(block.ids)
        report.add(f"copy_{name}_rows", rows, "rows")
        report.add(f"copy_{name}_s", sum(took), "s", "in blocks, kept nowhere")
        report.add(f"copy_{name}_longest_stop_ms", 1e3 * max(took), "ms", "the longest block")


def contest(report: Report, sides: Mapping[str, Side], load: Workload, turns: int) -> None:
    """Let all sides do the same batches in turns."""
    for distribution, batches in load.positions.items():

        def contender(name: str, side: Side, update: bool, batches: list[np.ndarray]) -> Contender:
            def run(turn: int) -> float:
                positions = batches[turn % len(batches)]
                start = time.perf_counter()
                if update:
                    side.update(positions, load.gradient)
                else:
                    side.lookup(positions)
                return BATCH / (time.perf_counter() - start)

            return Contender(name, run)

        for what in ("lookup", "update"):
            rivals = "_beside_" + "_".join(name for name in sides if name != "ours") if len(sides) > 1 else ""
            names = {
                name: f"{what}_{distribution}" + (rivals if name == "ours" else f"_{name}") for name in sides
            }
            contenders = [
                contender(names[name], side, what == "update", batches) for name, side in sides.items()
            ]
            report.add_all(*interleave(contenders, turns, warm_up=True), "rows/s")
            for name in sides:
                if name != "ours":
                    suffix = "" if distribution == "uniform" else f"_{distribution}"
                    report.compare(f"{what}_vs_{name}{suffix}", names["ours"], names[name])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = _parse(argv)
    rows, turns = (200_000, 3) if given.quick else (given.rows, given.turns)
    report = Report(tell=tell)
    facts = machine.describe(("numpy", "numba", "torch"))
    load = workload(rows, turns)
    for distribution, batches in load.positions.items():
        distinct = np.mean([len(np.unique(positions)) for positions in batches]) / BATCH
        report.add(f"distinct_{distribution}", float(distinct), "of a batch")
    _compile(load)
    ours = Ours(load)
    grow(report, ours, load)
    contest(report, {"ours": ours}, load, turns)
    copy(report, ours, load)
    for name, peer in PEERS.items():
        try:
            contest(report, {"ours": ours, name: peer(load)}, load, turns)
        except (RuntimeError, MemoryError) as error:
            for what in ("lookup", "update"):
                report.lack(f"{what}_vs_{name}", str(error))
    report.show(facts, given.json)
    return 0


def _compile(load: Workload) -> None:
    """Let another table do everything once, so that no compilation is measured."""
    side = Ours(load)
    side.update(np.arange(BATCH), load.gradient)
    side.update(np.arange(BATCH), load.gradient)
    side.lookup(np.arange(BATCH))
    list(side.table.snapshot())


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sparse")
    parser.add_argument("--rows", type=int, default=10_000_000, metavar="N", help="live rows")
    parser.add_argument("--turns", type=int, default=20, metavar="N", help="batches measured of each kind")
    parser.add_argument("--quick", action="store_true", help="little work, to see that everything runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    given = parser.parse_args(argv)
    if given.rows < BATCH or given.turns < 1:
        parser.error(f"expected at least {BATCH} rows and 1 turn")
    return given


if __name__ == "__main__":
    sys.exit(main())
