# SPDX-License-Identifier: Apache-2.0
"""Real servers with rows on disk: a full disk and lost rows end the training with a clear error; kill -9 loses nothing.

Small disks are mounted where no other process sees them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddle.errors import CheckpointError, PserverError
from paddle.pserver import Adagrad, Client, GrowingTable
from paddle.pserver.durable.checkpoint.folder import newest
from paddle.pserver.sparse.blocks import ROW_DTYPES
from tests.cluster.deadline import wait_for
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

ROOT = Path(__file__).resolve().parents[4]
WIDTH, ROWS, AT_ONCE = 64, 20_000, 1000
ROW_BYTES = 4 * 2 * WIDTH + 4 + 17
PERIOD, LIMIT_S = 5, 60

needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="needs root and unshare(1) to mount a small disk",
)


def server_of(folder: Path, *flags: str) -> PserverProcess:
    kept = f"--checkpoint_dir={folder}", f"--checkpoint_period={PERIOD}"
    return PserverProcess("--port=0", "--num_gradient_servers=1", *kept, *flags)


class Job:
    """Trains a table whose memory is enough for 2,000 rows; every batch looks up its rows first."""

    def __init__(self, client: Client, disk: Path | None, dtype: str = "float32") -> None:
        self.client = client
        budget: dict[str, Any] = {"memory": 2000 * ROW_BYTES, "disk": str(disk)} if disk else {}
        self.client.create({"emb": GrowingTable(WIDTH, dtype=dtype, **budget)}, Adagrad(lr=0.1))
        self.batch = self.client.resumed.version if self.client.resumed else 0

    def step(self) -> None:
        rng = np.random.default_rng(self.batch)
        ids = np.unique(rng.integers(0, ROWS, AT_ONCE))
        rows = self.client.pull_rows("emb", ids)
        noise = rng.standard_normal(rows.shape).astype(np.float32)
        self.client.push({"emb": (ids, noise + np.float32(0.1) * rows)})
        self.batch += 1

    def train(self, until: int) -> None:
        while self.batch < until:
            self.step()

    def rows(self) -> bytes:
        return bytes(np.ascontiguousarray(self.client.pull_rows("emb", np.arange(ROWS))).tobytes())


def wait_for_checkpoint(folder: Path) -> None:
    def is_there() -> bool:
        with suppress(OSError, CheckpointError):
            return newest(folder).version >= PERIOD
        return False

    wait_for(f"a checkpoint in {folder}", is_there, LIMIT_S)


@contextmanager
def job_of(server: PserverProcess, disk: Path | None, dtype: str = "float32") -> Iterator[Job]:
    with Client(server.endpoints, server.sparse_endpoints, job_key=KEY) as client:
        yield Job(client, disk, dtype)


@pytest.mark.parametrize("dtype", ROW_DTYPES)
def test_a_killed_server_continues_from_its_checkpoint_with_the_same_bits(tmp_path: Path, dtype: str) -> None:
    disk, kept = tmp_path / "disk", tmp_path / "killed"
    with server_of(tmp_path / "undisturbed") as server, job_of(server, None, dtype) as job:
        job.train(30)
        expected = job.rows()
    with server_of(kept) as server, job_of(server, disk, dtype) as job:
        job.train(18)
        wait_for_checkpoint(kept)
        server.end(signal.SIGKILL)
    assert list(disk.iterdir()) == []
    with server_of(kept, "--resume=latest") as server, job_of(server, disk, dtype) as job:
        assert 5 <= job.batch <= 15
        job.train(30)
        assert job.rows() == expected


def test_two_servers_can_use_one_directory(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    servers = [server_of(tmp_path / name) for name in "ab"]
    with servers[0], servers[1], job_of(servers[0], disk) as job, job_of(servers[1], disk) as other:
        for _ in range(6):
            job.step()
            other.step()
        assert job.rows() == other.rows()


def test_rows_that_cannot_be_read_refuse_the_batch(tmp_path: Path) -> None:
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    with server_of(kept) as server, job_of(server, disk) as job:
        job.train(8)
        wait_for_checkpoint(kept)
        files = Path(f"/proc/{server.process.pid}/fd")
        (path,) = (each for each in files.iterdir() if str(disk) in os.readlink(each))
        os.truncate(path, 1000)
        with pytest.raises(
            PserverError,
            match=r"table emb: disk .*cannot read slot .*: the file is too short; check the disk",
        ):
            job.train(30)
        assert job.batch < 30
        assert server.process.poll() is None
    with server_of(kept, "--resume=latest") as server, job_of(server, disk) as job:
        assert job.batch == 5
        job.train(12)


def on_a_small_disk(disk: Path, kept: Path) -> None:
    """Train until the disk is full; the error ends this process."""
    with server_of(kept) as server, job_of(server, disk / "rows") as job:
        job.train(PERIOD + 1)
        wait_for_checkpoint(kept)
        try:
            job.train(60)
        finally:
            assert server.process.poll() is None
            assert "is of the type tmpfs, which is not a local disk" in server.end()[1]
            assert 5 <= newest(kept).version <= job.batch


@needs_mounts
def test_a_full_disk_ends_the_training_and_leaves_the_checkpoint(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; "
        "from tests.runtime.pserver.durable import test_rows_on_a_disk_that_fails as here; "
        "here.on_a_small_disk(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    argv = ["sh", "-c", 'mount -t tmpfs -o size=5m none "$0" && exec "$@"', str(disk), sys.executable]
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", *argv, "-P", "-c", code, disk, kept],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'runtime'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "table emb: disk" in done.stderr, done.stderr
    assert "No space left on device; nothing was changed; free some space" in done.stderr, done.stderr
    with server_of(kept, "--resume=latest") as server, job_of(server, tmp_path / "larger") as job:
        assert job.batch >= 5
        job.train(job.batch + 2)
