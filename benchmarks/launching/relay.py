# SPDX-License-Identifier: Apache-2.0
"""How long 100 MB take to many hosts when every cable, the launcher's too, is as slow as a real network's.

The measure of things is one copy to one host over the same cable: who sends n copies from one machine needs n times as
long, hosts that pass on what they got need little more than one.
"""

from __future__ import annotations

from benchmarks.launching.dispatch import BIG, MB
from benchmarks.launching.our_jobs import OurJobs
from benchmarks.launching.rivals import Rivals
from benchmarks.launching.run import Run, fill
from benchmarks.launching.start import timed
from benchmarks.timing import Contender, interleave
from tests.cluster.hosts import Cluster

MBIT = 200


def measure(run: Run, count: int) -> None:
    """Send to `count` hosts, and to one."""
    ours, one = f"relay_100MB_{count}_ours", f"relay_100MB_{count}_one_copy"
    workspace = run.workspace("relay")
    payload = workspace / "model.bin"
    fill(payload, run.size(BIG.files["model.bin"]), seed=0)
    with Cluster(count) as cluster:
        jobs, rivals = OurJobs(cluster, run.scratch), Rivals(cluster)
        sent: list[int] = []

        def send(turn: int) -> float:
            times = jobs.run(workspace)
            sent.append(times.gate_sent)
            return times.dispatched_s

        cluster.slow(MBIT)
        found, failed = interleave(
            [
                Contender(one, lambda _: timed(cluster, rivals.one_copy(payload, "/root/one_copy"))),
                Contender(ours, send, lambda _: jobs.forget("ours")),
            ],
            run.long_turns,
        )
    notes = {
        ours: f"to {count} hosts, every cable at {MBIT} Mbit/s",
        one: f"ssh 'cat > file' to one host at {MBIT} Mbit/s",
    }
    run.report.add_all(found, failed, "s", notes)
    if ours in found:
        run.report.add(f"{ours}_sent", sorted(sent)[len(sent) // 2] / MB, "MB", "left the launcher's machine")
    run.report.compare(f"relay_100MB_{count}_vs_one_copy", ours, one)
