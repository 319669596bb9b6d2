# SPDX-License-Identifier: Apache-2.0
"""nccl2 mode: real trainer processes without parameter servers follow one process, and say who is at fault."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.run.feeds import split_feed
from tests.nursery import Forked
from tests.runtime.collective.ranks import KEY, endpoints
from tests.runtime.fluid.parallel.nccl2_trainer import MODELS, losses

RUNTIME = Path(__file__).resolve().parents[4] / "runtime"
TRAINER = Path(__file__).with_name("nccl2_trainer.py")
# The manual's, with the addresses of a test.
SNIPPET = """
import os, sys
import numpy as np
import paddle.fluid as fluid

use_cuda = False
trainer_id = int(os.environ["PADDLE_TRAINER_ID"]) # get actual trainer id here
trainers = os.environ["PADDLE_TRAINER_ENDPOINTS"]
current_endpoint = os.environ["PADDLE_CURRENT_ENDPOINT"]
x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1, param_attr="w"), y))
fluid.optimizer.SGD(0.05).minimize(loss)
loss_name = loss.name
config = fluid.DistributeTranspilerConfig()
config.mode = "nccl2"
t = fluid.DistributeTranspiler(config=config)
t.transpile(trainer_id, trainers=trainers, current_endpoint=current_endpoint)
fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
txe = fluid.ParallelExecutor(use_cuda,
        loss_name=loss_name, num_trainers=len(trainers.split(",")), trainer_id=trainer_id)
rng = np.random.default_rng(trainer_id)
for step in range(int(sys.argv[1 + trainer_id])):
    xs = rng.standard_normal((5, 4)).astype("float32")
    txe.run([loss_name], {"x": xs, "y": xs.sum(1, keepdims=True)})
print(fluid.global_scope().get("w").tobytes().hex())
"""


def trainers(argv: Sequence[str], everyone: tuple[str, ...]) -> list[subprocess.CompletedProcess[str]]:
    """Run a program as every trainer, and return how each ended. In argv, RANK stands for the rank."""
    started = [
        Forked(
            "fluid",
            [str(rank) if each == "RANK" else each for each in argv],
            {
                **os.environ,
                "PYTHONPATH": str(RUNTIME),
                "CPU_NUM": "1",
                "PADDLE_JOB_KEY": KEY,
                "PADDLE_TRAINER_ID": str(rank),
                "PADDLE_TRAINER_ENDPOINTS": ",".join(everyone),
                "PADDLE_CURRENT_ENDPOINT": everyone[rank],
            },
            None,
            apart=True,
        )
        for rank in range(len(everyone))
    ]
    ended = []
    for process in started:
        try:
            out, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            for each in started:
                each.kill()
            raise
        ended.append(subprocess.CompletedProcess(process.args, process.wait(), out, err))
    return ended


def test_two_trainers_follow_one_process_step_by_step() -> None:
    everyone = endpoints(2)
    ended = trainers([str(TRAINER), "RANK", ",".join(everyone)], everyone)
    assert [each.returncode for each in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    parts = [json.loads(each.stdout) for each in ended]
    for model in MODELS:
        alone = losses(model)
        np.testing.assert_allclose(
            np.mean([part[model] for part in parts], axis=0), alone, rtol=1e-5, err_msg=model
        )
        assert alone[2] < alone[0]


def test_the_manuals_snippet_trains_and_trainers_end_with_the_same_bits() -> None:
    ended = trainers(["-c", SNIPPET, "5", "5"], endpoints(2))
    assert [each.returncode for each in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    assert len({each.stdout for each in ended}) == 1


def test_the_manuals_snippet_averages_parameters_over_different_numbers_of_batches() -> None:
    script = SNIPPET.replace(
        "fluid.DistributeTranspilerConfig()", "fluid.DistributeTranspilerConfig(sync_mode=False)"
    )
    ended = trainers(["-c", script.replace("print(", "txe.average()\nprint("), "5", "2"], endpoints(2))
    assert [each.returncode for each in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    assert len({each.stdout for each in ended}) == 1


def test_trainers_with_different_modes_are_told() -> None:
    script = SNIPPET.replace(
        "fluid.DistributeTranspilerConfig()", "fluid.DistributeTranspilerConfig(k_steps=2 - trainer_id)"
    )
    ended = trainers(["-c", script, "3", "3"], endpoints(2))
    assert [each.returncode for each in ended] == [1, 1]
    assert all(re.search("rank 1 and rank 0 .* sync_mode or k_steps:", each.stderr) for each in ended)


def test_a_scope_takes_one_program_where_parameters_are_averaged() -> None:
    again = """
with fluid.program_guard(fluid.Program(), fluid.Program()):
    other = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 1))
    fluid.optimizer.SGD(0.05).minimize(other)
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    txe = fluid.ParallelExecutor(use_cuda, loss_name=other.name, num_trainers=2, trainer_id=trainer_id)
    txe.run([other.name], {"x": xs})
