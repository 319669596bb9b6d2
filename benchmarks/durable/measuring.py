# SPDX-License-Identifier: Apache-2.0
"""The measurements of `benchmarks.checkpoints`."""

from __future__ import annotations

import argparse
import operator
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from benchmarks import machine
from benchmarks.durable.disk import forget, memory_s, read_s, written_s
from benchmarks.durable.works import GB, Work, dense, sparse
from benchmarks.report import Report, tell
from benchmarks.timing import Samples
from paddle.pserver import Client
from tests.runtime.pserver.pserver_process import PserverProcess

PATIENCE_S, SAVE_LIMIT_S = 300.0, 400.0
RAW_GB = 2.0


class Serving:
    """A server process, and a client that leaves no state behind; a context manager."""

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
        """Return how long each port's checkpoint took, for the completed ones."""
        (log,) = self._log.glob("*.INFO")
        found = re.findall(r"checkpoint of batch \d+: \d+ bytes in ([\d.]+) s", log.read_text())
        return [float(each) for each in found]

    def has_saved(self, times: int) -> bool:
        """Return whether every port has saved the given number of times."""
        return len(self.saved_s()) >= times * self._ports

    def resumed_s(self) -> float:
        """Return how long the slowest port took to read and restore its part of the checkpoint."""
        (log,) = self._log.glob("*.INFO")
        return max(map(float, re.findall(r"resumed from the checkpoint .* in ([\d.]+) s", log.read_text())))


def timed(work: Callable[[], object], is_over: Callable[[int], bool]) -> Samples:
    """Repeat an operation until `is_over(times)`; return the seconds of each."""
    took: list[float] = []
    while not is_over(len(took)):
        at = time.monotonic()
        work()
        took.append(time.monotonic() - at)
    return Samples(tuple(took))


@dataclass(frozen=True)
class Round:
    """A checkpoint, and the pushes around it.

    Attributes:
        before, during, after: seconds of each push; `during`: until the checkpoint is complete.
    """

    before: Samples
    during: Samples
    after: Samples

    @property
    def quiet_s(self) -> float:
        """Return the average duration of a push without a checkpoint."""
        return mean(Samples(self.before.values + self.after.values))

    @property
    def kept(self) -> float:
        """Return the fraction of its speed that training retained."""
        return self.quiet_s / mean(self.during)

    @property
    def lost_s(self) -> float:
        """Return how much later the pushes during the checkpoint finished, in seconds."""
        return sum(self.during.values) - len(self.during.values) * self.quiet_s


def train(work: Work, serving: Serving, rounds: int) -> tuple[list[Round], bytes]:
    """Push without a pause, during and between checkpoints; also return what was `seen` at the last one.

    Raises:
        RuntimeError: a checkpoint is not written.
    """
    period, found = work.fills + work.quiet, list[Round]()
    before = timed(lambda: work.push(serving.client), lambda times: times == work.quiet)
    for number in range(1, rounds + 1):
        seen = work.seen(serving.client)
        deadline = time.monotonic() + SAVE_LIMIT_S

        def is_saved(times: int, number: int = number, deadline: float = deadline) -> bool:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no checkpoint within {SAVE_LIMIT_S:.0f} s")
            return serving.has_saved(number)

        during = timed(lambda: work.push(serving.client), is_saved)
        rest = work.quiet if number == rounds else period - len(during.values) % period
        after = timed(lambda: work.push(serving.client), partial(operator.eq, rest))
        found.append(Round(before, during, after))
        before = after
    return found, seen


