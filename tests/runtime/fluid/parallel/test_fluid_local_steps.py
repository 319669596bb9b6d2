# SPDX-License-Identifier: Apache-2.0
"""Trainers without servers that average parameters: real processes, asynchronous or with local SGD."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from tests.nursery import Forked
from tests.ports import free_range
from tests.runtime.collective.ranks import KEY, endpoints
from tests.runtime.fluid.parallel.averaging_trainer import Plan

RUNTIME = Path(__file__).resolve().parents[4] / "runtime"
TRAINER = Path(__file__).with_name("averaging_trainer.py")
LIMIT_S = 60.0
ASYNCHRONOUS = {"sync_mode": False}
LOCAL_SGD = {"k_steps": 4}


@contextlib.contextmanager
def trainers(plan: Plan, **names: str) -> Iterator[list[Forked]]:
    """Start every trainer of a plan; those that are left are killed."""
    everyone = endpoints(len(plan.batches))
    started = [
        Forked(
            "fluid",
            [str(TRAINER), json.dumps(asdict(plan))],
            {
                **os.environ,
                "PYTHONPATH": str(RUNTIME),
                "PADDLE_JOB_KEY": KEY,
                "PADDLE_TRAINER_ID": str(rank),
                "PADDLE_TRAINER_ENDPOINTS": ",".join(everyone),
                "PADDLE_CURRENT_ENDPOINT": everyone[rank],
                **names,
            },
            None,
            apart=True,
        )
        for rank in range(len(everyone))
    ]
    try:
        yield started
    finally:
        for each in started:
            each.kill()
            each.communicate(timeout=LIMIT_S)


def ended(started: Sequence[Forked]) -> list[tuple[int, str, str]]:
    """How each ended: exit code, what it said, and stderr."""
    found = []
    for each in started:
        out, err = each.communicate(timeout=LIMIT_S)
        found.append((each.wait(), out, err))
    return found


def results(plan: Plan, **names: str) -> list[dict[str, Any]]:
    """Run a plan in which all goes well, and return what each trainer found."""
    with trainers(plan, **names) as started:
        ends = ended(started)
    assert [code for code, _, _ in ends] == [0] * len(ends), "".join(err for _, _, err in ends)
    return [json.loads(out.splitlines()[-1]) for _, out, _ in ends]


@pytest.mark.parametrize(
    ("config", "way"),
    [
        (ASYNCHRONOUS, "auto"),
        (ASYNCHRONOUS, "tcp"),
        ({"sync_mode": False, "k_steps": 3}, "tcp"),
        (LOCAL_SGD, "auto"),
    ],
)
def test_trainers_with_different_numbers_of_batches_end_with_the_same_bits(
    config: dict[str, Any], way: str
) -> None:
    found = results(Plan(config, (12, 5, 0), epochs=2), PADDLE_COLLECTIVE_WAY=way)
    assert len({each["bits"] for each in found}) == 1


def test_with_as_many_samples_they_learn_as_much_as_trainers_that_sum_gradients() -> None:
    batches = (150,) * 3
    known_nothing = float(np.log(2))
    summed = results(Plan({}, batches))[0]["loss"]
    assert summed < 0.2 * known_nothing
    for config in (ASYNCHRONOUS, {"sync_mode": False, "k_steps": 3}, LOCAL_SGD):
        found = results(Plan(config, batches))[0]["loss"]
        assert known_nothing - found > 0.9 * (known_nothing - summed), config


def test_a_trainer_that_stands_still_holds_up_no_other() -> None:
    plan = Plan(ASYNCHRONOUS, (40, 40, 40), pauses={"2": 1})
    with trainers(plan) as started:
        for each in started[:2]:
            assert each.stdout is not None
            assert each.stdout.readline() == "through\n"  # all their steps, while the third has made one
        slow = started[2]
        assert slow.stdin is not None
        print(file=slow.stdin, flush=True)
        ends = ended(started)
    assert [code for code, _, _ in ends] == [0] * 3, ends
    assert len({out.splitlines()[-1] for _, out, _ in ends}) == 1


def test_trainers_that_just_end_wait_for_each_other() -> None:
    with trainers(Plan(ASYNCHRONOUS, (2, 30, 5), averages=False)) as started:
        ends = ended(started)
    assert [(code, err) for code, _, err in ends] == [(0, "")] * 3


@pytest.mark.parametrize(
    ("config", "fall", "words"),
    [
        (ASYNCHRONOUS, "killed", "PeerLost: rank 1"),
        (LOCAL_SGD, "killed", "PeerLost: rank 1"),
        (ASYNCHRONOUS, "raises", "rank 1 has failed: ZeroDivisionError('a bad batch')"),
    ],
)
def test_a_trainer_that_falls_is_named_by_all_others(config: dict[str, Any], fall: str, words: str) -> None:
    with trainers(Plan(config, (60, 60, 60), falls={"1": (7, fall)})) as started:
        ends = ended(started)
    assert [code for code, _, _ in ends] == [1, -9 if fall == "killed" else 1, 1]
    assert all(words in ends[rank][2] for rank in (0, 2)), ends


def test_it_runs_under_launch(tmp_path: Path) -> None:
    plan = Plan(ASYNCHRONOUS, (9, 3, 6))
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "paddle.distributed.launch", "--selected_gpus=0,1,2"),
            *(
                f"--started_port={free_range(3)}",
                f"--log_dir={tmp_path}",
                str(TRAINER),
                json.dumps(asdict(plan)),
            ),
        ],
        env={**os.environ, "PYTHONPATH": str(RUNTIME)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    logs = [(tmp_path / f"workerlog.{rank}").read_text().splitlines()[-1] for rank in range(3)]
    assert len({json.loads(log)["bits"] for log in logs}) == 1


def small(**settings: Any) -> Any:
    """A transpiler with settings, for a program of one layer."""
    x = fluid.layers.data("x", [4])
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.fc(x, 1)))
    return fluid.DistributeTranspiler(fluid.DistributeTranspilerConfig(**settings))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "nccl2", "k_steps": 0}, "k_steps: expected 1 or more steps between averages, got 0"),
        ({"mode": "nccl2", "k_steps": 2.5}, "k_steps: expected 1 or more steps between averages, got 2.5"),
        ({"mode": "nccl2", "k_steps": "4"}, "k_steps: expected 1 or more steps between averages, got '4'"),
        (
            {"k_steps": 2},
            "k_steps is 2, but parameter servers do not average parameters: use mode='nccl2'",
        ),
        ({"mode": "nccl2", "enable_dc_asgd": True}, "enable_dc_asgd is a correction on parameter servers"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        small(**settings)


@pytest.mark.parametrize("value", [False, 0])
@pytest.mark.parametrize("place", ["settings", "argument"])
def test_asynchronous_is_what_is_false_in_either_place(place: str, value: Any) -> None:
    one = "127.0.0.1:6170"
    transpiler = small(mode="nccl2", **({"sync_mode": value} if place == "settings" else {}))
    given = {"sync_mode": value} if place == "argument" else {}
    transpiler.transpile(0, trainers=one, current_endpoint=one, **given)
    assert transpiler.sync_mode is False


@pytest.mark.parametrize("value", ["False", 2])
def test_a_mode_that_is_neither_is_refused(value: Any) -> None:
    one = "127.0.0.1:6170"
    with pytest.raises(ValueError, match=r"sync_mode: expected True or False, got"):
        small(mode="nccl2", sync_mode=value).transpile(0, trainers=one, current_endpoint=one)


def test_a_distributed_table_needs_servers() -> None:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    fluid.layers.embedding(ids, [10, 2], is_sparse=True, is_distributed=True, param_attr="table")
    t = small(mode="nccl2")
    with pytest.raises(ValueError, match=r"embedding 'table' .* use mode='pserver'"):
        t.transpile(0, trainers="a:1,b:1", current_endpoint="a:1", sync_mode=False)
    t.transpile(0, trainers="a:1,b:1", current_endpoint="a:1")


def test_mpi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_COLLECTIVE_WAY", "mpi")
    x = fluid.layers.data("x", [4])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    config = fluid.DistributeTranspilerConfig(mode="nccl2", sync_mode=False)
    fluid.DistributeTranspiler(config).transpile(0, trainers="a:1,b:1", current_endpoint="a:1")
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(fluid.default_main_program())
    with pytest.raises(ValueError, match="call with_data_parallel first"):
        program.average(exe)
    program.with_data_parallel(loss.name, num_trainers=2)
    with pytest.raises(RuntimeError, match="PADDLE_COLLECTIVE_WAY is 'mpi'"):
        program.average(exe)
