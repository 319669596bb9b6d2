# SPDX-License-Identifier: Apache-2.0
"""A job that lacked a checkpoint, or data for a trainer, does not end without a word of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.control_jobs import Bench

TRAIN = """
import os, sys
import paddle.v2 as paddle

place, what = sys.argv[-2:]
paddle.init()
x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(2))
y = paddle.layer.data(name="y", type=paddle.data_type.dense_vector(1))
cost = paddle.layer.square_error_cost(
    input=paddle.layer.fc(input=x, size=1, act=paddle.activation.Linear()), label=y
)
trainer = paddle.trainer.SGD(
    cost, paddle.parameters.create(cost), paddle.optimizer.Momentum(momentum=0), is_local=False
)


def reader():
    for batch in range(0 if what == "one part" and os.environ["PADDLE_TRAINER_ID"] == "1" else 4):
        yield [((0.1, 0.2), (0.3,))]


if what == "lost":
    os.rmdir(place)
    open(place, "w").close()
trainer.train(reader, num_passes=2)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    (tmp_path / "ws" / "train.py").write_text(TRAIN)
    yield bench
    bench.close()


@pytest.mark.parametrize("way", ["a file", "below a file", "nothing can be made there"])
def test_a_checkpoint_dir_that_takes_no_files_is_refused_before_the_job(bench: Bench, way: str) -> None:
    (bench.place / "file").touch()
    folder = {
        "a file": str(bench.place / "file"),
        "below a file": str(bench.place / "file/deep/er"),
        "nothing can be made there": "/proc/checkpoints",
    }[way]
    before = sorted((bench.place / "nodes").rglob("*"))
    done = bench.run("-p", "ws", "--conf=conf.py", f"--checkpoint_dir={folder}", "--checkpoint_period=1")
    assert done.returncode == 3, done.stdout + done.stderr
    assert re.search(f"checkpoint_dir: .*{folder}", done.stdout + done.stderr)
    assert sorted((bench.place / "nodes").rglob("*")) == before


def test_a_job_whose_last_checkpoint_could_not_be_written_says_so_and_is_not_clean(bench: Bench) -> None:
    folder = bench.place / "kept"
    folder.mkdir()
    options = [f"--checkpoint_dir={folder}", "--checkpoint_period=1"]
    done = bench.run("-p", "ws", "--conf=conf.py", *options, "--", str(folder), "lost")
    said = done.stdout + done.stderr
    assert done.returncode == 7, said
    last = said[said.rindex("NOT SAVED by pserver-0: no checkpoint of batch") :]
    assert f"in {folder}: " in last


def test_new_files_that_are_not_copied_back_are_named(bench: Bench) -> None:
    (bench.place / "ws" / "saves.py").write_text(
        "open('model.pt', 'w').close(); open('output/w', 'w').close()"
    )
    done = bench.run("-p", "ws", "--conf=conf.py", "--entry=saves.py", "--mode=collective")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING: not copied back: model.pt on local-0. Only node 0's output/" in done.stdout
    assert re.search(
        r"write results to output/\. The job directories, such as \S+/JOB\S+ on local-0", done.stdout
    )
    assert (bench.place / "ws" / "output" / "w").exists()


def test_results_that_a_rank_other_than_0_saved_name_their_place(bench: Bench) -> None:
    script = "import os\nif os.environ['PADDLE_TRAINER_ID'] == '1': os.mkdir('output'); open('output/w', 'w').close()"
    (bench.place / "ws" / "saves.py").write_text(script)
    done = bench.run(
        "-p", "ws", "--conf=conf.py", "--entry=saves.py", "--mode=collective", "--hosts=local,local"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not copied back: output/ on local-1. Only node 0's output/" in done.stdout, done.stdout
    assert (
        "save results on rank 0, or below the directory PADDLE_CHECKPOINT_DIR with --collect=" in done.stdout
    )


def test_a_directory_of_shards_without_numbered_files_is_refused(bench: Bench) -> None:
    folder = bench.place / "ws" / "data"
    folder.mkdir()
    (folder / "words.txt").touch()
    options = ["-p", "ws", "--conf=conf.py", "--mode=collective", "--shard_dirs=./data/"]
    done = bench.run(*options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--shard_dirs: no file in data has a number" in done.stdout + done.stderr
    (folder / "words-00000.txt").touch()
    (bench.place / "ws" / "train.py").write_text("print('trained')")
    assert bench.run(*options).returncode == 0


# Of every batch: more than any disk takes, so that the last one is made up for.
@pytest.mark.parametrize("period", [4, 1])
def test_a_job_whose_checkpoints_are_there_ends_well(bench: Bench, period: int) -> None:
    folder = bench.place / "kept"
    options = [f"--checkpoint_dir={folder}", f"--checkpoint_period={period}"]
    done = bench.run("-p", "ws", "--conf=conf.py", *options, "--", str(folder), "kept")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT SAVED" not in done.stdout + done.stderr


def test_a_workspace_of_the_nodes_whose_code_differs_is_refused_unless_that_is_allowed(bench: Bench) -> None:
    conf = bench.place / "conf.py"
    conf.write_text(conf.read_text().replace("['local']", "['local', 'local']"))
    for number in range(2):
        workspace = bench.place / f"nodes/node_{number}/ws"
        workspace.mkdir(parents=True)
        (workspace / "train.py").write_text(f"print('I am', {number})\n")
        (workspace / "data.txt").write_text(str(number))
    options = ["--job_workspace=ws", "--conf=conf.py", "--mode=collective"]
    done = bench.run(*options)
    said = done.stdout + done.stderr
    assert done.returncode == 3, said
    assert "train.py differs" in said
    assert "data.txt" not in said
    done = bench.run(*options, "--allow_mismatch")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "train.py differs" in done.stdout + done.stderr


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_workspace_that_is_moved_while_its_job_runs_is_named(bench: Bench, is_moved: bool) -> None:
    ws, other = bench.place / "ws", bench.place / "other"
    move = f"os.rename({str(ws)!r}, {str(other)!r})" if is_moved else "pass"
    # The launcher has opened its log when the directory moves.
    log = f"while not os.path.exists({str(ws / 'log/job.log')!r}): time.sleep(0.02)"
    (ws / "moves.py").write_text(f"import os, time\n{log}\n{move}\n")
    done = bench.run("-p", "ws", "--conf=conf.py", "--entry=moves.py", "--mode=collective")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("WARNING: ws was removed or renamed while the job ran" in done.stdout) == is_moved
    assert (ws / "log/job.log").is_file()


def test_a_trainer_without_data_is_named_in_its_log_and_in_the_last_lines_of_the_job(bench: Bench) -> None:
    done = bench.run("-p", "ws", "--conf=conf.py", "--nproc_per_node=2", "--", "-", "one part")
    assert done.returncode == 0, done.stdout + done.stderr
    logs = [path.read_text() for path in sorted((bench.place / "ws" / "log").glob("node_0/train*.log"))]
    assert ["pass 0: the reader returned no batch" in text for text in logs] == [False, True]
    last = done.stdout[done.stdout.rindex("exit 0") - 600 :]
    assert "WARNING: trainer-1 of 2 trainers " in last, done.stdout
