# SPDX-License-Identifier: Apache-2.0
"""Command lines of other launchers: the arguments that are equivalent here, or none if a part has no known meaning."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from paddle_cluster.cli import main
from paddle_cluster.cli.commands.run import run
from paddle_cluster.config import arguments
from paddle_cluster.config.foreign import equivalent
from paddle_cluster.errors import UsageError

TRAIN = "-p . --entry=train.py --mode=collective"


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script of PyTorch in the current directory, one of paddle and one of neither."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "v2.py").write_text("import paddle.v2 as paddle\n")
    (tmp_path / "plain.py").write_text("print(1)\n")
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "ddp.py").write_text("import os\nos.environ['RANK']\n")
    return tmp_path / "train.py"


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("python train.py", TRAIN),
        ("--nproc_per_node=4 python plain.py", "-p . --entry=plain.py --nproc_per_node=4"),
        ("python3 -u plain.py --lr 1", "-p . --entry=plain.py -- --lr 1"),
        ("/usr/bin/python3.11 v2.py", "-p . --entry=v2.py"),
        ("bash run.sh", "-p . --entry=run.sh"),
        ("--nnodes=2 --nproc-per-node=2 train.py", TRAIN + " --nnodes=2 --nproc_per_node=2"),
        ("launch --num_processes 2 train.py", TRAIN + " --nproc_per_node=2"),
        ("torchrun --standalone -m pkg.train --mode x", "-p . --entry=-mpkg.train --mode=collective -- --mode x"),
        ("python -m torch.distributed.run plain.py", "-p . --entry=plain.py --mode=collective"),
        ("mpirun -np 4 --mca btl tcp -H a:2,b:2 python train.py", TRAIN + " --hosts=a,b --nproc_per_node=2"),
        ("mpirun -np 4 -H a,b python train.py", TRAIN + " --hosts=a,b --nproc_per_node=2"),
        ("mpirun -np 2 python v2.py", "-p . --entry=v2.py --nproc_per_node=2"),
        ("srun -N 2 -n 4 python plain.py", "-p . --entry=plain.py --nnodes=2 --nproc_per_node=2"),
        ("launch --num_machines 2 --num_processes 4 train.py x", TRAIN + " --nnodes=2 --nproc_per_node=2 -- x"),
        ("job submit --working-dir ws -- python ddp.py", "-p ws --entry=ddp.py --mode=collective"),
        ("ws/ddp.py --nnodes=2 --lr 1", "-p ws --entry=ddp.py --mode=collective --nnodes=2 -- --lr 1"),
        ("python /train.py", "-p / --entry=train.py"),
        ("--nnodes=2 ws", "-p ws --nnodes=2"),
    ],
)  # fmt: skip
def test_a_line_of_another_launcher_has_one_equivalent_that_is_accepted(line: str, ours: str) -> None:
    assert equivalent(shlex.split(line)) == f"the equivalent of {line!r} is: {ours}"
    arguments.parse(shlex.split(ours))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "foo",
        "python",
        "foo train.py",
        "--lr 1 train.py",
        "python -c train.py",
        "mpirun -H a:2,b:3 train.py",
    ],
)
def test_a_line_with_a_part_of_unknown_meaning_has_none(line: str) -> None:
    assert equivalent(shlex.split(line)) == ""


def test_every_unknown_option_and_the_equivalent_are_reported_together() -> None:
    with pytest.raises(UsageError) as caught:
        run(["--nproc-per-node=2", "--num_machines=3", "train.py"])
    first, second, whole = str(caught.value).splitlines()
    assert "did you mean --nproc_per_node?" in first
    assert "give --nnodes=3" in second
    assert whole.endswith("is: -p . --entry=train.py --mode=collective --nproc_per_node=2 --nnodes=3")
    with pytest.raises(UsageError) as caught:
        run(["-p", "ws", "--num_machines=3", "train.py"])
    assert "equivalent" not in str(caught.value)


def test_the_name_of_another_launcher_as_the_command_is_answered_with_the_equivalent() -> None:
    with pytest.raises(UsageError, match=r"unknown command 'torchrun': the equivalent .* is: -p \. --entry"):
        main.named(["torchrun", "train.py"])
    with pytest.raises(UsageError, match=r"unknown command 'submit': did you mean run\?"):
        main.named(["submit", "--detach"])
