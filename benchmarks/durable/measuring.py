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

    def resumed_s(self) -> float:
        """Return how long the port that took longest read and filled in its part of the checkpoint."""
        (log,) = self._log.glob("*.INFO")
        return max(map(float, re.findall(r"resumed from the checkpoint .* in ([\d.]+) s", log.read_text())))


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
        RuntimeError: the checkpoint does not come, or another state comes back.
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

        seen = work.seen(serving.client)
        during = timed(lambda: work.push(serving.client), is_saved)
        after = timed(lambda: work.push(serving.client), lambda times: times == work.quiet)
        saved_s = max(serving.saved_s()[: work.ports])
    newest = max(folder.glob("v*"))
    nbytes = sum(path.stat().st_size for path in newest.rglob("state.bin"))
    report.add(f"{name}_bytes", nbytes / GB, "GB", "the checkpoint")
    for what, pushes in (("", before), ("_saving", during), ("_after", after)):
        when = {"": "before", "_saving": "while it was written", "_after": "afterwards"}[what]
        report.add(
            f"{name}_step{what}", mean(pushes), "s", f"a push {when}, on average of {len(pushes.values)}"
        )
        report.add(f"{name}_longest_step{what}", pushes.high, "s", f"the longest push {when}")
    report.compare(f"{name}_speed_while_saving", f"{name}_step", f"{name}_step_saving")
    raw = min(nbytes, int(RAW_GB * GB))
    for what, past_cache in (("", True), ("_cached", False)):
        how = "past the page cache" if past_cache else "through the page cache"
        speed = raw / written_s(scratch, raw, past_cache=past_cache) / GB
        report.add(f"{name}_raw_write{what}", speed, "GB/s", f"the disk: one file, one fsync, {how}")
        speed = nbytes / read_s(newest, past_cache=past_cache) / GB
        report.add(f"{name}_raw_read{what}", speed, "GB/s", f"the disk: the same files, {how}")
    report.add(f"{name}_save", nbytes / saved_s / GB, "GB/s", f"the checkpoint, in {saved_s:.1f} s")
    report.compare(f"{name}_save_vs_raw", f"{name}_save", f"{name}_raw_write")
    report.add(f"{name}_memory", raw / memory_s(raw) / GB, "GB/s", "memory that nobody has touched is found")
    begin_again(work, scratch, report, (nbytes, seen))
    shutil.rmtree(folder)


def begin_again(work: Work, scratch: Path, report: Report, expected: tuple[int, bytes]) -> None:
    """Start a server with the checkpoint.

    Args:
        expected: bytes of the checkpoint, and what was `seen` at its batch.

    Raises:
        RuntimeError: another state comes back.
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
        raise RuntimeError(f"{name}: the values that came back are not those of the checkpoint")
    report.add(f"{name}_load", nbytes / loaded_s / GB, "GB/s", f"read and filled in, in {loaded_s:.1f} s")
    report.add(f"{name}_ready", ready_s, "s", "until trainers may go on, their first values included")
    report.add(f"{name}_first_step", first_s, "s", "the first push afterwards")
    for raw in ("raw_read", "raw_read_cached", "memory"):
        report.compare(f"{name}_load_vs_{raw}", f"{name}_load", f"{name}_{raw}")


def once(work: Callable[[], object]) -> float:
    """Do something; return the seconds it took."""
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


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
