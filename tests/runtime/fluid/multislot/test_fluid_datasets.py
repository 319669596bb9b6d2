# SPDX-License-Identifier: Apache-2.0
"""train_from_dataset and what it reads: the same as feeding by hand, alone and with servers; failures are named."""

from __future__ import annotations

import gzip
import itertools
import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import RunError
from paddle.fluid.multislot.source import PipeError
from tests.runtime.fluid.multislot import click_net
from tests.runtime.fluid.transpiled_job import TranspiledJob


def minimised() -> tuple[list[Any], Any]:
    slots, cost, _ = click_net.net()
    fluid.optimizer.Adagrad(0.1).minimize(cost)
    return slots, cost


def value(name: str) -> Any:
    return np.array(fluid.global_scope().get(name))


def started() -> fluid.Executor:
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe


def batches_of(made: Any) -> list[list[list[int]]]:
    """The ids of each sample of each batch."""
    found = []
    for batch in made.batches():
        ids = batch.feed()["ids"]
        ends = ids.lod[0].tolist()
        found.append([ids.data[a:b, 0].tolist() for a, b in itertools.pairwise(ends)])
    return found


@pytest.mark.parametrize("kind", ["QueueDataset", "InMemoryDataset", "FileInstantDataset"])
def test_training_from_a_dataset_is_training_by_hand(tmp_path: Path, kind: str) -> None:
    parts = [click_net.rows(37, 1), click_net.rows(11, 2)]
    slots, _ = minimised()
    exe = started()
    made = click_net.dataset(click_net.write(tmp_path, *parts), slots, kind)
    if kind == "InMemoryDataset":
        made.load_into_memory()
        assert made.get_memory_data_size() == 48
    for _ in range(2):
        exe.train_from_dataset(fluid.default_main_program(), made)
    ours = value("table"), value("w")

    exe.run(fluid.default_startup_program())
    every = parts[0] + parts[1]
    for _ in range(2):
        for start in range(0, 48, 16):
            exe.run(feed=click_net.feed(every[start : start + 16]))
    np.testing.assert_array_equal(ours[0], value("table"))
    np.testing.assert_array_equal(ours[1], value("w"))
    assert np.abs(ours[0]).max() > 0.1


def test_what_is_fetched_is_printed_under_its_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slots, cost = minimised()
    exe = started()
    made = click_net.dataset(click_net.write(tmp_path, click_net.rows(80, 1)), slots)
    exe.train_from_dataset(
        dataset=made, fetch_list=[cost, "w"], fetch_info=["loss", "weights"], print_period=2, debug=True
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0].split(": [")[0] for line in lines if line.startswith("batch")] == [
        "batch 0: loss",
        "batch 2: loss",
        "batch 4: loss",
    ]
    losses = [float(found) for found in re.findall(r"loss: \[([\d.]+)\]", "\n".join(lines))]
    assert losses[0] > losses[2]
    assert re.fullmatch(r"5 batches, 80 samples in \d+\.\d+ s", lines[-1])
    with pytest.raises(ValueError, match="expected one string per fetch"):
        exe.train_from_dataset(dataset=made, fetch_list=[cost], fetch_info=["a", "b"])


def test_inferring_changes_no_parameter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slots, cost = minimised()
    exe = started()
    made = click_net.dataset(click_net.write(tmp_path, click_net.rows(40, 1)), slots, batch_size=40)
    before = value("w")
    exe.infer_from_dataset(dataset=made, fetch_list=[cost], fetch_info=["cost"])
    np.testing.assert_array_equal(value("w"), before)
    (told,) = re.findall(r"batch 0: cost: \[([\d.]+)\]", capsys.readouterr().out)
    (trained,) = exe.run(feed=click_net.feed(click_net.rows(40, 1)), fetch_list=[cost])
    assert float(told) == pytest.approx(float(trained), abs=1e-6)
    assert (value("w") != before).any()


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_lose_and_repeat_no_sample(tmp_path: Path, threads: int) -> None:
    parts = [click_net.rows(count, count) for count in (30, 1, 17, 8, 40)]
    slots = click_net.inputs()
    made = click_net.dataset(click_net.write(tmp_path, *parts), slots)
    made.set_thread(threads)
    found = batches_of(made)
    assert [len(batch) for batch in found] == [16] * 6
    wanted = [row[1] for part in parts for row in part]
    flat = [ids for batch in found for ids in batch]
    assert sorted(flat) == sorted(wanted)
    assert batches_of(made) == found
    if threads == 1:
        assert flat == wanted


