# SPDX-License-Identifier: Apache-2.0
"""Measures what `benchmarks.checkpoints` says."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks import machine
from benchmarks.durable.disk import forget, read_s, written_s
from benchmarks.report import Report, tell
from benchmarks.timing import Samples
from paddle.pserver import Client, GrowingTable, Initial, OptimizerSpec
from tests.runtime.pserver.pserver_process import PserverProcess

WIDTH, ROWS_A_PUSH = 64, 20_000
PATIENCE_S, SAVE_LIMIT_S = 300.0, 400.0
RAW_GB = 2.0
GB = 1e9


@dataclass(frozen=True)
class Work:
    """What a trainer does.

    Attributes:
        ports: of the server.
        create: the tensors.
        fill: pushes until the state has its size, `fills` of them; then comes training, `push` again and again.
        quiet: so many of these before the checkpoint.
    """

    name: str
    ports: int
    create: Callable[[Client], None]
    fill: Callable[[Client], None]
    fills: int
    push: Callable[[Client], None]
    quiet: int


def sparse(gigabytes: float) -> Work:
    """A growing table with AdaGrad; a push has 20,000 of its ids."""
    rows = int(gigabytes * GB / (2 * 4 * WIDTH + 12))
    rng = np.random.default_rng(1)
    gradient = np.full((ROWS_A_PUSH, WIDTH), 1e-3, np.float32)

    def create(client: Client) -> None:
        table = GrowingTable(WIDTH, Initial("uniform", spread=0.1, seed=1), max_rows=2 * rows)
        client.create({"table": table}, OptimizerSpec("adagrad", learning_rate=0.1))

    def fill(client: Client) -> None:
        for start in range(0, rows, ROWS_A_PUSH):
            ids = np.arange(start, start + ROWS_A_PUSH)
            client.push_pull({"table": (ids, gradient)}, {})

    def push(client: Client) -> None:
        client.push_pull({"table": (rng.integers(0, rows, ROWS_A_PUSH), gradient)}, {})

    return Work("sparse", 1, create, fill, -(-rows // ROWS_A_PUSH), push, quiet=150)


def dense(gigabytes: float) -> Work:
    """Parameters of 100 MB with AdaGrad; a push has gradients of all of them."""
    count = max(int(gigabytes * GB / 2 / 1e8), 1)
    values: dict[str, Any] = {f"w{i}": np.zeros(int(1e8 / 4), np.float32) for i in range(count)}
    gradients = {name: np.full(value.shape, 1e-3, np.float32) for name, value in values.items()}

    def create(client: Client) -> None:
        client.create(values, OptimizerSpec("adagrad", learning_rate=0.1))

    def push(client: Client) -> None:
        client.push_pull(gradients, values)

    # the slab of a port travels in one message of at most 1 GiB
    return Work("dense", -(-count // 9), create, push, 1, push, quiet=7)


class Serving:
    """A server process, and a client of it that leaves no state behind; a context."""

    def __init__(self, work: Work, scratch: Path, *flags: str) -> None:
        self._log = scratch / "log"
        shutil.rmtree(self._log, ignore_errors=True)
        ports = f"--ports_num={work.ports}"
        self.process = PserverProcess("--port=0", ports, "--state_dir=", *flags, key=None)
        self.process.env |= {"GLOG_logtostderr": "0", "GLOG_log_dir": str(self._log)}
        self._ports = work.ports

    def __enter__(self) -> Self:
        self.process.__enter__()
        self.client = Client(
            self.process.endpoints, trainer_id=0, num_trainers=1, wire="plain", timeout_s=PATIENCE_S
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.process.__exit__(None, None, None)

    def saved_s(self) -> list[float]:
        """Return how long the checkpoint of each port took, of those that are whole."""
        (log,) = self._log.glob("*.INFO")
        found = re.findall(r"checkpoint of batch \d+: \d+ bytes in ([\d.]+) s", log.read_text())
        return [float(each) for each in found]

    def has_saved(self) -> bool:
        """Return whether every port has."""
        return len(self.saved_s()) >= self._ports


def timed(work: Callable[[], object], is_over: Callable[[int], bool]) -> Samples:
    """Do something again and again until `is_over(times)`; return the seconds that each took."""
    took: list[float] = []
    while not is_over(len(took)):
        at = time.monotonic()
        work()
        took.append(time.monotonic() - at)
    return Samples(tuple(took))


def measure(work: Work, scratch: Path, report: Report) -> None:
    """Train, write a checkpoint meanwhile, and begin again with it.

    Raises:
        RuntimeError: the checkpoint does not come.
    """
    folder, name = scratch / work.name, work.name
    folder.mkdir()
    period = work.fills + work.quiet
    with Serving(work, scratch, f"--checkpoint_dir={folder}", f"--checkpoint_period={period}") as serving:
        work.create(serving.client)
        work.fill(serving.client)
        before = timed(lambda: work.push(serving.client), lambda times: times == work.quiet)
        deadline = time.monotonic() + SAVE_LIMIT_S

        def is_saved(times: int) -> bool:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no checkpoint within {SAVE_LIMIT_S:.0f} s")
            return serving.has_saved()

        during = timed(lambda: work.push(serving.client), is_saved)
        saved_s = max(serving.saved_s()[: work.ports])
    newest = max(folder.glob("v*"))
    nbytes = sum(path.stat().st_size for path in newest.rglob("state.bin"))
    report.add(f"{name}_bytes", nbytes / GB, "GB", "the checkpoint")
    report.add(f"{name}_step", mean(before), "s", "a push before the checkpoint, on average")
    report.add(f"{name}_step_saving", mean(during), "s", "a push while it was written, on average")
    report.add(f"{name}_longest_step", before.high, "s", "the longest push before")
    report.add(f"{name}_longest_step_saving", during.high, "s", "the longest push while it was written")
    report.compare(f"{name}_speed_while_saving", f"{name}_step", f"{name}_step_saving")
    raw = min(nbytes, int(RAW_GB * GB))
    report.add(
        f"{name}_raw_write", raw / written_s(scratch, raw) / GB, "GB/s", "the disk: one file, one fsync"
    )
    report.add(f"{name}_save", nbytes / saved_s / GB, "GB/s", f"the checkpoint, in {saved_s:.1f} s")
    report.compare(f"{name}_save_vs_raw", f"{name}_save", f"{name}_raw_write")
    report.add(
        f"{name}_raw_read",
        nbytes / read_s(newest) / GB,
        "GB/s",
        "the disk: the same files in their order",
    )
    forget(newest)
    with Serving(work, scratch, f"--checkpoint_dir={folder}", "--resume=latest") as serving:
        begun = time.monotonic()
        work.create(serving.client)
        loaded_s = time.monotonic() - begun
    report.add(
        f"{name}_load", nbytes / loaded_s / GB, "GB/s", f"until trainers may go on, in {loaded_s:.1f} s"
    )
    report.compare(f"{name}_load_vs_raw", f"{name}_load", f"{name}_raw_read")
    shutil.rmtree(folder)


def mean(samples: Samples) -> float:
    """Return the average of samples; the median would not see the steps that wait."""
    return sum(samples.values) / len(samples.values)


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints")
    parser.add_argument("--gb", type=float, default=8.0, help="state of the table")
    parser.add_argument("--dense_gb", type=float, default=3.6, help="state of dense parameters")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="on the disk that is to be measured")
    parser.add_argument("--only", default="sparse,dense", metavar="NAMES")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    args = parser.parse_args()
    facts = machine.describe(("numpy", "pyzmq", "numba"))
    report = Report(tell=tell)
    makers = {"sparse": lambda: sparse(args.gb), "dense": lambda: dense(args.dense_gb)}
    with tempfile.TemporaryDirectory(prefix="paddle-checkpoints-", dir=args.dir) as scratch:
        for name in args.only.split(","):
            measure(makers[name](), Path(scratch), report)
    report.show(facts, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
