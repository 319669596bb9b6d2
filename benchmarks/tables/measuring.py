# SPDX-License-Identifier: Apache-2.0
"""Measures one growing table: growth, copies, and lookups and updates compared with peers. See `benchmarks.sparse`."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks import machine
from benchmarks.report import Report, tell
from benchmarks.tables.peers import plain_c, torch
from benchmarks.tables.workload import BATCH, WIDTH, Floats, Ids, Workload, workload
from benchmarks.timing import Contender, Samples, interleave
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.rows import Memory
from paddle.pserver.sparse.serving import GrowingShare
from paddle.pserver.sparse.slabs import map_memory
from paddle.pserver.sparse.spec import TableSpec

FLOATS = 2 * WIDTH  # values and AdaGrad's sums
Run = Callable[[str, str, int], float]
"""Looks up or updates (first argument) a batch (third) of a distribution (second); returns the seconds it took."""
SINCE = 10  # batches between two incremental copies
PACED_BATCHES, PAUSE_S = 20, 0.25
SETTLING = 64  # batches without new IDs, after which no memory is prepared for fast growth any more
RATE, EPSILON = 0.1, 1e-6
_HUGE = 2 << 20


def grow(report: Report, side: Ours, rows: int, load: Workload, name: str, pause_s: float = 0.0) -> None:
    """Fill a table with new IDs only, with trainers' pauses between batches; the first batch is not counted."""
    took = fill(side, load, rows, pause_s)
    report.add(
        f"{name}_rows_per_s", (rows - BATCH) / sum(took[1:]), "rows/s", "all ids new, pauses not counted"
    )
    batches = Samples(tuple(1e3 * seconds for seconds in took[1:]))
    report.add(f"{name}_batch_ms", batches, "ms", "one batch of new ids")
    report.add(f"{name}_longest_stop_ms", batches.high, "ms", "the longest of these, including its work")


def fill(side: Ours, load: Workload, rows: int | None = None, pause_s: float = 0.0) -> list[float]:
    """Add only new IDs to a table; return the seconds of each batch.

    Args:
        rows: number of rows; None: all.
        pause_s: pause before each batch.
    """
    took = []
    count = len(load.ids) if rows is None else rows
    for at in range(0, count, BATCH):
        time.sleep(pause_s)
        ids = load.ids[at : min(at + BATCH, count)]
        start = time.perf_counter()
        side.update(ids, load.gradient[: len(ids)])
        took.append(time.perf_counter() - start)
    return took


def grow_in_hand(report: Report, load: Workload) -> None:
    """Fill a table whose memory the machine has already allocated."""
    start, size = time.perf_counter(), int(1.15 * 4 * len(load.ids) * (FLOATS + 1)) + (96 << 20)
    pool = Pool(size)
    report.add("memory_first_touch_GBps", size / 1e9 / (time.perf_counter() - start), "GB/s")
    grow(report, Ours(load, pool.allocate), len(load.ids), load, "growth_in_hand")


def weigh(report: Report, side: Ours, resident: int) -> None:
    """Report the memory of a row besides its floats."""
    table = side.table
    report.add("live_rows", len(table), "rows")
    payload = 4 * math.prod(table.shape) * len(table)
    beside = (table.nbytes - payload) / len(table)
    report.add("bytes_beside_payload", beside, "bytes/row", "as the table counts them")
    grown = (resident - payload) / len(table)
    report.add("bytes_beside_payload_resident", grown, "bytes/row", "growth of the process")


def copy(report: Report, side: Ours, load: Workload) -> None:
    """Take a full copy and an incremental one while nothing else happens."""
    for name, since in (("full", None), ("incremental", side.table.clock)):
        if since is not None:
            for positions in load.positions["zipf"][:SINCE]:
                side.update(load.ids[positions], load.gradient)
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
        report.add(f"copy_{name}_s", sum(took), "s", "in blocks that are not stored")
        report.add(f"copy_{name}_longest_stop_ms", 1e3 * max(took), "ms", "the longest block")


def contest(report: Report, sides: Mapping[str, Run], distributions: Sequence[str], turns: int) -> None:
    """Have all sides process the same batches in turns, after one pass over the rows of these batches."""
    others = [name for name in sides if name != "ours"]
    for distribution in distributions:
        for side in sides.values():  # a host may have taken back memory that was idle meanwhile
            for number in range(turns):
                side("lookup", distribution, number)
        for what in ("lookup", "update"):
            figure = f"{what}_{distribution}"
            names = {name: f"{figure}_{name}" for name in others}
            names["ours"] = f"{figure}_beside_{'_'.join(others)}" if others else figure

            def contender(
                name: str, run: Run, what: str = what, distribution: str = distribution
            ) -> Contender:
                return Contender(name, lambda turn: BATCH / run(what, distribution, turn))

            contenders = [contender(names[name], run) for name, run in sides.items()]
            report.add_all(*interleave(contenders, turns, warm_up=True), "rows/s")
            for name in others:
                suffix = "" if distribution == "uniform" else f"_{distribution}"
                report.compare(f"{what}_vs_{name}{suffix}", names["ours"], names[name])


def timed(side: Side, load: Workload, ids: Ids | None = None) -> Run:
    """Return a function that runs a batch of a side in this process: of `ids` if given, else of positions."""

    def run(what: str, distribution: str, turn: int) -> float:
        batches = load.positions[distribution]
        positions = batches[turn % len(batches)]
        keys = positions if ids is None else ids[positions]
        start = time.perf_counter()
        if what == "update":
            side.update(keys, load.gradient)
        else:
            side.lookup(keys)
        return time.perf_counter() - start

    return run