def test_a_local_shuffle_is_an_order_that_a_seed_repeats(tmp_path: Path) -> None:
    made = click_net.dataset(
        click_net.write(tmp_path, click_net.rows(64, 1)), click_net.inputs(), "InMemoryDataset"
    )
    with pytest.raises(RunError, match="call load_into_memory first"):
        next(made.batches())
    made.load_into_memory()
    plain = batches_of(made)
    random.seed(5)
    made.local_shuffle()
    shuffled = batches_of(made)
    assert shuffled != plain
    assert sorted(itertools.chain(*shuffled)) == sorted(itertools.chain(*plain))
    random.seed(5)
    made.global_shuffle()
    assert batches_of(made) == shuffled
    assert made.get_shuffle_data_size() == 64
    made.release_memory()
    assert made.get_memory_data_size() == made.get_shuffle_data_size() == 0


def test_samples_are_not_silently_left_unshuffled_between_trainers(tmp_path: Path) -> None:
    class Fleet:
        def worker_num(self) -> int:
            return 2

    made = click_net.dataset(
        click_net.write(tmp_path, click_net.rows(4, 1)), click_net.inputs(), "InMemoryDataset"
    )
    made.load_into_memory()
    with pytest.raises(RunError, match="the fleet has 2 trainers, but PADDLE_TRAINER_ENDPOINTS names 0"):
        made.global_shuffle(Fleet())
    queue = fluid.DatasetFactory().create_dataset()
    with pytest.raises(NotImplementedError, match="InMemoryDataset"):
        queue.local_shuffle()


SCRIPT = """
import sys
import paddle.fluid.incubate.data_generator as dg
class Clicks(dg.MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            a, b, ids, click = line.split(",")
            yield zip(["numbers", "ids", "click"], [[float(a), float(b)], [int(x) for x in ids.split()], [int(click)]])
        return samples
Clicks().run_from_stdin()
"""


def test_a_pipe_command_makes_samples_of_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = click_net.rows(20, 3)
    raw = "".join(f"{a},{b},{' '.join(map(str, ids))},{click}\n" for (a, b), ids, click in rows)
    (tmp_path / "raw.gz").write_bytes(gzip.compress(raw.encode()))
    (tmp_path / "raw").write_text(raw)
    (tmp_path / "clicks.py").write_text(SCRIPT)
    monkeypatch.setenv("PYTHONPATH", str(Path(fluid.__file__).parents[2]))
    made = click_net.dataset(
        [str(tmp_path / "raw.gz"), str(tmp_path / "raw")], click_net.inputs(), batch_size=7
    )
    made.set_pipe_command(f"cat | python {tmp_path / 'clicks.py'} 8")
    made.set_thread(2)
    found = batches_of(made)
    assert sorted(itertools.chain(*found)) == sorted(2 * [row[1] for row in rows])
    assert [len(batch) for batch in found] == [7, 7, 7, 7, 7, 5]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("cat; echo out of memory >&2; exit 3", "exited with 3: out of memory"),
        ("cat; kill -9 $$", "was killed by signal 9: its standard error is empty"),
        ("sh -c 'cat; exit 5' | cat", "exited with 5"),
        ("no-such-program", "exited with 127: .*no-such-program"),
    ],
)
def test_a_pipe_command_that_fails_ends_training_with_its_status(
    tmp_path: Path, command: str, told: str
) -> None:
    slots, _ = minimised()
    exe = started()
    (path,) = click_net.write(tmp_path, click_net.rows(20, 1))
    made = click_net.dataset([path], slots)
    made.set_pipe_command(command)
    with pytest.raises(PipeError, match=f"(?s){path}: the pipe command .* {told}"):
        exe.train_from_dataset(dataset=made)


