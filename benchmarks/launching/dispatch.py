# SPDX-License-Identifier: Apache-2.0
"""Measures how long a workspace takes to reach all hosts, and how many bytes the launcher's machine sends for it.

Each side is timed from its user's perspective, from the command until the files exist. Ours: paddle.py from its start
to the end of its dispatch phase: imports, workspace digests, logins, preflight, the runtime in addition to the
workspace, verified and published as a new directory. Theirs: one command that logs in and writes into a directory.
Every turn is cold (empty hosts), unchanged (sent before) or changed (one file differs). The bytes are those of the
launcher's network device.

How long 100 MB take to many hosts when every cable, including the launcher's, is as slow as a real network's.

The reference is one copy to one host over the same cable: sending n copies from one machine takes n times as long;
hosts that relay what they received need little more than one.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.launching.our_jobs import OurJobs
from benchmarks.launching.rivals import Rivals, lacking
from benchmarks.launching.run import IDLE_SCRIPT, Run, fill
from benchmarks.launching.start import timed
from benchmarks.timing import Contender, Samples, interleave
from tests.cluster.hosts import Cluster

OURS = "ours"
COLD, UNCHANGED, CHANGED = "cold", "unchanged", "changed"
HUGE_HOSTS = 4  # the bytes per host do not depend on the others, and sixteen would need 32 GB of disk
MB = 1_000_000

NOTES = {
    OURS: "paddle.py from its start to the end of its dispatch phase",
    "openssh_tar": "tar once; xargs -P: ssh 'tar x'",
    "rsync": "xargs -P: rsync -a over ssh",
    "pdcp": "pdcp -R ssh -r",
    "fabric_put": "ThreadingGroup.put of each file; measured once",
}

Command = Callable[[Path, str], list[str]]  # copies a directory into a directory of the hosts
MBIT = 200


@dataclass(frozen=True)
class Payload:
    """The files to send.

    Attributes:
        name: used in the names of figures.
        files: file name -> bytes at full scale; the last one is changed.
    """

    name: str
    files: dict[str, int]


SMALL = Payload("2MB", {f"part-{index:03d}": 10_000 for index in range(200)})
BIG = Payload("100MB", {"model.bin": 100 * MB, "settings.txt": 1_000})
HUGE = Payload("1GB", {**{f"data-{index}": 250 * MB for index in range(4)}, "settings.txt": 1_000})


def measure_small(run: Run, count: int) -> None:
    """Measure sending many small files to `count` hosts with each tool."""
    with Cluster(count) as cluster:
        field = Field(run, cluster, SMALL)
        tools: dict[str, Command] = {"openssh_tar": field.tar, "rsync": field.rivals.rsync}
        field.measure(COLD, {**tools, "pdcp": field.rivals.pdcp})
        field.once("fabric_put", field.rivals.fabric_put)
        field.measure(UNCHANGED, tools)
        field.measure(CHANGED, tools)
        field.close()
    compare, name = run.report.compare, f"{count}_{SMALL.name}"
    compare(f"cold_{count}_vs_openssh_tar", f"cold_{name}_ours", f"cold_{name}_openssh_tar")
    compare(f"unchanged_{count}_vs_rsync", f"unchanged_{name}_ours", f"unchanged_{name}_rsync")
    compare(f"changed_{count}_vs_rsync", f"changed_{name}_ours", f"changed_{name}_rsync")
    compare(f"sending_cold_{count}_vs_openssh_tar", f"cold_{name}_ours_sending", f"cold_{name}_openssh_tar")
    compare(
        f"sending_unchanged_{count}_vs_rsync", f"unchanged_{name}_ours_sending", f"unchanged_{name}_rsync"
    )


def measure_big(run: Run, count: int) -> None:
    """Measure sending one big file to `count` hosts with each tool."""
    with Cluster(count) as cluster:
        field = Field(run, cluster, BIG)
        tools: dict[str, Command] = {"openssh_tar": field.tar, "rsync": field.rivals.rsync}
        field.measure(COLD, tools)
        field.measure(UNCHANGED, tools)
        field.measure(CHANGED, tools)
        field.close()
    compare, name = run.report.compare, f"{count}_{BIG.name}"
    compare(f"dispatch_100MB_{count}_vs_openssh", f"cold_{name}_ours", f"cold_{name}_openssh_tar")
    compare(f"unchanged_100MB_{count}_vs_rsync", f"unchanged_{name}_ours", f"unchanged_{name}_rsync")


def measure_huge(run: Run, count: int) -> None:
    """Measure sending a tree of many large files after a change of one small file."""
    with Cluster(min(count, HUGE_HOSTS)) as cluster:
        field = Field(run, cluster, HUGE, turns=1)
        field.measure(CHANGED, {"rsync": field.rivals.rsync})
        field.close()


class Field:
    """A payload on a cluster: the same tree twice, since a launch leaves logs in its workspace."""

    def __init__(self, run: Run, cluster: Cluster, payload: Payload, turns: int = 0) -> None:
        self.rivals = Rivals(cluster)
        self._run = run
        self._cluster = cluster
        self._payload = payload
        self._turns = turns or run.long_turns
        self._jobs = OurJobs(cluster, run.scratch)
        self._sent: dict[str, list[float]] = {}
        self._whole: list[float] = []
        self._sending: list[float] = []
        self._trees = {
            side: run.workspace(f"{payload.name}-{side}", IDLE_SCRIPT) for side in ("ours", "theirs")
        }
        for index, (name, size) in enumerate(payload.files.items()):
            for tree in self._trees.values():
                fill(tree / name, run.size(size), index)

    def tar(self, source: Path, target: str) -> list[str]:
        """Return the command of OpenSSH and tar."""
        return self.rivals.tar(source, target, self._run.scratch)

    def contenders(self, case: str, tools: dict[str, Command]) -> list[Contender]:
        """Return the launcher and the installed ones of these tools; unless cold, all files were sent once before."""
        available = self._available(case, tools)
        if case != COLD:
            self._jobs.run(self._trees["ours"])
            for name, tool in available.items():
                self._make_target(name)
                self._cluster.run(tool(self._trees["theirs"], _target(name)), timeout_s=600)
        return [self._contender(case, name, tool) for name, tool in {OURS: None, **available}.items()]

    def measure(self, case: str, tools: dict[str, Command]) -> None:
        """Measure all contenders in turns."""
        self._turn_about(case, self.contenders(case, tools))

    def once(self, name: str, tool: Command) -> None:
        """Measure a single cold turn of one tool."""
        self._make_target(name)
        figure = self._figure(COLD, name)
        try:
            self._run.report.add(figure, self._time(figure, tool, name), "s", NOTES[name])
        except RuntimeError as error:
            self._run.report.lack(figure, str(error)[-300:])

    def close(self) -> None:
        """Remove the sent files at both ends."""
        for name in NOTES:
            self._jobs.forget(name)
        for tree in self._trees.values():
            shutil.rmtree(tree)

    def _available(self, case: str, tools: dict[str, Command]) -> dict[str, Command]:
        programs = {"openssh_tar": "tar"}
        whys = {name: lacking(programs.get(name, name)) for name in tools}
        for name, why in whys.items():
            if why:
                self._run.report.lack(self._figure(case, name), why)
        return {name: tool for name, tool in tools.items() if not whys[name]}

    def _turn_about(self, case: str, contenders: list[Contender]) -> None:
        self._sent.clear()
        self._whole.clear()
        self._sending.clear()
        found, failed = interleave(contenders, self._turns)
        report = self._run.report
        notes = {self._figure(case, name): note for name, note in NOTES.items()}
        report.add_all(found, failed, "s", notes)
        for figure, sent in self._sent.items():
            if figure in found:
                report.add(
                    f"{figure}_sent", statistics.median(sent) / MB, "MB", "sent by the launcher's machine"
                )
        if self._sending:
            report.add(
                f"{self._figure(case, OURS)}_sending",
                Samples(tuple(self._sending)),
                "s",
                "its phases connect and dispatch alone, which the other tools also do",
            )
        if self._whole:
            report.add(
                f"{self._figure(case, OURS)}_whole_job",
                Samples(tuple(self._whole)),
                "s",
                "until the prompt returns",
            )

    def _contender(self, case: str, name: str, tool: Command | None) -> Contender:
        figure = self._figure(case, name)

        def run(turn: int) -> float:
            return self._time_ours(figure) if tool is None else self._time(figure, tool, name)

        return Contender(figure, run, lambda turn: self._prepare(case, name, turn))

    def _prepare(self, case: str, name: str, turn: int) -> None:
        if case == COLD:
            self._jobs.forget(name)
        if name == OURS:
            self._jobs.forget_jobs(OURS)
        else:
            self._make_target(name)
        if case == CHANGED:
            changing, size = list(self._payload.files.items())[-1]
            tree = self._trees["ours" if name == OURS else "theirs"]
            fill(tree / changing, size, seed=1000 + turn + (len(name) << 10))

    def _make_target(self, name: str) -> None:
        for host in self._cluster.hosts:
            (host.files.fs / "root" / name).mkdir(exist_ok=True)

    def _time_ours(self, figure: str) -> float:
        times = self._jobs.run(self._trees["ours"])
        self._sending.append(times.sending_s)
        self._sent.setdefault(figure, []).append(times.gate_sent)
        self._whole.append(times.wall_s)
        return times.dispatched_s

    def _time(self, figure: str, tool: Command, name: str) -> float:
        before, _ = self._cluster.gate_bytes()
        took_s = timed(self._cluster, tool(self._trees["theirs"], _target(name)))
        after, _ = self._cluster.gate_bytes()
        self._sent.setdefault(figure, []).append(after - before)
        return took_s

    def _figure(self, case: str, name: str) -> str:
        return f"{case}_{len(self._cluster.hosts)}_{self._payload.name}_{name}"


def _target(name: str) -> str:
    return f"/root/{name}"


def measure_relay(run: Run, count: int) -> None:
    """Measure sending a file to `count` hosts by relay, and to one host."""
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
        run.report.add(
            f"{ours}_sent", sorted(sent)[len(sent) // 2] / MB, "MB", "sent by the launcher's machine"
        )
    run.report.compare(f"relay_100MB_{count}_vs_one_copy", ours, one)