def measure(work: Work, scratch: Path, report: Report, rounds: int) -> None:
    """Train, write checkpoints meanwhile, and resume from the last one.

    Raises:
        RuntimeError: a checkpoint is not written, or another state is restored.
    """
    folder, name = scratch / work.name, work.name
    folder.mkdir()
    period = work.fills + work.quiet
    with Serving(work, scratch, f"--checkpoint_dir={folder}", f"--checkpoint_period={period}") as serving:
        work.create(serving.client)
        work.fill(serving.client)
        found, seen = train(work, serving, rounds)
        saved_s = statistics.median(serving.saved_s()[: work.ports * rounds])
    newest = max(folder.glob("v*"))
    nbytes = sum(path.stat().st_size for path in newest.rglob("state.bin"))
    report.add(f"{name}_bytes", nbytes / GB, "GB", "the checkpoint")
    every = {
        "": ([each.before for each in found], "before"),
        "_saving": ([each.during for each in found], "while it was written"),
        "_after": ([each.after for each in found], "afterwards"),
    }
    for what, (pushes, when) in every.items():
        count = sum(len(each.values) for each in pushes)
        means = Samples(tuple(map(mean, pushes)))
        report.add(f"{name}_step{what}", means, "s", f"mean of a push {when}, per checkpoint; {count} pushes")
        longest = Samples(tuple(each.high for each in pushes))
        report.add(f"{name}_longest_step{what}", longest, "s", f"the longest push {when}")
    kept, lost = (Samples(tuple(getattr(each, what) for each in found)) for what in ("kept", "lost_s"))
    report.add(f"{name}_kept", kept, "", "speed during a checkpoint, relative to before and afterwards")
    report.add(f"{name}_lost", lost, "s", "time that the pushes during a checkpoint took longer")
    report.compare(f"{name}_speed_while_saving", f"{name}_step", f"{name}_step_saving")
    raw = min(nbytes, int(RAW_GB * GB))
    for what, past_cache in (("", True), ("_cached", False)):
        how = "bypassing the page cache" if past_cache else "through the page cache"
        speed = raw / written_s(scratch, raw, past_cache=past_cache) / GB
        report.add(f"{name}_raw_write{what}", speed, "GB/s", f"the disk: one file, one fsync, {how}")
        speed = nbytes / read_s(newest, past_cache=past_cache) / GB
        report.add(f"{name}_raw_read{what}", speed, "GB/s", f"the disk: the same files, {how}")
    report.add(f"{name}_save", nbytes / saved_s / GB, "GB/s", f"the checkpoint, in {saved_s:.1f} s")
    report.compare(f"{name}_save_vs_raw", f"{name}_save", f"{name}_raw_write")
    report.add(f"{name}_memory", raw / memory_s(raw) / GB, "GB/s", "writing to memory for the first time")
    begin_again(work, scratch, report, (nbytes, seen))
    shutil.rmtree(folder)


def begin_again(work: Work, scratch: Path, report: Report, expected: tuple[int, bytes]) -> None:
    """Start a server with the checkpoint.

    Args:
        expected: bytes of the checkpoint, and what was `seen` at its batch.

    Raises:
        RuntimeError: another state is restored.
    """
    name, (nbytes, seen) = work.name, expected
    folder = scratch / name
    forget(folder)
    with Serving(work, scratch, f"--checkpoint_dir={folder}", "--resume=latest") as serving:
        ready_s = once(lambda: work.create(serving.client))
        loaded_s = serving.resumed_s()
        same = work.asked(serving.client) == seen
        first_s = once(lambda: work.push(serving.client))
    if not same:
        raise RuntimeError(f"{name}: the restored values differ from those of the checkpoint")
    report.add(f"{name}_load", nbytes / loaded_s / GB, "GB/s", f"reading and restoring, in {loaded_s:.1f} s")
    report.add(f"{name}_ready", ready_s, "s", "until trainers have the first values and can continue")
    report.add(f"{name}_first_step", first_s, "s", "the first push afterwards")
    for raw in ("raw_read", "raw_read_cached", "memory"):
        report.compare(f"{name}_load_vs_{raw}", f"{name}_load", f"{name}_{raw}")


def once(work: Callable[[], object]) -> float:
    """Run an operation; return its duration in seconds."""
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def mean(samples: Samples) -> float:
    """Return the average of samples; the median would ignore the steps that wait."""
    return sum(samples.values) / len(samples.values)


def main() -> int:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints")
    parser.add_argument("--gb", type=float, default=8.0, help="size of the table's state")
    parser.add_argument("--dense_gb", type=float, default=3.6, help="size of the dense parameters' state")
    parser.add_argument("--rounds", type=int, default=1, help="number of checkpoints during training")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="a directory on the disk to measure")
    parser.add_argument("--only", default="sparse,dense", metavar="NAMES")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    args = parser.parse_args()
    facts = machine.describe(("numpy", "pyzmq"))
    report = Report(tell=tell)
    makers = {"sparse": lambda: sparse(args.gb), "dense": lambda: dense(args.dense_gb)}
    with tempfile.TemporaryDirectory(prefix="paddle-checkpoints-", dir=args.dir) as scratch:
        for name in args.only.split(","):
            measure(makers[name](), Path(scratch), report, args.rounds)
    report.show(facts, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
