# SPDX-License-Identifier: Apache-2.0
"""Ends many jobs by a random signal at a random moment and looks what is left: nothing may be.

    python -m tests.cluster.campaign --runs 100 --seed 2026

Every run starts a job on real hosts, half of them with grandchildren that flee (setsid, double fork, TERM ignored,
stopped, forking on and on, environment cleared), and sends INT, TERM, HUP or KILL to the launcher. After it no
process of the job may live on any host after CLEAN_S, and a stranger's job beside it must be untouched.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster.deadline import wait_for
from tests.cluster.hosts import Cluster
from tests.cluster.job import JobRunner
from tests.cluster.launch import Launch
from tests.cluster.oracle import CLEAN_S, Oracle

HOSTILE = Path(__file__).with_name("workspaces") / "hostile"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -signal.SIGKILL}
SETTING_UP_S = 1.5  # until then a job on three hosts is being set up, about
LATEST_S = 5.0
ENDED_S = 30.0


@dataclass(frozen=True)
class Blow:
    """What is done to one job.

    Attributes:
        signal: name of the signal.
        moment_s: when the launcher gets it, after its start.
        hostile: whether the trainers have grandchildren that flee.
        mode: --mode of the job.
    """

    signal: str
    moment_s: float
    hostile: bool
    mode: str


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        phase: the launcher's phase when the signal came.
        code: its exit code, -n for signal n.
        clean_s: seconds from the signal until nothing was left, or None.
        problem: what was wrong, or empty.
    """

    blow: Blow
    phase: str
    code: int | None
    clean_s: float | None
    problem: str


def blows(seed: int, runs: int) -> Iterator[Blow]:
    """The same blows for the same seed; every second one meets hostile grandchildren."""
    dice = random.Random(seed)
    for number in range(runs):
        yield Blow(
            dice.choice(SIGNALS).name,
            round(dice.uniform(0.05, dice.choice((SETTING_UP_S, LATEST_S))), 3),
            number % 2 == 1,
            dice.choice(("v2", "collective")),
        )


def strike(blow: Blow, job: JobRunner, oracle: Oracle) -> Outcome:
    """Runs one job, ends it so, and looks."""
    launch = job.start(f"--mode={blow.mode}", *([] if blow.hostile else ["--quiet"]))
    wait_for("the moment", lambda: launch.age_s >= blow.moment_s or launch.poll() is not None, 60, 0.005)
    phase = _phase(launch)
    struck_at = time.monotonic()
    number = signal.Signals[blow.signal]
    launch.send(number)
    try:
        code = launch.wait(ENDED_S)
        oracle.check_clean(within_s=max(0.0, CLEAN_S - (time.monotonic() - struck_at)))
    except AssertionError as error:
        return Outcome(blow, phase, launch.poll(), None, str(error))
    clean_s = round(time.monotonic() - struck_at, 2)
    # before Python has its handlers a signal ends it by default
    expected = {ENDS[number], -number}
    return Outcome(
        blow, phase, code, clean_s, "" if code in expected else f"exit code {code}\n{launch.output}"
    )


def _phase(launch: Launch) -> str:
    phases = [line[3:] for line in launch.output.splitlines() if line.startswith("== ")]
    return phases[-1] if phases else "before the job"


def run(runs: int, seed: int, hosts: int = 3) -> Iterator[Outcome]:
    """Runs a whole campaign on hosts of its own."""
    scratch = Path(tempfile.mkdtemp(prefix="paddle-campaign-"))
    workspace = shutil.copytree(HOSTILE, scratch / "ws")
    with Cluster(hosts) as cluster:
        oracle = Oracle(cluster)
        try:
            for blow in blows(seed, runs):
                yield strike(blow, JobRunner(cluster, workspace, scratch), oracle)
        finally:
            oracle.close()
            shutil.rmtree(scratch, ignore_errors=True)


def main(argv: list[str]) -> int:
    """Prints a line a run; 0 when nothing was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.campaign", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(argv)
    outcomes = []
    for outcome in run(given.runs, given.seed):
        outcomes.append(outcome)
        blow = outcome.blow
        said = f"clean after {outcome.clean_s} s" if not outcome.problem else f"WRONG: {outcome.problem}"
        kind = "hostile" if blow.hostile else "quiet"
        _say(
            f"{len(outcomes):3} {blow.signal:7} at {blow.moment_s:5.3f} s {kind:7} {blow.mode:10} "
            f"in {outcome.phase:14} code {outcome.code} {said}"
        )
    wrong = sum(bool(outcome.problem) for outcome in outcomes)
    slowest = max((outcome.clean_s or 0.0 for outcome in outcomes), default=0.0)
    _say(f"{len(outcomes)} runs, seed {given.seed}: {wrong} wrong, slowest clean-up {slowest} s")
    if given.json:
        given.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    return 1 if wrong else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
