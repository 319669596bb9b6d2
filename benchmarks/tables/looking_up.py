# SPDX-License-Identifier: Apache-2.0
"""Measures lookups from a followed copy, and from Redis: see `benchmarks.lookups`."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import importlib
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks import arguments, machine
from benchmarks.report import Report, tell
from benchmarks.timing import Samples
from paddle.pserver import Adagrad, Client, GrowingTable
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

WIDTH, ROWS, BATCH = 16, 1000, 4096
_TURN = 50  # consecutive lookups of one side
_WITHIN_S = 5.0
Lookup = Callable[[np.ndarray], np.ndarray]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    given = _parse(argv)
    ids, lookups = (20_000, 100) if given.quick else (given.ids, given.lookups)
    report = Report(tell=tell)
    facts = machine.describe(("numpy",))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(PserverProcess("--port=0", "--num_gradient_servers=1"))
        client = stack.enter_context(Client(server.endpoints, trainer_id=0, num_trainers=1, job_key=KEY))
        client.create({"t": GrowingTable(WIDTH, std=0.1)}, Adagrad(lr=0.1))
        for start in range(0, ids, 1 << 15):
            part = np.arange(start, min(start + (1 << 15), ids))
            client.push_pull({"t": (part, np.ones((len(part), WIDTH), np.float32))}, {})
        sides = {"serve": stack.enter_context(_served(server))}
        try:
            sides["redis"] = stack.enter_context(_redis(client.pull_rows("t", np.arange(ids))))
        except RuntimeError as error:
            report.lack("redis", str(error))
        stack.enter_context(_training(client, ids))
        _measure(report, sides, ids, lookups)
    report.show(facts, given.json, given.plot)
    return 0


def _measure(report: Report, sides: dict[str, Lookup], ids: int, lookups: int) -> None:
    rng, took = np.random.default_rng(0), {name: list[float]() for name in sides}
    for turn in range(max(lookups // _TURN, 1) + 1):
        for name, lookup in sides.items():
            for _ in range(_TURN):
                asked = _zipf(rng, ROWS, ids)
                begun = time.perf_counter()
                found = lookup(asked)
                if turn:  # the first one warms up
                    took[name].append(1e3 * (time.perf_counter() - begun))
                if found.shape != (ROWS, WIDTH):
                    raise RuntimeError(f"{name} returned an array of shape {found.shape}")
    for name, values in took.items():
        report.add(f"{name}_p50", Samples(tuple(values)), "ms", f"a lookup of {ROWS} rows")
        report.add(f"{name}_p99", float(np.percentile(values, 99)), "ms", f"a lookup of {ROWS} rows")
    if len(sides) > 1:
        for name in ("p50", "p99"):
            report.compare(name, f"serve_{name}", f"redis_{name}")


def _zipf(rng: np.random.Generator, count: int, ids: int) -> np.ndarray:
    return rng.zipf(1.1, count) % ids


@contextlib.contextmanager
def _training(client: Client, ids: int) -> Iterator[None]:
    """Push batches continuously, in a thread."""
    done, rng = threading.Event(), np.random.default_rng(1)

    def work() -> None:
        while not done.is_set():
            client.push_pull({"t": (_zipf(rng, BATCH, ids), np.ones((BATCH, WIDTH), np.float32))}, {})

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def _served(server: PserverProcess) -> Iterator[Lookup]:
    """Run `paddle serve`; yield a lookup by HTTP."""
    argv = [
        sys.executable,
        "-P",
        "-m",
        "paddle",
        "serve",
        "--port=0",
        f"--servers={','.join(server.endpoints)}",
    ]
    env = {"PYTHONPATH": "runtime", "PADDLE_JOB_KEY": KEY}
    with subprocess.Popen(
        [*argv, f"--within_s={_WITHIN_S}"], env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        peer = http.client.HTTPConnection("127.0.0.1", int(process.stdout.readline().rpartition(":")[2]))

        def lookup(asked: np.ndarray) -> np.ndarray:
            peer.request("POST", "/tables/t/rows", asked.astype("<i8").tobytes())
            answer = peer.getresponse()
            body = answer.read()
            if answer.status != http.HTTPStatus.OK:
                raise RuntimeError(body.decode())
            return np.frombuffer(body, "<f4").reshape(-1, WIDTH)

        try:
            for _ in range(100):
                with contextlib.suppress(RuntimeError):
                    lookup(np.arange(1))
                    break
                time.sleep(0.1)
            yield lookup
        finally:
            process.terminate()


@contextlib.contextmanager
def _redis(rows: np.ndarray) -> Iterator[Lookup]:
    """Run a Redis server with these rows; yield a lookup by MGET.

    Raises:
        RuntimeError: Redis is not installed.
    """
    program = shutil.which("redis-server")
    try:
        redis = importlib.import_module("redis")
    except ImportError:
        redis = None
    if program is None or redis is None:
        raise RuntimeError("redis-server and the package redis are needed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            peer = redis.Redis(port=port)
            for _ in range(100):
                with contextlib.suppress(redis.ConnectionError):
                    peer.ping()
                    break
                time.sleep(0.1)
            for start in range(0, len(rows), 1 << 14):
                part = rows[start : start + (1 << 14)]
                peer.mset({(start + i).to_bytes(8, "little"): row.tobytes() for i, row in enumerate(part)})

            def lookup(asked: np.ndarray) -> np.ndarray:
                found = peer.mget([each.tobytes() for each in asked.astype("<i8")])
                return np.frombuffer(b"".join(found), "<f4").reshape(-1, WIDTH)

            yield lookup
        finally:
            process.terminate()


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments.parser("benchmarks.lookups", __doc__, ())
    parser.add_argument("--ids", type=int, default=200_000)
    parser.add_argument("--lookups", type=int, default=2000, help="of each side")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
