# SPDX-License-Identifier: Apache-2.0
"""Slices in real processes: two servers and two trainers in every mode, large gradients, a server that fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.transpiler import HashName
from tests.runtime.fluid.remote import sliced_script
from tests.runtime.fluid.remote.role_processes import DEADLINE_S, Processes
from tests.runtime.fluid.transpiled_job import one_process

SCRIPT = Path(sliced_script.__file__)
STEPS = 8


def job(jobs: list[Processes], **settings: str) -> Processes:
    chosen = {
        "SYNC": "1",
        "SLICED": "1",
        "METHOD": "HashName",
        "WIDTH": "256",
        "STEPS": str(STEPS),
        **settings,
    }
    jobs.append(Processes(2, 2, SCRIPT, **chosen))
    return jobs[-1]


def losses_of(job: Processes) -> np.ndarray:
    """Run a job; return the losses of each trainer."""
    job.start_all()
    outputs = job.outputs()
    assert [process.returncode for process in job.running] == [0] * 4, outputs
    return np.array([[float(line) for line in out.split()] for out, _ in outputs[2:]])


@pytest.mark.parametrize("method", ["RoundRobin", "HashName"])
@pytest.mark.parametrize("sliced", ["1", "0"], ids=["sliced", "whole"])
@pytest.mark.parametrize("sync", ["1", "0"], ids=["synchronous", "asynchronous"])
def test_a_job_trains_however_its_parameters_are_cut_and_placed(
    jobs: list[Processes], sync: str, sliced: str, method: str
) -> None:
    losses = losses_of(job(jobs, SYNC=sync, SLICED=sliced, METHOD=method))
    if sync == "1":
        expected = one_process(lambda: sliced_script.net(256), [sliced_script.batch()] * STEPS)[0]
        np.testing.assert_allclose(losses.mean(axis=0), expected, rtol=1e-5)
    else:
        assert losses.shape == (2, STEPS)
        assert (losses[:, -1] < 0.9 * losses[:, 0]).all()


@pytest.mark.parametrize(
    ("width", "elements"),
    [("8193", 2**20 + 128), ("131200", 2**24 + 16384)],
    ids=["above a million elements", "above a message"],
)
def test_large_dense_gradients_arrive_whole_in_asynchronous_training(
    jobs: list[Processes], width: str, elements: int
) -> None:
    assert int(width) * sliced_script.IN == elements
    losses = losses_of(job(jobs, SYNC="0", SLICED="0", WIDTH=width, STEPS="2"))
    assert np.isfinite(losses).all()
    assert (losses[:, 0] != losses[:, 1]).all()


def test_trainers_of_a_server_that_fails_before_it_serves_are_told_why(jobs: list[Processes]) -> None:
    failing = job(jobs)
    first, second = failing.endpoints
    trainers = [failing.start("TRAINER", rank) for rank in range(2)]
    good = failing.start("PSERVER", 0, first)
    bad = failing.start("PSERVER", 1, second, FAILS="1")
    errors = [process.communicate(timeout=DEADLINE_S)[1] for process in trainers]
    assert [process.returncode for process in trainers] == [1, 1]
    for error in errors:
        why = "it ended before it served: FileNotFoundError: no first values here"
        assert f"PserverError: pserver {second}: {why}" in error
    bad.communicate(timeout=DEADLINE_S)
    assert bad.returncode == 1
    assert good.poll() is None  # its trainers may come again


def test_hashed_names_give_a_server_both_slices_of_a_parameter_of_this_net() -> None:
    sliced_script.net(256)
    t = fluid.DistributeTranspiler(fluid.DistributeTranspilerConfig(split_method=HashName))
    t.transpile(0, pservers="127.0.0.1:1,127.0.0.1:2", trainers=2)
    first, second = (set(each["params"]) for each in t.param_grad_ep_mapping.values())
    assert {"dense.block0", "dense.block1"} <= first
    assert {"embedding.block0", "embedding.block1"} <= second