@contextmanager
def peer(name: str, given: argparse.Namespace, load: Workload, turns: int) -> Iterator[Run]:
    """Run a peer within the context, for its measurement."""
    if name == "numpy":
        yield timed(Numpy(load), load)
        return
    with plain_c(load) if name == "plain_c" else torch(given.peers_python, len(load.ids), turns) as other:
        yield other.seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    given = _parse(argv)
    rows, turns = (200_000, 3) if given.quick else (given.rows, given.turns)
    report = Report(tell=tell)
    facts = machine.describe(("numpy",))
    load = workload(rows, turns)
    for distribution, batches in load.positions.items():
        distinct = np.mean([len(np.unique(positions)) for positions in batches]) / BATCH
        report.add(f"distinct_{distribution}", float(distinct), "of a batch")
    _load_loops(load)
    grow(report, Ours(load), min(PACED_BATCHES * BATCH, rows), load, "growth_paced", PAUSE_S)
    distributions = list(load.positions)
    before = _resident()
    ours = Ours(load)
    grow(report, ours, rows, load, "growth")
    for _ in range(SETTLING):
        ours.table.update([], 0.0)
    weigh(report, ours, _resident() - before)
    ours_timed = timed(ours, load, load.ids)
    contest(report, {"ours": ours_timed}, distributions, turns)
    copy(report, ours, load)
    for name in ("plain_c", "numpy", "torch"):
        try:
            with peer(name, given, load, turns) as other:
                contest(report, {"ours": ours_timed, name: other}, distributions, turns)
        except (RuntimeError, MemoryError, OSError) as error:
            for what in ("lookup", "update"):
                report.lack(f"{what}_vs_{name}", str(error))
    del ours, ours_timed
    grow_in_hand(report, load)
    report.show(facts, given.json)
    return 0


def _load_loops(load: Workload) -> None:
    """Run all operations on another table once, so that loading the compiled loops is not measured."""
    side = Ours(load)
    side.update(load.ids[:BATCH], load.gradient)
    side.update(load.ids[:BATCH], load.gradient)
    side.lookup(load.ids[:BATCH])
    list(side.table.snapshot())


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sparse")
    parser.add_argument("--rows", type=int, default=10_000_000, metavar="N", help="live rows")
    parser.add_argument("--turns", type=int, default=20, metavar="N", help="number of batches of each kind")
    parser.add_argument(
        "--peers_python",
        default=sys.executable,
        metavar="PYTHON",
        help="a Python that has torch, for comparison",
    )
    parser.add_argument("--quick", action="store_true", help="a short run, to check that the benchmark runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    given = parser.parse_args(argv)
    if given.rows < BATCH or given.turns < 1:
        parser.error(f"expected at least {BATCH} rows and 1 turn")
    return given


class Side(Protocol):
    """A contender with a table whose rows have keys: positions or arbitrary IDs."""

    def lookup(self, keys: Ids) -> None:
        """Fetch the rows into an array."""

    def update(self, keys: Ids, gradient: Floats) -> None:
        """Take one AdaGrad step; gradients of equal keys are summed."""


class Ours:
    """The growing table; IDs are arbitrary, and gradients are validated like those from the wire."""

    def __init__(self, load: Workload, allocate: Callable[[int], Memory] = map_memory) -> None:
        """Create an empty table.

        Args:
            allocate: allocates its memory.
        """
        spec = TableSpec(ParameterSpec("emb", (1, WIDTH), sparse=True), Initial.uniform(-0.1, 0.1, 1))
        optimizer = OptimizerSpec("adagrad", {"epsilon": EPSILON}, learning_rate=RATE)
        self._share = GrowingShare(spec, 0, 1)
        self.table = HashTable(spec, optimizer, allocate)
        self._out = np.empty(load.gradient.shape, np.float32)

    def lookup(self, keys: Ids) -> None:
        """Fetch the rows into an array; see `Side.lookup`."""
        self.table.lookup(keys, out=self._out)

    def update(self, keys: Ids, gradient: Floats) -> None:
        """Take one AdaGrad step; see `Side.update`."""
        step = RowGradient(keys, gradient)
        self._share.check(step)
        self.table.update([step], RATE)


class Pool:
    """Memory that was touched before it is requested."""

    def __init__(self, nbytes: int) -> None:
        self._memory = map_memory(nbytes)
        self._memory[:: _HUGE >> 9] = 0
        self._used = 0

    def allocate(self, nbytes: int) -> Memory:
        """Return the next bytes.

        Raises:
            MemoryError: not enough bytes remain.
        """
        start, self._used = self._used, self._used + (nbytes + _HUGE - 1 & -_HUGE)
        if self._used > len(self._memory):
            raise MemoryError(f"the pool has {len(self._memory)} bytes")
        return self._memory[start : start + nbytes]


class Numpy:
    """Dense arrays, for IDs that are already positions."""

    def __init__(self, load: Workload) -> None:
        self._w = np.random.default_rng(1).random((len(load.ids), WIDTH), np.float32)
        self._s = np.full_like(self._w, 0.1)
        self._out = np.empty(load.gradient.shape, np.float32)

    def lookup(self, keys: Ids) -> None:
        """Fetch the rows into an array; see `Side.lookup`."""
        np.take(self._w, keys, axis=0, out=self._out, mode="clip")

    def update(self, keys: Ids, gradient: Floats) -> None:
        """Take one AdaGrad step; see `Side.update`."""
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        g = np.add.reduceat(gradient[order], starts)
        rows = ordered[starts]
        s = self._s[rows] + g * g
        self._s[rows] = s
        self._w[rows] -= RATE * g / np.sqrt(s + EPSILON)


if __name__ == "__main__":
    sys.exit(main())