def test_a_gz_file_that_is_cut_is_an_error(tmp_path: Path) -> None:
    whole = gzip.compress(click_net.text(click_net.rows(200, 1)).encode())
    (tmp_path / "x.gz").write_bytes(whole[: len(whole) // 2])
    made = click_net.dataset([str(tmp_path / "x.gz")], click_net.inputs())
    with pytest.raises(PipeError, match=r"x\.gz: the pipe command 'gzip -dc .* exited with 1: .*end of file"):
        list(made.batches())


def test_a_command_that_is_left_early_ends(tmp_path: Path) -> None:
    (path,) = click_net.write(tmp_path, click_net.rows(20, 1))
    made = click_net.dataset([path], click_net.inputs())
    made.set_pipe_command(f"{sys.executable} -c \"print('2 1 2 1 3 1 0\\n' * 9**6, end='')\"")
    some = made.batches()
    assert next(some).count == 16
    some.close()


def test_a_bad_line_and_a_missing_file_are_named(tmp_path: Path) -> None:
    slots, _ = minimised()
    exe = started()
    path = tmp_path / "part"
    path.write_text("2 1 2 1 3 1 0\n2 1 2 1 3 1 zero\n")
    made = click_net.dataset([str(path)], slots)
    with pytest.raises(ValueError, match=f"{path}, line 2, slot 'click': expected an integer, got 'zero'"):
        exe.train_from_dataset(dataset=made)
    made.set_filelist([str(tmp_path / "none")])
    with pytest.raises(FileNotFoundError, match="none"):
        exe.train_from_dataset(dataset=made)
    made.set_filelist([])
    with pytest.raises(RunError, match="call set_filelist with at least one file"):
        exe.train_from_dataset(dataset=made)
    with pytest.raises(
        ValueError, match="QueueDataset, InMemoryDataset, FileInstantDataset, got 'BoxPSDataset'"
    ):
        fluid.DatasetFactory().create_dataset("BoxPSDataset")
    with pytest.raises(ValueError, match="int64 and float32 variables; 'b' is bool"):
        made.set_use_var([fluid.layers.data("b", [1], dtype="bool")])


def test_values_that_no_slot_takes_are_reported_one_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "x").write_text("2 1 2 1 3 1 0 1 9\n" * 5)
    made = click_net.dataset([str(tmp_path / "x")], click_net.inputs())
    assert batches_of(made) == [[[3]] * 5]
    (record,) = caplog.records
    assert re.search("x, line 1:.* 3 slots", record.getMessage())


@pytest.mark.parametrize("sync", [True, False])
def test_two_trainers_and_two_servers_learn_from_datasets(tmp_path: Path, sync: bool) -> None:
    every = click_net.rows(128, 4)
    paths = click_net.write(tmp_path, *(every[at * 16 : at * 16 + 16] for at in range(8)))

    def cost() -> Any:
        found = click_net.net()[1]
        fluid.optimizer.SGD(0.5).minimize(found)
        return found

    job = TranspiledJob(cost, sync=sync)

    def work(trainer: int) -> Any:
        _, main, startup, _ = job.transpiled(trainer)
        block = main.global_block()
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        exe.run(startup, scope=scope)
        made = click_net.dataset(paths[trainer::2], [block.var(name) for name in ("numbers", "ids", "click")])
        for _ in range(3):
            exe.train_from_dataset(program=main, dataset=made, scope=scope)
        held = np.array(scope.get("w"))
        exe.close()
        return held

    found = job.run(work)
    (table,) = (job.scopes[each].get("table") for each in job.endpoints if job.scopes[each].has("table"))
    if not sync:
        assert np.abs(np.asarray(table)).max() > 0.001
        return
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        cost()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    for _ in range(3):
        for start in range(0, 128, 32):
            exe.run(main, feed=click_net.feed(every[start : start + 32]))
    for w in found:
        np.testing.assert_allclose(w, value("w"), atol=1e-6)
    np.testing.assert_allclose(np.asarray(table), value("table"), atol=1e-6)
