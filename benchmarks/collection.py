# SPDX-License-Identifier: Apache-2.0
"""Collects trees of many shapes from nodes, or sends them, over slow disks and cut connections, and compares bytes.

    python -m benchmarks.collection [--direction collect] [--files 0,1,8000,20000,100000] [--json FILE]

Each case is one job. In the direction "collect", node 0 writes the tree into output/ and every other node into log/, as
fast as possible; in the direction "dispatch", the tree is a part of the workspace. A slow disk (of the submitter, or of
the nodes for "dispatch") accepts writes a quarter of the time. A cut kills the SSH connection of the last node during
the job. A case passes if the job ends with 0 and every file and log is bit-equal at both ends. Needs root. The exit
code is 0 if all cases pass.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from tests.cluster.deadline import wait_for
from tests.cluster.host import HOME, interpreter
from tests.cluster.hosts import ROOT, Cluster
from tests.cluster.jobs.oracle import CANARY_ID
from tests.cluster.launch import Launch
from tests.cluster.stalling_disk import StallingDisk

COUNTS = (0, 1, 8_000, 20_000, 100_000)
SHAPES = {"0 B": 0, "1 B": 1, "250 B": 250, "4 kB": 4096, "mixed": -1}
LARGE = 3 << 20  # of a mixed tree
LARGE_SHARE = 500  # one of this many files is large
DISKS = ("fast", "slow")
ENDED_S = 1200.0
MAKE = f"""
import os, sys

