# SPDX-License-Identifier: Apache-2.0
"""Measures PyTorch recommenders with rows in their own processes and on a server: see `benchmarks.recommender`."""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from benchmarks import arguments, machine
from benchmarks.report import Report, tell
from benchmarks.tables.peers import Peer, ask_all
from benchmarks.tables.recommender_side import BATCH, FIELDS, POOL, WIDTH, batch_of
from benchmarks.timing import Contender, Samples, interleave
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

KINDS = ("known", "coming")
_FILL = 8192
_ROW_BYTES = 4 * 2 * WIDTH + 4 + 17
"""Bytes of a row with AdaGrad's state: floats, tick, and its share of the index."""
_SAYS = {
    "known": "ms per step with existing rows",
    "coming": "ms per step while batches add rows",
}
_MODULE = "benchmarks.tables.recommender_side"
_THREE = 3


class _Side(NamedTuple):
    """A contender: its kind, number of trainers, the server's key, and whether it may share memory with the server.

    on_disk: whether only a quarter of the rows fits in the server's memory; unless it is None, all rows are made first.
    """

    kind: str
    trainers: int = 1
    key: str | None = KEY
    network: bool = False
    on_disk: bool | None = None


class _Duel(NamedTuple):
    """Sides that take turns; the figure `ratio` is the time of the first divided by that of the second."""

    sides: Mapping[str, _Side]
    ratios: Mapping[str, tuple[str, str]]


DUELS: Mapping[str, _Duel] = {
    "one": _Duel(
        {"in_process": _Side("in_process"), "servers": _Side("servers"), "fbgemm": _Side("fbgemm")},
        {"speed": ("in_process", "servers"), "speed_beside_fbgemm": ("fbgemm", "servers")},
    ),
    "three": _Duel(
        {"ddp": _Side("in_process", _THREE), "three": _Side("servers", _THREE)},
        {"speed_of_three": ("ddp", "three")},
    ),
    "wire": _Duel(
        {
            "plain": _Side("servers", key=None, network=True),
            "sealed": _Side("servers", network=True),
        },
        {"speed_sealed": ("plain", "sealed")},
    ),
    "disk": _Duel(
        {"in_memory": _Side("servers", on_disk=False), "on_disk": _Side("servers", on_disk=True)},
        {"speed_on_disk": ("in_memory", "on_disk")},
    ),
}
CLICKS = ("criteo", "avazu")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    given = _parse(argv)
    if given.quick:
        given.ids, given.steps, given.turns = 100_000, 5, 2
    report = Report(tell=tell)
    facts = machine.describe(("numpy",))
    distinct = [len(np.unique(batch_of((0, number), given.ids)[0])) for number in range(POOL)]
    report.add("distinct_ids", float(np.mean(distinct)), "ids", f"of the {BATCH * FIELDS} of a batch")
    for name in given.only or (*DUELS, *CLICKS):
        try:
            if name in DUELS:
                measure(report, given, DUELS[name])
            else:
                learn(report, given, name)
        except (OSError, RuntimeError) as error:
            report.lack(name, str(error))
    report.show(facts, given.json, given.plot)
    return 0


def measure(report: Report, given: argparse.Namespace, duel: _Duel) -> None:
    """Measure sides in turns. Raises RuntimeError: the Python has no PyTorch, or a side ended."""
    with ExitStack() as stack:
        sides = {}
        for name, side in duel.sides.items():
            ids = given.ids // 10 if side.trainers > 1 or side.on_disk is not None else given.ids
            load = [f"--ids={ids}"]
            if side.on_disk:
                folder = stack.enter_context(tempfile.TemporaryDirectory(dir=given.disk))
                load += [f"--memory={ids * _ROW_BYTES // 4}", f"--disk={folder}"]
            try:
                sides[name] = _started(stack, given.peers_python, side, *load)
                if side.on_disk is not None:
                    ask_all(sides[name], f"fill {ids // _FILL}")
            except RuntimeError as error:
                if side.kind != "fbgemm":
                    raise
                report.lack(name, str(error))
        for kind in KINDS:
            contenders = [
                Contender(f"{name}_{kind}", _asking(peers, f"{kind} {given.steps}"))
                for name, peers in sides.items()
            ]
            found, failed = interleave(contenders, given.turns, warm_up=True)
            per_step = {
                name: Samples(tuple(1e3 * seconds / given.steps for seconds in samples.values))
                for name, samples in found.items()
            }
            report.add_all(per_step, failed, "ms", dict.fromkeys(per_step, _SAYS[kind]))
            for ratio, (one, other) in duel.ratios.items():
                if one in sides:
                    report.compare(f"{ratio}_{kind}", f"{one}_{kind}", f"{other}_{kind}")


