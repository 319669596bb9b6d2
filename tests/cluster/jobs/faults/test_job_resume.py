# SPDX-License-Identifier: Apache-2.0
"""Damaged checkpoints: a job resumes from the newest one that is whole on all nodes, or stops before anything runs."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner, learnt
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

FOLDER = "/root/checkpoints"
TRAIN = ("--passes=3", "--batches=10", "--pause=0.05")
KEPT = (f"--checkpoint_dir={FOLDER}", "--checkpoint_period=7", "--checkpoint_keep=10")
DENSE = "paddle.layer.fc(input=x, size=1, act=paddle.activation.Linear())"
SPARSE = """paddle.layer.fc(size=1, act=paddle.activation.Linear(), input=[x, paddle.layer.embedding(
    input=paddle.layer.data(name="word", type=paddle.data_type.integer_value(5000)), size=8,
    param_attr=paddle.attr.Param(name="table", sparse_update=True))])"""
SHORT = ("--passes=1", "--batches=4", "--pause=0")
DAMAGED = r"batch 28 is damaged on root@node-b \(v000000000028\.\S+/part-\d-of-\d/\S+\.bin: damaged: expected checksum"


def prepare(job: JobRunner) -> None:
    """Have the job learn a table besides, of which every server has rows."""
    job.learn()
    script = job.workspace / "train.py"
    script.write_text(script.read_text().replace(DENSE, SPARSE).replace("(x / 5,))", "(x / 5,), 7 * x)"))


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def states(folders: Iterable[Path], *batches: int) -> list[Path]:
    """The data files of some batches' checkpoints in folders, empty ones left out."""
    return [
        path
        for folder in folders
        for path in sorted(folder.glob("v*/part-*/*.bin"))
        if int(path.parts[-3][1:13]) in batches and path.stat().st_size
    ]


