# SPDX-License-Identifier: Apache-2.0
"""The template's word2vec as a job, and what is left to compare when it is done."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

from tests.cluster.hosts import ROOT
from tests.cluster.jobs.job import JobRunner, files

TEMPLATE = ROOT / "workspace_template"
TEXT = "the cat sat on the mat\na dog ran to the door\n" * 60
PASSES = 2
# As many threads in each trainer, whatever the machine has: sums of floats keep their order.
ONE_THREAD = ("--env=OMP_NUM_THREADS=1", "--env=OPENBLAS_NUM_THREADS=1")
JOB_S = 120


class Learnt(NamedTuple):
    """What a job leaves.

    Attributes:
        parameters: of the last pass, by name.
        costs: of each trainer, pass by pass.
        logs: the names below log/.
    """

    parameters: dict[str, bytes]
    costs: list[list[str]]
    logs: list[str]


def learn_word2vec(job: JobRunner, *args: str) -> Learnt:
    """Run word2vec to its end."""
    prepare(job.workspace)
    launch = job.start(f"--num_passes={PASSES}", *ONE_THREAD, *args)
    assert launch.wait(JOB_S) == 0, launch.output
    log = job.workspace / "log"
    return Learnt(
        parameters(job.workspace / f"output/pass-{PASSES - 1:05d}/params.tar.gz"),
        [costs(job.log(node, "train.log")) for node in range(3)],
        files(log),
    )


def prepare(folder: Path) -> None:
    """The template, and the data of a small text in three pieces."""
    shutil.copytree(TEMPLATE, folder, dirs_exist_ok=True)
    (folder.parent / "text.txt").write_text(TEXT)
    words = [f"--corpus={folder.parent / 'text.txt'}", "--split_count=3", f"--out={folder}"]
    subprocess.run(
        [sys.executable, str(folder / "prepare.py"), *words], check=True, capture_output=True, timeout=60
    )


def parameters(model: Path) -> dict[str, bytes]:
    """What a model file holds, by name."""
    with tarfile.open(model) as tar:
        return {each.name: file.read() for each in tar if (file := tar.extractfile(each)) is not None}


def costs(log: str) -> list[str]:
    """What a trainer said at the end of each pass."""
    return re.findall(r"^Pass .*", log, re.MULTILINE)
