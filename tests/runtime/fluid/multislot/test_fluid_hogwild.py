# SPDX-License-Identifier: Apache-2.0
"""Training from datasets on several threads, and samples that trainers exchange."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.multislot.samples import Samples, joined, shared_out
from paddle.fluid.multislot.text import DataLineError
from paddle.graph.errors import ExecutionError
from tests.runtime.collective.ranks import endpoints, members, together
from tests.runtime.fluid.multislot import click_net
from tests.runtime.pserver.pserver_process import ROOT


def trained(tmp_path: Path, threads: int, capsys: pytest.CaptureFixture[str], kind: str) -> list[float]:
    """Return the cost of each batch of a pass, in the order of the batches."""
    paths = click_net.write(tmp_path, *(click_net.rows(160, seed) for seed in range(6)))
    slots, cost, _ = click_net.net()
    fluid.optimizer.Adagrad(0.1).minimize(cost)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    made = click_net.dataset(paths, slots, kind)
    made.set_thread(threads)
    if kind == "InMemoryDataset":
        made.load_into_memory()
    exe.train_from_dataset(dataset=made, fetch_list=[cost], fetch_info=["cost"], print_period=1, debug=True)
    out = capsys.readouterr().out
    told = {int(at): float(value) for at, value in re.findall(r"^batch (\d+): cost: \[([\d.]+)\]", out, re.M)}
    assert sorted(told) == list(range(60))
    assert "60 batches, 960 samples in" in out
    return [told[at] for at in range(60)]


@pytest.mark.parametrize("kind", ["QueueDataset", "InMemoryDataset"])
def test_several_threads_train_each_batch_one_time_and_learn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    costs = trained(tmp_path, 3, capsys, kind)
    assert np.mean(costs[-15:]) < 0.8 * np.mean(costs[:5])  # 0.50 with one thread; with three 0.49 to 0.65


def test_several_threads_infer_what_one_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = click_net.write(tmp_path, *(click_net.rows(32, seed) for seed in range(4)))
    slots, cost, _ = click_net.net()
    fluid.optimizer.SGD(0.1).minimize(cost)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    found = []
    for threads in (1, 4):
        made = click_net.dataset(paths, slots, "InMemoryDataset")
        made.load_into_memory()
        exe.infer_from_dataset(dataset=made, thread=threads, fetch_list=[cost], print_period=1)
        found.append(sorted(capsys.readouterr().out.splitlines()))
    assert found[0] == found[1]
    assert len(found[0]) == 8


def test_an_error_on_one_thread_ends_the_pass_on_all(tmp_path: Path) -> None:
    slots, cost, _ = click_net.net()
    fluid.optimizer.SGD(0.1).minimize(cost)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    rows = click_net.rows(64, 1)
    rows[40] = (rows[40][0], [click_net.IDS + 7], 1)  # no row of the table
    made = click_net.dataset(click_net.write(tmp_path, rows), slots)
    with pytest.raises(ExecutionError, match="table"):
        exe.train_from_dataset(dataset=made, thread=3)
    (tmp_path / "part-0").write_text("2 0.5\n")
    with pytest.raises(DataLineError, match="line 1"):
        exe.train_from_dataset(dataset=made, thread=3)


def test_threads_of_another_pass_go_on_where_those_of_the_first_stopped() -> None:
    _, cost, _ = click_net.net()
    fluid.optimizer.SGD(0.1).minimize(cost)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    passes = [[step.func.__self__ for step in exe.steps(None, n, None)] for n in (3, 2, 4)]  # type: ignore[attr-defined]
    assert [len(each) for each in passes] == [3, 2, 4]
    assert passes[0][0] is exe
    assert passes[1] == passes[0][:2]
    assert passes[2][:3] == passes[0]
    assert len({id(each) for each in passes[2]}) == 4


def samples_of(seed: int, count: int, tmp_path: Path) -> Samples:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        made = click_net.dataset(click_net.write(tmp_path, click_net.rows(count, seed)), click_net.inputs())
    return joined(list(made.batches()))


def ids_of(samples: Samples) -> list[tuple[float, ...]]:
    """All values of each sample."""
    parts = [
        [tuple(column.values[a:b].tolist()) for a, b in itertools.pairwise(column.offsets.tolist())]
        for column in samples.columns
    ]
    return [sum(row, ()) for row in zip(*parts, strict=True)]


def test_trainers_share_out_all_their_samples(tmp_path: Path) -> None:
    given = [samples_of(seed, count, tmp_path) for seed, count in enumerate((20, 1, 30))]
    parts: list[Any] = together(
        members(3), lambda ranks: shared_out(given[ranks.rank], ranks, seed=7 + ranks.rank)[0]
    )
    assert [part.count for part in parts] == [17, 17, 17]
    rows = [ids_of(part) for part in parts]
    everything = [row for each in given for row in ids_of(each)]
    assert sorted(itertools.chain(*rows)) == sorted(everything)
    assert list(itertools.chain(*rows)) != everything
    assert all(set(mine) & set(ids_of(given[2])) for mine in rows)


_TRAINER = """
import random, sys
import paddle.fluid as fluid
from tests.runtime.fluid.multislot import click_net
made = click_net.dataset([sys.argv[1]], click_net.inputs(), "InMemoryDataset", batch_size=20)
made.load_into_memory()
made.global_shuffle()
(batch,) = made.batches()
print(made.get_memory_data_size(), made.get_shuffle_data_size(), sorted(batch.columns[0].values.tolist()))
"""


def test_two_processes_of_a_job_shuffle_globally_and_have_as_many_batches(tmp_path: Path) -> None:
    paths = click_net.write(tmp_path, click_net.rows(31, 1), click_net.rows(10, 2))
    there = ",".join(endpoints(2))
    started = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", _TRAINER, path],
            stdout=subprocess.PIPE,
            text=True,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}",
                "PADDLE_TRAINER_ENDPOINTS": there,
                "PADDLE_TRAINER_ID": str(rank),
                "PADDLE_TRAINERS_NUM": "2",
            },
        )
        for rank, path in enumerate(paths)
    ]
    outputs = [each.communicate(timeout=60)[0] for each in started]
    assert [each.returncode for each in started] == [0, 0]
    assert [output.split()[:2] for output in outputs] == [["21", "21"], ["20", "20"]]
    values = sorted(float(word) for output in outputs for word in re.findall(r"-?\d+\.\d+", output))
    rows = [*click_net.rows(31, 1), *click_net.rows(10, 2)]
    assert values == sorted(float(np.float32(x)) for numbers, _, _ in rows for x in numbers)