class Trained:
    """A job with checkpoints of the batches 7, 14, 21 and 28, which runs for the first scenario that asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parameters: list[str] = []
        self._files: list[dict[Path, bytes]] = []  # of each folder

    def into(
        self, folders: Sequence[Path], job: JobRunner, oracle: Oracle, kept: Sequence[str] = KEPT
    ) -> list[str]:
        """Put the checkpoints into folders, where `kept` has a job write them; the parameters at the end."""
        with self._lock:
            if not self._parameters:
                launch = job.start(*TRAIN, *kept)
                oracle.check(launch, 0, within_s=60)
                self._parameters = learnt(launch.output)
                self._files = [
                    {
                        path.relative_to(folder): path.read_bytes()
                        for path in folder.rglob("*")
                        if path.is_file()
                    }
                    for folder in folders
                ]
        for folder, files in zip(folders, self._files, strict=True):
            for path, data in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data)
        return self._parameters


on_hosts, in_one_folder = Trained(), Trained()


def folders_of(cluster: Cluster) -> list[Path]:
    return [host.path(FOLDER) for host in cluster.hosts]


def resumed(job: JobRunner, oracle: Oracle, how: str, batch: int, *says: str) -> list[str]:
    launch = job.start(*TRAIN, *KEPT, f"--resume={how}")
    says = (*says, f"the job continues from batch {batch}, the newest one complete on all nodes")
    never = ["FIRST ERROR", *(f"end of pass {number}" for number in range(batch // 10))]
    oracle.check(launch, 0, *says, within_s=60, never=never)
    return learnt(launch.output)


def refused(job: JobRunner, oracle: Oracle, how: str, *says: str) -> None:
    launch = job.start(*TRAIN, *KEPT, f"--resume={how}")
    oracle.check(
        launch, 3, "no checkpoint is complete on all nodes", *says, never=["^== pservers", "end of pass"]
    )


@scenarios.add
def one_bit_on_one_node_costs_that_batch_alone(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    prepare(job)
    expected = on_hosts.into(folders_of(cluster), job, oracle)
    flip(states([cluster["node-b"].path(FOLDER)], 28)[0])
    refused(job, oracle, "28", DAMAGED)
    assert resumed(job, oracle, "auto", 21, DAMAGED) == expected


@scenarios.add
def bits_on_all_nodes_in_all_batches_but_one_leave_that_one(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    prepare(job)
    expected = on_hosts.into(folders_of(cluster), job, oracle)
    for path in states(folders_of(cluster), 14, 21, 28):
        flip(path)
    says = "batch 28 is damaged on root@node-a, root@node-b, root@node-c"
    assert resumed(job, oracle, "latest", 7, says) == expected


@scenarios.add
def a_job_without_a_checkpoint_that_is_whole_stops_before_anything_runs(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    prepare(job)
    folders = folders_of(cluster)
    on_hosts.into(folders, job, oracle)
    for path in states(folders[1:2], 7) + states(folders[2:], 21, 28):
        flip(path)
    for how in ("latest", "auto"):
        refused(job, oracle, how, r"batch 28 is damaged on root@node-b, root@node-c .*No server was started")
    shutil.rmtree(folders[2])
    for how in ("latest", "auto"):
        refused(job, oracle, how, r"batch 28 is not on root@node-c;.*No server was started")
    shutil.rmtree(folders[1])
    refused(job, oracle, "auto", r"batch 28 is not on root@node-b, root@node-c.*No server was started")


@scenarios.add
def files_that_later_checkpoints_build_upon_are_verified(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    prepare(job)
    expected = on_hosts.into(folders_of(cluster), job, oracle)
    bases = states([cluster["node-b"].path(FOLDER)], 14)
    names = [str(path.relative_to(cluster["node-b"].path(FOLDER))) for path in bases]
    manifests = [
        path.read_text() for path in cluster["node-b"].path(FOLDER).glob("v*28.*/part-*/manifest.json")
    ]
    assert any(name in manifest for name in names for manifest in manifests)
    for path in bases:
        flip(path)
    says = r"batch 28 is damaged on root@node-b \(v0*14\."
    assert resumed(job, oracle, "latest", 7, says) == expected


@scenarios.add
def in_a_shared_folder_all_servers_pass_over_the_same(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    prepare(job)
    job.conf["HOSTS"] = ["local"] * 3
    shared = job.workspace.parent / "shared"
    kept = (f"--checkpoint_dir={shared}", *KEPT[1:])
    expected = in_one_folder.into([shared], job, oracle, kept)
    flip(states([shared], 28)[0])
    launch = job.start(*TRAIN, *kept, "--resume=latest")
    oracle.check(
        launch, 0, "batch 28 is damaged on", "continues from batch 21", within_s=60, never=["end of pass 0"]
    )
    assert learnt(launch.output) == expected
    for path in states([shared], 7, 14, 21):
        flip(path)
    # what the second job wrote is whole, but for one bit of each part
    for path in states([shared], 28, 30):
        flip(path)
    oracle.check(
        job.start(*TRAIN, *kept, "--resume=latest"), 3, "no checkpoint is complete", never=["end of pass"]
    )


@scenarios.add
def a_job_whose_checkpoint_does_not_exist_stops_before_anything_runs(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.learn()
    job.conf["HOSTS"] = ["local"]
    folder, missing = job.workspace.parent / "checkpoints", job.workspace.parent / "missing"
    oracle.check(job.start(*SHORT, f"--checkpoint_dir={folder}", "--checkpoint_period=100"), 0)
    never = ["^== pservers", "end of pass", "Traceback"]
    for where, how in ((folder, "latest"), (missing, "latest"), (missing, "3"), (missing, "3.JOB-1")):
        launch = job.start(*SHORT, f"--checkpoint_dir={where}", "--checkpoint_period=3", f"--resume={how}")
        oracle.check(launch, 3, rf"--resume={how}: .* in {where} .*--checkpoint_period", never=never)
    kept = (f"--checkpoint_dir={missing}", "--checkpoint_period=3")
    oracle.check(job.start(*SHORT, *kept, "--resume=auto"), 0, "end of pass 0")
    oracle.check(job.start(*SHORT, *kept, "--resume=3"), 0)
    oracle.check(job.start(*SHORT, *kept, "--resume=2"), 3, rf"--resume=2: .* in {missing} ", never=never)


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
