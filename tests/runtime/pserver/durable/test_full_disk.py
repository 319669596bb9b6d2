# SPDX-License-Identifier: Apache-2.0
"""A disk that is really full, under checkpoints and under the state in memory: training continues, and says so.

Each test works on a small file system of its own, mounted where no other process sees it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle.errors import PserverError
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.durable.checkpoint.folder import newest
from paddle.pserver.recovery import Safety
from tests.runtime.pserver.kept_job import KeptJob, same_bits

ROOT = Path(__file__).resolve().parents[4]
ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.1, hyper={"epsilon": 1e-6})
LIMIT_S = 60

needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="needs root and unshare(1) to mount a small disk",
)


def fill(disk: Path) -> Path:
    """Take all room that is left on a disk."""
    path = disk / "filler"
    with path.open("wb") as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    os.write(file.fileno(), bytes(size))
            except OSError:
                continue
    assert shutil.disk_usage(disk).free == 0
    return path


def a_checkpoint(disk: Path) -> None:
    """Batch 10 finds no room, batch 15 does."""
    job = KeptJob(Safety(checkpoints=disk, period=5), ADAGRAD)
    job.train(0, 7)
    filler = fill(disk)
    job.train(7, 12)
    assert newest(disk).version == 5
    assert not list(disk.glob(".unfinished*"))
    filler.unlink()
    job.train(12, 15)
    expected = job.values()
    job.close()
    again = KeptJob(Safety(checkpoints=disk, resume="latest"), ADAGRAD)
    assert {engine.version for engine in again.engines} == {15}
    assert same_bits(again.values(), expected)


def the_state(disk: Path) -> None:
    """A server that is killed while there is no room cannot come back; later one can."""
    shifts = [0.0]
    job = KeptJob(Safety(state=disk), ADAGRAD, num_dense=1, clock=lambda: time.monotonic() + shifts[0])
    job.train(0, 3)
    filler = fill(disk)
    job.train(3, 6)
    with pytest.raises(PserverError, match="the state would be lost"):
        KeptJob.revived(Safety(state=disk), 1)
    filler.unlink()
    shifts[0] = 61.0
    job.train(6, 9)
    (revived,) = KeptJob.revived(Safety(state=disk), 1)
    assert revived.version == 9
    assert revived.facts() == job.engines[0].facts()


@needs_mounts
@pytest.mark.parametrize(
    ("work", "said"),
    [
        (a_checkpoint, "no checkpoint of batch 10 in .*No space left on device; 0 bytes are free"),
        (the_state, r"cannot save the state .*No space left on device; 0 bytes are free.*training continues"),
    ],
)
def test_training_goes_on_without_room_and_is_safe_again_with_it(
    work: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.runtime.pserver.durable import test_full_disk as here; "
        "getattr(here, sys.argv[1])(Path(sys.argv[2]))"
    )
    argv = ["sh", "-c", 'mount -t tmpfs -o size=300m none "$0" && exec "$@"', str(tmp_path)]
    done = subprocess.run(
        [
            "unshare",
            "-m",
            "--propagation",
            "private",
            *argv,
            sys.executable,
            "-P",
            "-c",
            code,
            work.__name__,
            tmp_path,
        ],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'runtime'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(said, done.stderr.replace("\n", " ")), done.stderr
