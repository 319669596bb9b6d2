# SPDX-License-Identifier: Apache-2.0
"""Command lines of other launchers: the arguments that are equivalent here, or none if a part has no known meaning."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from paddle_cluster.cli import main
from paddle_cluster.cli.commands.run import run
from paddle_cluster.config import arguments
from paddle_cluster.config.entry import Entry
from paddle_cluster.config.foreign import equivalent, unread
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
    assert "give --nnodes=N" in second
    assert whole.endswith("is: -p . --entry=train.py --mode=collective --nproc_per_node=2 --nnodes=3")
    with pytest.raises(UsageError) as caught:
        run(["-p", "ws", "--num_machines=3", "train.py"])
    assert "equivalent" not in str(caught.value)


def test_the_name_of_another_launcher_as_the_command_is_answered_with_the_equivalent() -> None:
    with pytest.raises(UsageError, match=r"unknown command 'torchrun': the equivalent .* is: -p \. --entry"):
        main.named(["torchrun", "train.py"])
    with pytest.raises(UsageError, match=r"unknown command 'submit': did you mean run\?"):
        main.named(["submit", "--detach"])


ARGPARSE = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.add_argument('--log-every')\n"
)


@pytest.mark.parametrize(
    ("source", "argv", "words"),
    [
        ("import torch\n", "-N 2 -n4", "unknown option -N: give --nnodes=2\nunknown option -n: give --nproc"),
        ("import torch\n", "-N2", "unknown option -N: give --nnodes=2 (To pass it to your script, put it after --.)"),
        (ARGPARSE, "-N 2", "unknown option -N: give --nnodes=2"),
        ("import sys\nlr = sys.argv[1] if len(sys.argv) > 1 else 2\n", "-N 2", "unknown option -N"),
        (ARGPARSE, "-f hosts.txt", "unknown option -f: give --hostfile=hosts.txt"),
        (ARGPARSE, "-i ~/.ssh/k", "unknown option -i: name the key in conf.py, SSH_IDENTITY_FILES = ['~/.ssh/k']"),
        (ARGPARSE, "--gpus=0,1", "unknown option --gpus: give --env=CUDA_VISIBLE_DEVICES=0,1; "),
        (ARGPARSE, "--restart=3", "unknown option --restart: give --max_restarts=3"),
        (ARGPARSE, "-nproc_per_node=2", "unknown option -nproc_per_node: write two hyphens: --nproc_per_node=2"),
        (ARGPARSE + "p.add_argument('-name')\n", "-name x", ""),
        (ARGPARSE, "--job-name=a -w b,c", "unknown option --job-name: give --name=a\nunknown option -w: give"),
        (ARGPARSE, "--time=01:00:00", "unknown option --time: leave it out; to limit the time, run `timeout"),
        (ARGPARSE, "--mem 4G", "unknown option --mem: give --engine=slurm"),
        (ARGPARSE + "p.add_argument('--job_name')\n", "--job_name worker", ""),
        (ARGPARSE + "p.add_argument('--workers')\n", "--workers 2", ""),
        (ARGPARSE, "--log_dir x", "unknown option --log_dir: leave it out; logs are copied"),
        (ARGPARSE, "--verbose", "unknown option --verbose: leave it out; log/job.log"),
        (ARGPARSE, "--working-dir x", "unknown option --working-dir: leave it out; "),
        ("import torch\n", "-- -N 2", ""),
        ("import torch\n", "--lr 2", ""),
        ("import torch, sys\nprint(sys.argv[1:])\n", "-N 2", ""),
        ("import torch, sys\nprint(sys.argv[2])\n", "-N 2", ""),
        ("import torch, sys\nfrom sys import argv\n", "-N 2", ""),
        ("import torch, mine\n", "-N 2", ""),  # which can read them
        (ARGPARSE + "p.add_argument('-N')\n", "-N 2", ""),
        (ARGPARSE + "p.add_argument('-N')\n", "-N2", ""),
        (ARGPARSE + "p.add_argument('--gpus_used')\n", "--gpus=1", ""),  # an abbreviation
        (ARGPARSE + "p.add_argument('-v', '--verbose')\n", "-v --verbose", ""),
        (ARGPARSE + "for name in NAMES: p.add_argument(name)\n", "-N 2", ""),
        (ARGPARSE + "p.add_argument(f'--{NAME}')\n", "-N 2", ""),
        (ARGPARSE + "args, rest = p.parse_known_args()\n", "-N 2", ""),
        (ARGPARSE + "import pytorch_lightning as pl\npl.Trainer.add_argparse_args(p)\n", "--gpus 2", ""),
        ("import getopt, sys\n", "-n 2", ""),
        ("import importlib\nimportlib.import_module('main').run()\n", "-n 2", ""),
        ("exec(open('main.py').read())\n", "-n 2", ""),
        (ARGPARSE + "import torch\nmodel.eval()\n", "-n 2", "unknown option -n"),
        ("import subprocess, sys\nsubprocess.run(['x', *sys.argv[1:]])\n", "-n 2", ""),
        ("from paddle import v2\n", "--log_dir=x", ""),
    ],
)  # fmt: skip
def test_options_of_other_programs_are_refused_only_if_the_script_cannot_read_them(
    script: Path, source: str, argv: str, words: str
) -> None:
    script.write_text(source)
    line = ["-p", ".", "--mode=collective", *argv.split()]
    given = arguments.parse(line)
    problem = unread(given.passthrough[: given.before_dashes], Entry(path="train.py"), script.parent)
    assert problem.startswith(words)
    assert bool(problem) == bool(words)
