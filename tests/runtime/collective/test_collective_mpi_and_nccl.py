# SPDX-License-Identifier: Apache-2.0
"""The same operations through MPI, in real processes of mpirun, and through NCCL, on a GPU."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paddle.backend import Device
from paddle.collective import connect_group
from paddle.collective.group import under_mpirun
from paddle.collective.nccl import NcclRanks
from tests.runtime.collective.ranks import members

RUNTIME = Path(__file__).resolve().parents[3] / "runtime"
IN_MPI = """
import sys
import numpy as np
from mpi4py import MPI
from paddle import collective

rank = MPI.COMM_WORLD.rank
me = collective.Membership.of(rank, ["127.0.0.1:1", "127.0.0.1:2"], job_key="ab", timeout_s=20)
ranks = collective.connect(me)
assert ranks.ways == ("mpi",)
arrays = [np.full(1000, rank + 1.0), np.full((2, 3), float(rank))]
ranks.all_reduce(arrays)
assert (arrays[0] == 3).all() and (arrays[1] == 1).all()
array = np.full(5, rank)
ranks.broadcast(array, 1)
assert (array == 1).all()
assert [len(each) for each in ranks.all_gather(np.ones((2 * rank, 3)))] == [0, 2]
ranks.agree("program", "the same")
ranks.barrier()
if sys.argv[1] == "differs":
    ranks.all_reduce(np.ones(3 + rank))
"""


@pytest.mark.skipif(
    shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None,
    reason="needs mpirun and mpi4py",
)
@pytest.mark.parametrize(("how", "says"), [("agrees", ""), ("differs", "rank 1 is at operation")])
def test_ranks_of_mpirun_are_mpis(how: str, says: str) -> None:
    ended = subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable, "-c", IN_MPI, how],
        env={**os.environ, "PYTHONPATH": str(RUNTIME)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode == 0) is (not says), ended.stderr
    assert says in ended.stderr


def test_the_names_that_the_launcher_sets_are_not_taken_for_mpirun() -> None:
    assert not under_mpirun({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "RANK": "0"})


@pytest.mark.gpu
def test_arrays_on_a_gpu_are_summed_there() -> None:
    device = Device("gpu:0")
    xp = device.module()
    with device.active(), NcclRanks(connect_group(members(1)[0]), device, 20.0) as ranks:
        arrays = [xp.arange(1000, dtype=np.float32), xp.ones((3, 4), np.float32)]
        ranks.all_reduce(arrays)
        ranks.broadcast(arrays, 0)
        ranks.barrier()
        ranks.agree("program", "x")
        np.testing.assert_array_equal(arrays[0].get(), np.arange(1000, dtype=np.float32))
        assert [each.get().tolist() for each in ranks.all_gather(arrays[1][:1])] == [[[1.0] * 4]]
