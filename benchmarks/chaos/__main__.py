# SPDX-License-Identifier: Apache-2.0
"""Injects random faults into many jobs at random moments and judges the outcome.

    python -m benchmarks.chaos --runs 500 --seed 2026 --where ssh [--only "pserver killed,link cut"] [--json FILE]

Every run starts a synchronous job of three nodes, with parameter servers, and injects one fault: a signal to the
launcher, a killed, crashed or stopped trainer or parameter server, a killed agent, a cable that is disconnected
temporarily or permanently; every second job has grandchildren that escape. Afterwards the process tables of the hosts,
an unrelated job on them, the digests of the parameters and the first cause must be as docs/reliability.md promises.
Needs root. The exit code is 0 if no promise was broken.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.chaos.faults import Blow, Fault, Missed, Struck, blows, faults
from benchmarks.chaos.ground import Ground
from tests.cluster.launch import Launch

_ENDED_S = 90.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of an injected fault.

    Attributes:
        phase: phase of the launcher at the time of the fault.
        of: what `took_s` measures; empty if the fault missed or a promise was broken.
        broken: the broken promise and the launcher's output; or empty.
    """

    blow: Blow
    phase: str
    of: str
    took_s: float
    broken: str


def campaign(where: str, seed: int, runs: int, only: Sequence[str] = ()) -> Iterator[Outcome]:
    """Run one job for each fault of a seed; if `only` is given, run only those kinds."""
    with Ground(where) as ground:
        table = faults(lambda: quiet)
        quiet = _parameters_of_a_quiet_job(ground, table["pserver killed"])
        for blow in blows(seed, runs, where):
            if not only or blow.fault in only:
                yield _run(ground, blow, table[blow.fault])


def _parameters_of_a_quiet_job(ground: Ground, fault: Fault) -> str:
    launch = ground.start(fault.job(hostile=False))
    code = launch.wait(_ENDED_S)
    found = ground.parameters()
    if code != 0 or len(found) != 1:
        raise RuntimeError(
            f"a job without faults exited with {code} and left the parameters {found}:\n{launch.output}"
        )
    return found.pop()


def _run(ground: Ground, blow: Blow, fault: Fault) -> Outcome:
    launch = ground.start(fault.job(blow.hostile))
    phase = ""
    try:
        try:
            fault.strike(ground, launch, blow)
        except Missed:
            launch.wait(_ENDED_S)
            return Outcome(blow, _phase(launch), "", 0.0, "")
        struck = Struck(ground, launch, blow, time.monotonic(), ground.beats())
        phase = _phase(launch)
        of, took_s = fault.check(struck)
    except AssertionError as error:
        outcome = Outcome(blow, phase, "", 0.0, f"{error}\n{launch.output}")
        launch.end()
        ground.sweep()
        return outcome
    finally:
        ground.heal()
    return Outcome(blow, phase, of, round(took_s, 3), "")


def _phase(launch: Launch) -> str:
    phases = [line[3:] for line in launch.output.splitlines() if line.startswith("== ")]
    return phases[-1] if phases else "before the job"


def _summary(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    times: defaultdict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.of:
            times[outcome.of].append(outcome.took_s)
    return {
        of: {"n": len(took), "p50_s": round(statistics.median(took), 3), "max_s": max(took)}
        for of, took in sorted(times.items())
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per run, and the times at the end."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument(
        "--where", choices=("ssh", "local"), default="ssh", help="hosts with sshd, or embedded nodes"
    )
    parser.add_argument(
        "--only", default="", metavar="FAULT,...", help="only these of " + ", ".join(faults(str))
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(argv)
    # Shells start background jobs with INT ignored, nohup with HUP, and jobs inherit both. TERM must unmount the disk.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    only = [word for word in given.only.split(",") if word]
    if strange := [word for word in only if word not in faults(str)]:
        parser.error(f"--only: {strange[0]!r}: expected one of {', '.join(faults(str))}")
    outcomes: list[Outcome] = []
    for outcome in campaign(given.where, given.seed, given.runs, only):
        outcomes.append(outcome)
        _say(_line(len(outcomes), outcome))
    broken, missed = sum(bool(o.broken) for o in outcomes), sum(not (o.of or o.broken) for o in outcomes)
    _say(
        f"{len(outcomes)} runs, seed {given.seed}, {given.where}: {broken} failed, {missed} ended before the fault"
    )
    summary = _summary(outcomes)
    for of, found in summary.items():
        _say(f"  {of}: {found['n']:g} times, p50 {found['p50_s']:.2f} s, max {found['max_s']:.2f} s")
    if given.json:
        told = {
            "seed": given.seed,
            "where": given.where,
            "faults": Counter(outcome.blow.fault for outcome in outcomes),
            "times": summary,
            "runs": [asdict(outcome) for outcome in outcomes],
        }
        given.json.write_text(json.dumps(told, indent=1) + "\n")
    return 1 if broken else 0


def _line(number: int, outcome: Outcome) -> str:
    blow = outcome.blow
    what = (
        f"SIG{blow.number} after {blow.moment_s:.2f} s"
        if blow.fault == "launcher signalled"
        else f"step {blow.step}"
    )
    if blow.fault in ("link cut", "path cut", "disk stalled", "files flooded"):
        what += f" for {blow.cut_s} s"
    said = f"{outcome.of} {outcome.took_s:.2f} s" if outcome.of else "ended before the fault"
    kind = " hostile" if blow.hostile else ""
    found = f"FAILED: {outcome.broken}" if outcome.broken else said
    return f"{number:3} {blow.fault} on node {blow.node}, {what}{kind}, in {outcome.phase}: {found}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
