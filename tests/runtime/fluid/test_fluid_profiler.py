# SPDX-License-Identifier: Apache-2.0
"""The profiler: a table by operator, sorted, and a trace of each; nothing is recorded while it is off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import profiler

X = np.ones((2, 4), "float32")


def trainer() -> tuple[fluid.Executor, Any]:
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 3))
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe, loss


def rows(table: str) -> dict[str, list[float]]:
    found = [line.split() for line in table.splitlines() if line.startswith("thread")]
    return {event.partition("::")[2]: list(map(float, numbers)) for event, *numbers in found}


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return found


def test_a_table_has_a_row_for_each_kind_of_operator_and_a_trace_each_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exe, loss = trainer()
    with profiler.profiler("CPU", "total", str(tmp_path / "trace")):
        for _ in range(3):
            exe.run(feed={"x": X}, fetch_list=[loss])
    exe.run(feed={"x": X}, fetch_list=[loss])
    table = rows(capsys.readouterr().out)
    assert (table["mul"][0], table["sgd"][0]) == (3, 6)
    for calls, total, least, most, average, ratio in table.values():
        assert 0 < least <= average * (1 + 1e-5)
        assert average <= most * (1 + 1e-5)
        assert most <= total * (1 + 1e-5)
        assert total == pytest.approx(calls * average, rel=1e-4)
        assert 0 < ratio < 1
    totals = [numbers[1] for numbers in table.values()]
    assert totals == sorted(totals, reverse=True)
    traced = events(tmp_path / "trace")
    assert len(traced) == sum(numbers[0] for numbers in table.values())
    assert {(each["ph"], each["cat"]) for each in traced} == {("X", "Op")}
    assert sum(each["dur"] for each in traced) == pytest.approx(sum(totals) * 1e3, rel=1e-3)
    assert [each.name for each in tmp_path.iterdir()] == ["trace"]


@pytest.mark.parametrize(("key", "column"), [("calls", 0), ("total", 1), ("min", 2), ("max", 3), ("ave", 4)])
def test_rows_are_sorted_by_what_is_asked_for(
    key: str, column: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exe, loss = trainer()
    with profiler.profiler("All", key, str(tmp_path / "trace")):
        exe.run(feed={"x": X}, fetch_list=[loss])
    found = [numbers[column] for numbers in rows(capsys.readouterr().out).values()]
    assert len(found) > 3
    assert found == sorted(found, reverse=True)


def test_what_ran_before_a_reset_is_forgotten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exe, loss = trainer()
    profiler.start_profiler("CPU")
    exe.run(feed={"x": X}, fetch_list=[loss])
    profiler.start_profiler("CPU")
    profiler.reset_profiler()
    exe.run(feed={"x": X}, fetch_list=[loss])
    profiler.stop_profiler(profile_path=str(tmp_path / "trace"))
    assert rows(capsys.readouterr().out)["mul"][0] == 1
    profiler.stop_profiler(profile_path=str(tmp_path / "another"))
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "another").exists()


def test_operators_in_a_loop_are_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers = fluid.layers
    count, limit = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 5)
    cond = layers.less_than(count, limit)
    with layers.While(cond).block():
        layers.increment(count)
        layers.less_than(count, limit, cond=cond)
    exe = fluid.Executor(fluid.CPUPlace())
    with profiler.profiler("CPU", profile_path=str(tmp_path / "loop")):
        exe.run(fetch_list=[count])
    table = rows(capsys.readouterr().out)
    assert (table["while"][0], table["increment"][0]) == (1, 5)
    assert table["while"][1] >= table["increment"][1]


def test_both_of_two_places_are_recorded(tmp_path: Path) -> None:
    exe, loss = trainer()
    program = fluid.CompiledProgram(fluid.default_main_program())
    program.with_data_parallel(loss.name, places=fluid.cpu_places(2))
    with profiler.profiler("CPU", profile_path=str(tmp_path / "two")):
        exe.run(program, feed={"x": X}, fetch_list=[loss])
    assert [each["name"] for each in events(tmp_path / "two")].count("mul") == 2


def test_an_operator_that_fails_is_told_as_without_a_profile(tmp_path: Path) -> None:
    table = fluid.layers.embedding(fluid.layers.data("ids", [1], dtype="int64"), [3, 2])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with (
        pytest.raises(fluid.core.EnforceNotMet, match="lookup_table"),
        profiler.profiler("CPU", profile_path=str(tmp_path / "trace")),
    ):
        exe.run(feed={"ids": np.array([[7]])}, fetch_list=[table])
    assert events(tmp_path / "trace") == []


def test_unknown_states_and_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="one of CPU, GPU, All, got 'TPU'"):
        profiler.start_profiler("TPU")
    with pytest.raises(ValueError, match="one of calls, total, max, min, ave, got 'sum'"):
        profiler.stop_profiler("sum")


def test_recordings_of_nvprof_are_told_to_be_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with profiler.cuda_profiler(str(tmp_path / "nvprof.txt"), "csv"):
        pass
    assert "nvprof.txt" in caplog.text
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="kvp or csv"), profiler.cuda_profiler("x", "json"):
        pass