"""
    script = SNIPPET.replace(
        "fluid.DistributeTranspilerConfig()", "fluid.DistributeTranspilerConfig(sync_mode=False)"
    )
    ended = trainers(["-c", script + again, "1", "1"], endpoints(2))
    assert [each.returncode for each in ended] == [1, 1]
    assert all("run each in its own scope (fluid.scope_guard)" in each.stderr for each in ended)


def test_a_plain_executor_trains_a_transpiled_program_with_the_other_trainers() -> None:
    parallel, loop = SNIPPET[SNIPPET.index("txe = ") :].split("rng = ")
    script = SNIPPET.replace(parallel, "exe = fluid.Executor(fluid.CPUPlace())\n").replace(
        'txe.run([loss_name], {"x": xs, "y": xs.sum(1, keepdims=True)})',
        'exe.run(feed={"x": xs, "y": xs.sum(1, keepdims=True)}, fetch_list=[loss_name])',
    )
    assert "txe" in loop
    assert "txe" not in script
    seeded = "fluid.default_startup_program().random_seed = 7\nx, y = "
    scripts = [each.replace("x, y = ", seeded) for each in (script, SNIPPET)]
    ended = [trainers(["-c", each, "5", "5"], endpoints(2)) for each in scripts]
    assert [each.returncode for pair in ended for each in pair] == [0] * 4, ended
    assert len({each.stdout for pair in ended for each in pair}) == 1


def test_a_trainer_with_fewer_batches_is_named() -> None:
    ended = trainers(["-c", SNIPPET, "3", "2"], endpoints(2))
    assert [each.returncode for each in ended] == [1, 0]
    assert "PeerDiffers: rank 1" in ended[0].stderr
    assert "all ranks need the same number of batches" in ended[0].stderr


def test_the_number_of_trainers_must_be_that_of_the_transpiled_program() -> None:
    x = fluid.layers.data("x", [4])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    config = fluid.DistributeTranspilerConfig(mode="nccl2")
    fluid.DistributeTranspiler(config).transpile(0, trainers="a:1,b:2", current_endpoint="a:1")
    with pytest.raises(ValueError, match="num_trainers is 1, but the program was transpiled for 2 trainers"):
        fluid.ParallelExecutor(False, loss.name)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, num_trainers=3
    )
    with pytest.raises(ValueError, match="num_trainers is 3"):
        fluid.Executor().run(program, {"x": np.ones((2, 4), "f4")}, [loss])


def test_a_plain_executor_does_not_average_parameters_and_accepts_scalars() -> None:
    x = fluid.layers.data("x", [1], append_batch_size=False)
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.reshape(x, [1, 1]), 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    program, exe = fluid.default_main_program(), fluid.Executor()
    config = fluid.DistributeTranspilerConfig(mode="nccl2")
    fluid.DistributeTranspiler(config).transpile(
        0, trainers="a:1,b:2", current_endpoint="a:1", sync_mode=False
    )
    with pytest.raises(ValueError, match=r"average their parameters.*call average\(\)"):
        exe.run(program, {"x": np.ones(1, "f4")}, [loss])
    assert split_feed({"x": np.float32(1)}, 1) == [{"x": np.float32(1)}]
    with pytest.raises(ValueError, match="'x' has 1 samples for 2 places"):
        split_feed({"x": np.float32(1)}, 2)


def test_a_pipeline_is_not_trained_by_several_trainers() -> None:
    x = fluid.layers.data("x", [4])
    hidden = fluid.layers.fc(x, 2)
    loss = fluid.layers.mean(fluid.layers.fc(hidden, 1))
    fluid.optimizer.PipelineOptimizer(fluid.optimizer.SGD(0.1), cut_list=[[hidden], [loss]]).minimize(loss)
    config = fluid.DistributeTranspilerConfig(mode="nccl2")
    fluid.DistributeTranspiler(config).transpile(0, trainers="a:1,b:2", current_endpoint="a:1")
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    with pytest.raises(ValueError, match="PipelineOptimizer trains in one process"):
        fluid.Executor().train_from_dataset(dataset=dataset)


def test_several_rings_and_groups_have_the_names_of_the_original() -> None:
    config = fluid.DistributeTranspilerConfig(
        mode="nccl2", nccl_comm_num=2, use_hierarchical_allreduce=True, hierarchical_allreduce_inter_nranks=2
    )
    t = fluid.DistributeTranspiler(config)
    everyone = "a:1,b:1,c:1,d:1"
    t.transpile(3, trainers=everyone, current_endpoint="d:1")
    names = set(fluid.default_startup_program().global_block().vars)
    rings = {f"Hierarchical_{way}_NCCLID_{ring}" for way in ("inter", "exter") for ring in (0, 1)}
    assert names == {"NCCLID", "NCCLID_1"} | rings
    with pytest.raises(ValueError, match="expected a divisor of 3 trainers that is 2 or more, got 2"):
        t.transpile(0, trainers="a:1,b:1,c:1", current_endpoint="a:1")
    with pytest.raises(ValueError, match=r"trainer_id 0.*'a:1'.*'d:1'"):
        t.transpile(0, trainers=everyone, current_endpoint="d:1")