def make(top, count, size):
    block = os.urandom({LARGE})
    for number in range(count):
        folder = top + "/" + str(number // 1000)
        if number % 1000 == 0:
            os.makedirs(folder, exist_ok=True)
        text = (str(number) + "\\n").encode() * 100
        content = block[:size] if size > 250 else text[: size if size >= 0 else 250]
        if size < 0 and number % {LARGE_SHARE} == 0:
            content = block
        with open(folder + "/f" + str(number), "wb") as file:
            file.write(content)
        if number % 200 == 0:
            print("file", number, flush=True)

"""
TRAIN = (
    MAKE
    + """
make("output" if os.environ["PADDLE_NODE_ID"] == "0" else "log/tree", int(sys.argv[1]), int(sys.argv[2]))
"""
)


@dataclass(frozen=True)
class Case:
    """The job of a case.

    Attributes:
        cut: whether the connection to the last node is killed; nodes are then reached over SSH, otherwise embedded.
    """

    direction: str
    files: int
    shape: str
    disk: str
    nodes: int
    cut: bool


@dataclass(frozen=True)
class Result:
    """The result of a case.

    Attributes:
        compared: number of compared files; differing: those that differ between the two ends.
        has_cut: whether the cut came before the job's end.
    """

    case: Case
    exit_code: int
    seconds: float
    compared: int
    differing: int
    has_cut: bool
    problem: str

    @property
    def is_right(self) -> bool:
        """Return whether all files are complete and the exit code reports success."""
        return self.problem == ""


class Bench:
    """Runs cases, each in its own folder; the disk is created before the hosts, so that they see it."""

    def __init__(self, disk: StallingDisk, cluster: Cluster | None) -> None:
        self._disk = disk
        self._cluster = cluster
        self._count = 0
        self._scratch = Path(tempfile.mkdtemp(prefix="paddle-collection-", dir="/var/tmp"))

    def close(self) -> None:
        """Remove everything that the bench created."""
        shutil.rmtree(self._scratch, ignore_errors=True)

    def run(self, case: Case) -> Result:
        """Run one job and compare both ends."""
        self._count += 1
        place = self._scratch / str(self._count)
        collects = case.direction == "collect"
        workspace = (self._disk.path if collects else place) / f"ws{self._count}"
        roots = (place if collects else self._disk.path) / f"nodes{self._count}"
        for folder in (place, workspace, roots):
            folder.mkdir(parents=True, exist_ok=True)
        if collects:
            (workspace / "train.py").write_text(TRAIN)
        else:
            call = f"make({str(workspace / 'tree')!r}, {case.files}, {SHAPES[case.shape]})"
            subprocess.run([sys.executable, "-c", MAKE + call], check=True, stdout=subprocess.DEVNULL)
            (workspace / "train.py").write_text("print('file', flush=True)\n")
        launch = self._start(case, place, workspace, roots)
        has_cut = False
        try:
            if case.disk == "slow":
                self._disk.be_slow()
            if case.cut:
                has_cut = self._cut(case, launch)
            code = launch.wait(ENDED_S)
            seconds = launch.age_s
        finally:
            self._disk.be_fast()
        try:
            return self._judge(case, launch, workspace, roots, code, seconds, has_cut)
        finally:
            self._clean(workspace, roots, place)

    def _start(self, case: Case, place: Path, workspace: Path, roots: Path) -> Launch:
        conf = place / "conf.py"
        args = [
            f"--conf={conf}",
            f"--job_dispatch_package={workspace}",
            "--mode=collective",
            "--",
            str(case.files),
            str(SHAPES[case.shape]),
        ]
        more: dict[str, object] = {"COLLECT_LIMIT_FILES": 1_000_000, "LEASE_S": 12, "STOP_GRACE_S": 1}
        if case.cut and self._cluster is not None:
            hosts = [f"{host.user}@{host.name}" for host in self._cluster.hosts[: case.nodes]]
            self._cluster.write_conf(conf, HOSTS=hosts, **more)
            return self._cluster.launch(args, cwd=place)
        text = {"HOSTS": ["local"] * case.nodes, "ROOT_DIR": str(roots), "PYTHON": interpreter(), **more}
        conf.write_text("".join(f"{name} = {value!r}\n" for name, value in text.items()))
        return Launch(
            [interpreter(), str(ROOT / "paddle.py"), *args],
            cwd=place,
            env={**os.environ, "HOME": str(place)},
            log=place / "launch.out",
        )

    def _cut(self, case: Case, launch: Launch) -> bool:
        assert self._cluster is not None
        host = self._cluster.hosts[case.nodes - 1]
        begun = r"== collect|== run" if case.direction == "collect" else r"== dispatch"
        wait_for("the middle of the job", lambda: _has(launch, begun), 120.0, 0.01)
        wait_for("a moment in it", lambda: launch.poll() is not None or launch.age_s > 2.0, 10.0, 0.01)
        return launch.poll() is None and host.drop_connections() > 0

    def _job_dirs(self, case: Case, roots: Path) -> list[Path]:
        if case.cut and self._cluster is not None:
            tops = [host.path(HOME) for host in self._cluster.hosts[: case.nodes]]
        else:
            tops = [roots / f"node_{node}" for node in range(case.nodes)]
        return [
            max(
                (path for path in top.glob("JOB*") if path.name != CANARY_ID),
                key=lambda path: path.stat().st_mtime_ns,
            )
            for top in tops
        ]

    def _judge(
        self,
        case: Case,
        launch: Launch,
        workspace: Path,
        roots: Path,
        code: int,
        seconds: float,
        has_cut: bool,
    ) -> Result:
        pairs: list[tuple[Path, Path]] = []
        for node, job_dir in enumerate(self._job_dirs(case, roots)):
            if case.direction == "dispatch":
                pairs += [(workspace / "tree", job_dir / "tree")]
            else:
                pairs += [(job_dir / "log", workspace / "log" / f"node_{node}")]
                pairs += [(job_dir / "output", workspace / "output")] if node == 0 else []
        compared, differing = 0, list[str]()
        for source, copy in pairs:
            for path in _files(source):
                compared += 1
                if not _same(source / path, copy / path):
                    differing.append(path)
            if case.direction == "dispatch":
                differing += [path for path in _files(copy) if not (source / path).exists()]
        output = launch.output
        expected = case.files * (case.nodes if case.direction == "dispatch" or case.nodes > 1 else 1)
        problem = ""
        if code not in (0, 7):
            problem = f"exit code {code}:\n{output[-3000:]}"
        elif code == 0 and (differing or compared < expected):
            problem = f"{len(differing)} files differ, {compared} of {expected} compared:\n{output[-3000:]}"
        elif code == 7:
            problem = f"exit code 7, {len(differing)} files differ:\n{output[-3000:]}"
        return Result(case, code, round(seconds, 2), compared, len(differing), has_cut, problem)

    def _clean(self, workspace: Path, roots: Path, place: Path) -> None:
        shutil.rmtree(roots if workspace.is_relative_to(self._disk.path) else workspace, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)  # files stay on the disk: ext4 skips recently freed inodes
        for host in self._cluster.hosts if self._cluster is not None else ():
            for path in host.path(HOME).glob("JOB*"):
                if path.name != CANARY_ID:
                    shutil.rmtree(path, ignore_errors=True)


def _has(launch: Launch, word: str) -> bool:
    return launch.poll() is not None or any(part in launch.output for part in word.split("|"))


def _files(top: Path) -> Iterator[str]:
    for folder, _, names in os.walk(top):
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), top)


def _same(source: Path, copy: Path) -> bool:
    try:
        return source.read_bytes() == copy.read_bytes()
    except OSError:
        return False


def cases(
    directions: Sequence[str],
    counts: Sequence[int],
    shapes: Sequence[str],
    disks: Sequence[str],
    nodes: Sequence[int],
    cuts: Sequence[bool],
) -> Iterator[Case]:
    """Return all cases as a matrix; a tree without files has only one shape."""
    for direction, count, shape, disk, node, cut in product(directions, counts, shapes, disks, nodes, cuts):
        if count or shape == shapes[0]:
            yield Case(direction, count, shape, disk, node, cut)


def campaign(wanted: Sequence[Case]) -> Iterator[Result]:
    """Run cases on one disk; those with a cut connection get hosts of their own."""
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(StallingDisk())
        hosts = max((case.nodes for case in wanted if case.cut), default=0)
        cluster = stack.enter_context(Cluster(hosts)) if hosts else None
        bench = Bench(disk, cluster)
        stack.callback(bench.close)
        for case in wanted:
            yield bench.run(case)


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per case."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.collection", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--direction", default="collect", choices=("collect", "dispatch"))
    parser.add_argument("--files", default=",".join(map(str, COUNTS)), metavar="N,...")
    parser.add_argument(
        "--shapes", default=",".join(SHAPES), metavar="SHAPE,...", help="of " + ", ".join(SHAPES)
    )
    parser.add_argument("--disks", default=",".join(DISKS), metavar="DISK,...")
    parser.add_argument("--nodes", default="1,3", metavar="N,...")
    parser.add_argument("--cuts", default="no,yes", metavar="no,yes")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(argv)
    wanted = list(
        cases(
            [given.direction],
            [int(count) for count in given.files.split(",")],
            given.shapes.split(","),
            given.disks.split(","),
            [int(count) for count in given.nodes.split(",")],
            [cut == "yes" for cut in given.cuts.split(",")],
        )
    )
    results: list[Result] = []
    begun = time.monotonic()
    for result in campaign(wanted):
        results.append(result)
        case = result.case
        cut = "cut" if result.has_cut else "no cut" if case.cut else "embedded"
        sys.stdout.write(
            f"{len(results):3} {case.direction} {case.files} x {case.shape}, {case.disk}, {case.nodes} nodes, {cut}: "
            f"exit {result.exit_code}, {result.compared} compared, {result.differing} differ, {result.seconds:.1f} s"
            f"{' WRONG: ' + result.problem if result.problem else ''}\n"
        )
        sys.stdout.flush()
        if given.json:
            told = {"seconds": round(time.monotonic() - begun), "results": [asdict(one) for one in results]}
            given.json.write_text(json.dumps(told, indent=1) + "\n")
    wrong = sum(not result.is_right for result in results)
    sys.stdout.write(
        f"{len(results)} cases, {wrong} wrong, {sum(one.compared for one in results)} files compared\n"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