def learn(report: Report, given: argparse.Namespace, name: str) -> None:
    """Train DLRM on the clicks of a file on both sides: the time, the costs, and the AUC of unseen samples."""
    steps: int = max(given.samples // BATCH, 1)
    parts = min(steps, 1 if given.quick else 20)
    with ExitStack() as stack:
        sides = {
            f"{name}_{kind}": _started(stack, given.peers_python, _Side(kind), f"--clicks={name}")
            for kind in ("in_process", "servers")
        }
        costs: dict[str, list[float]] = {each: [] for each in sides}

        def train(side: str, peers: Sequence[Peer]) -> float:
            seconds = ask_all(peers, f"known {steps // parts}")
            costs[side].append(ask_all(peers, "cost"))
            return 1e3 * seconds / (steps // parts)

        contenders = [
            Contender(side, lambda turn, side=side, peers=peers: train(side, peers))  # type: ignore[misc]
            for side, peers in sides.items()
        ]
        found, failed = interleave(contenders, parts)
        what = f"ms per step of DLRM, {steps} steps of {BATCH} samples"
        report.add_all(found, failed, "ms", dict.fromkeys(found, what))
        report.compare(f"speed_{name}", *sides)
        for side, peers in sides.items():
            report.add(f"{side}_auc", ask_all(peers, "auc"), "", "area under the ROC curve of test samples")
        one, other = costs.values()
        apart = np.abs(np.subtract(one, other)).max()
        report.add(
            f"{name}_costs_apart",
            float(apart),
            "",
            f"maximum of {parts} mean costs of {steps // parts} steps",
        )


def _started(stack: ExitStack, python: str, side: _Side, *load: str) -> list[Peer]:
    """Start a side's processes, and its server."""
    argv = [python, "-P", "-m", _MODULE, side.kind, *load, f"--world={side.trainers}"]
    if side.kind == "servers":
        flags = ("--port=0", f"--num_gradient_servers={side.trainers}")
        server = stack.enter_context(PserverProcess(*flags, key=side.key))
        argv.append(f"--endpoints={','.join(server.endpoints)}")
        argv += [f"--key={side.key}"] if side.key else []
        argv += ["--network"] if side.network else []
    else:
        argv.append(f"--port={_free_port()}")
    lacking, env = "check that PyTorch is installed; see --peers_python", {"PYTHONPATH": "runtime:."}
    with ThreadPoolExecutor(side.trainers) as threads:  # they wait for one another
        started = [
            threads.submit(Peer, [*argv, f"--rank={rank}"], lacking, env) for rank in range(side.trainers)
        ]
    peers = [each.result() for each in started]
    for each in peers:
        stack.callback(each.close)
    return peers


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def _asking(peers: Sequence[Peer], line: str) -> Callable[[int], float]:
    return lambda turn: ask_all(peers, line)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments.parser("benchmarks.recommender", __doc__, (*DUELS, *CLICKS))
    arguments.add_peers_python(parser, "PyTorch, numpy and pyzmq")
    parser.add_argument("--ids", type=int, default=50_000_000, help="in all fields together")
    parser.add_argument(
        "--disk", help="the directory for rows on disk; the default is that of temporary files"
    )
    parser.add_argument("--steps", type=int, default=100, help="of one turn")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--samples", type=int, default=10_000_000, help="of clicks")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
