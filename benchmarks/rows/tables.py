# SPDX-License-Identifier: Apache-2.0
"""A growing table of ten million rows on one thread, beside PyTorch and plain C++; its first use on a new machine."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np

from benchmarks.rows.row import Lacking, Row, Sides, Versus, Work
from benchmarks.serving.sides import environment
from benchmarks.tables.measuring import Ours, Run, fill, timed
from benchmarks.tables.peers import plain_c, torch
from benchmarks.tables.workload import BATCH, workload
from benchmarks.timing import Contender
from paddle.pserver import Client, GrowingTable, OptimizerSpec

_ROWS, _TURNS, _LIMIT_S = 10_000_000, 9, 120.0
_SETTLING = 64  # batches without new IDs, after which no memory is prepared for fast growth any more


@contextmanager
def _batches(work: Work) -> Iterator[Sides]:
    """Yield the sides that measure lookups and updates, with IDs drawn uniformly."""
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
    """Yield the sides that measure the longest batch of new IDs while a table grows."""
    load = workload(200_000 if work.is_quick else _ROWS, 1)
    fill(Ours(load), load, BATCH)  # loads the compiled loops
    yield [Contender("ours", lambda turn: 1e3 * max(fill(Ours(load), load)[1:]))]


@contextmanager
def _new_machine(work: Work) -> Iterator[Sides]:
    """Yield the sides of a server's start until it answers a first push of 1,000 new rows, without earlier files."""

    def run(turn: int) -> float:
        with (
            tempfile.TemporaryDirectory(dir=work.scratch) as cache,
            socket.create_server(("127.0.0.1", 0)) as free,
        ):
            port = free.getsockname()[1]
            free.close()
            env = {**environment(), "XDG_CACHE_HOME": cache, "POD_IP": "127.0.0.1"}
            argv = [
                sys.executable,
                "-P",
                "-m",
                "paddle",
                "pserver",
                f"--port={port}",
                "--num_gradient_servers=1",
            ]
            begun = time.monotonic()
            server = subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL)
            try:
                return _answered(port) - begun
            finally:
                server.terminate()
                server.wait(_LIMIT_S)

    yield [Contender("ours", run)]


def _answered(port: int) -> float:
    """Train with a growing table on this server; return the monotonic time of the answer to the first push."""
    ids = np.arange(1000)
    with Client([f"127.0.0.1:{port}"], trainer_id=0, num_trainers=1, wire="plain") as client:
        client.create({"emb": GrowingTable(64)}, OptimizerSpec("adagrad", learning_rate=0.1))
        client.push_pull({"emb": (ids, np.ones((len(ids), 64), np.float32))}, {})
        client.pull_rows("emb", ids)
        return time.monotonic()


_MEMORY = "this machine provides fresh memory at 0.4 GB/s"
ROWS = (
    Row(
        "table",
        "a table of 10 million rows of 64 floats: look up 50,000 ids, or update them by AdaGrad, one thread",
        "rows/s",
        _batches,
        (
            Versus("ours_lookup", "torch_lookup"),
            Versus("ours_update", "torch_update"),
            Versus("ours_lookup", "plain_c_lookup", 0.8),
            Versus("ours_update", "plain_c_update", 0.7),
        ),
        turns=_TURNS,
        why="gradients are checked and summed by id, which the other program does not do; "
        "the interpreter runs between the loops",
    ),
    Row(
        "table_growth",
        "longest batch while the table grows to 10 million rows",
        "ms",
        _growth,
        at_most={"ours": 50.0},
        turns=2,
        warm_up=False,
        why=_MEMORY,
    ),
    Row(
        "table_new_machine",
        "first growing table on a new machine: from the server's start to its first answer",
        "s",
        _new_machine,
        at_most={"ours": 1.0},
        turns=2,
        warm_up=False,
        why="interpreter and imports",
    ),
)
