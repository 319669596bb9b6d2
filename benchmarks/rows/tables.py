# SPDX-License-Identifier: Apache-2.0
"""A growing table of ten million rows on one thread, beside PyTorch and plain C++; its first use on a new machine."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from benchmarks.rows.row import Lacking, Row, Sides, Versus, Work
from benchmarks.serving.sides import environment
from benchmarks.tables.measuring import Ours, Run, fill, timed
from benchmarks.tables.peers import plain_c, torch
from benchmarks.tables.workload import BATCH, workload
from benchmarks.timing import Contender

_ROWS, _TURNS, _LIMIT_S = 10_000_000, 9, 120.0
_SETTLING = 64  # batches without new ids, after which no memory is ready for fast growth any more
_WARM_UP = "from paddle.pserver.sparse.warming import warm_up; warm_up()"


@contextmanager
def _batches(work: Work) -> Iterator[Sides]:
    """Rows a second of lookups and updates, ids drawn evenly."""
    load = workload(200_000 if work.is_quick else _ROWS, _TURNS)
    ours = Ours(load)
    fill(ours, load)
    for _ in range(_SETTLING):
        ours.table.update([], 0.0)

    def measured(run: Run, what: str, turn: int) -> float:
        return BATCH / run(what, "uniform", turn)

    sides: list[Contender | Lacking] = []
    runs = {"ours": timed(ours, load, load.ids)}
    peers = {"torch": torch(work.peers_python, len(load.ids), _TURNS), "plain_c": plain_c(load)}
    with ExitStack() as open_ones:
        for name, peer in peers.items():
            try:
                runs[name] = open_ones.enter_context(peer).seconds
            except (RuntimeError, OSError) as error:
                sides.append(Lacking(name, str(error)))
        for what in ("lookup", "update"):
            sides += [Contender(f"{name}_{what}", partial(measured, run, what)) for name, run in runs.items()]
        yield sides


@contextmanager
def _growth(work: Work) -> Iterator[Sides]:
    """The longest batch of new ids while a table grows."""
    load = workload(200_000 if work.is_quick else _ROWS, 1)
    fill(Ours(load), load, BATCH)  # compiled loops are loaded
    yield [Contender("ours", lambda turn: 1e3 * max(fill(Ours(load), load)[1:]))]


@contextmanager
def _new_machine(work: Work) -> Iterator[Sides]:
    """What a server with a growing table does before it is ready, nothing being kept from earlier."""

    def run(turn: int) -> float:
        with tempfile.TemporaryDirectory(dir=work.scratch) as cache:
            begun = time.monotonic()
            argv = [sys.executable, "-P", "-c", _WARM_UP]
            env = {**environment(), "XDG_CACHE_HOME": cache}
            subprocess.run(argv, env=env, timeout=_LIMIT_S, check=True)
            return time.monotonic() - begun

    yield [Contender("ours", run)]


_MEMORY = "memory that this machine finds at 0.4 GB/s where nobody had it"
ROWS = (
    Row(
        "table",
        "10 M rows x 64: lookups of 50,000 ids, updates by AdaGrad, one thread",
        "rows/s",
        _batches,
        (
            Versus("ours_lookup", "torch_lookup"),
            Versus("ours_update", "torch_update"),
            Versus("ours_lookup", "plain_c_lookup", 0.8),
            Versus("ours_update", "plain_c_update", 0.7),
        ),
        turns=_TURNS,
    ),
    Row(
        "table_growth",
        "the same: longest stop while the table grows to 10 M rows, its batch included",
        "ms",
        _growth,
        at_most={"ours": 50.0},
        turns=2,
        warm_up=False,
        why=_MEMORY,
    ),
    Row(
        "table_new_machine",
        "the first growing table on a new machine",
        "s",
        _new_machine,
        at_most={"ours": 1.0},
        turns=2,
        warm_up=False,
        why="numba compiles the loops, once a machine",
    ),
)
