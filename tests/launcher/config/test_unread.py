# SPDX-License-Identifier: Apache-2.0
"""Arguments that neither the launcher nor the script reads are refused, unless they follow `--`."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from paddle_cluster.cli.commands.run import run
from paddle_cluster.config import arguments
from paddle_cluster.config.entry import Entry
from paddle_cluster.config.options import Mode
from paddle_cluster.config.unread import repeated, unread
from paddle_cluster.errors import ExitCode, UsageError

ARGPARSE = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.add_argument('--log-every')\n"
)


READER = "import sys\nargs = sys.argv[1:]\n"


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path) -> Path:
    """A workspace with a module that reads arguments, and one that reads none."""
    (tmp_path / "lib.py").write_text(READER)
    (tmp_path / "nets.py").write_text("import torch\n")
    return tmp_path


def corrections(workspace: Path, argv: str, entry: str = "train.py", mode: Mode = Mode.COLLECTIVE) -> str:
    given = arguments.parse(["-p", ".", "--mode=collective", *shlex.split(argv)])
    return unread(given.passthrough[: given.before_dashes], Entry(path=entry), workspace, mode, nodes=3)


@pytest.mark.parametrize(
    ("source", "argv", "words"),
    [
        ("import torch\n", "-N 2 -n4", "option -N: give --nnodes=2\nunknown option -n: give --nproc"),
        ("import torch\n", "-N2", "option -N: give --nnodes=2 (To pass it to your script, put it after --.)"),
        (ARGPARSE, "-N 2", "option -N: give --nnodes=2"),
        ("import sys\nlr = sys.argv[1] if len(sys.argv) > 1 else 2\n", "-N 2", "option -N"),
        (ARGPARSE, "-i a/inventory.ini", "option -i: give --hostfile=a/inventory.ini (To"),
        (ARGPARSE, "-f hosts.txt", "option -f: give --hostfile=hosts.txt"),
        (ARGPARSE, "-i ~/.ssh/k", "option -i: name the key in conf.py, SSH_IDENTITY_FILES = ['~/.ssh/k']"),
        ("import torch\n", "-n 6", "option -n: give --nproc_per_node=2, the number of processes per node, "),
        (ARGPARSE, "--gpus=2", "option --gpus: give --nproc_per_node=2, or --env=CUDA_VISIBLE_DEVICES=2 for "),
        (ARGPARSE, "--gpus=0", "option --gpus: give --env=CUDA_VISIBLE_DEVICES=0; "),
        (ARGPARSE, "--gpus=0,1", "option --gpus: give --env=CUDA_VISIBLE_DEVICES=0,1; "),
        (ARGPARSE, "--restart=3", "option --restart: give --max_restarts=3"),
        (ARGPARSE, "-nproc_per_node=2", "option -nproc_per_node: write two hyphens: --nproc_per_node=2"),
        (ARGPARSE, "--job-name=a -w b,c", "option --job-name: give --name=a\nunknown option -w: give"),
        (ARGPARSE, "--time=01:00:00", "option --time: leave it out; to limit the time, run `timeout"),
        (ARGPARSE, "--mem 4G", "option --mem: give --engine=slurm"),
        (ARGPARSE, "--log_dir x", "option --log_dir: leave it out; logs are copied"),
        (ARGPARSE, "--verbose", "option --verbose: leave it out; log/job.log"),
        (ARGPARSE, "--working-dir x", "option --working-dir: leave it out; "),
        (ARGPARSE + "import torch\nmodel.eval()\n", "-n 2", "option -n"),
        ("import torch\n", "--lr 2", "option --lr: neither the launcher nor train.py reads it; `"),
        ("import os\n", "-mode=v2", "option -mode: write two hyphens: --mode=v2"),
        ("import os\n", "-dry_run", "option -dry_run: write two hyphens: --dry_run (To pass"),
        ("from paddle import v2\n", "-dry_run", "option -dry_run: write two hyphens: --dry_run (To pass"),
        ("import os\n", "--include_only=a x", "option --include_only: did you mean --include?"),
        ("import os\n", "--worker=2", "option --worker: give --nproc_per_node=2"),
        ("import os\n", "--enviroment=A=1", "option --enviroment: give --env=A=1"),
        ("import os\n", "--export=ALL", "option --export: give --env=NAME for each variable of this shell"),
        ("import os\n", "--limit=a", "option --limit: give --include=a"),
        ("import os\n", "--reports=1", "option --reports: neither the launcher nor train.py reads it"),
        ("import os\n", "--script_args='--lr 1'", "option --script_args: give the arguments themselves, "),
        ("import os\n", "python ws/train.py", "argument 'python ws/train.py': train.py is already "),
        ("import os\n", "--json --entry=train.py other.py", "argument 'other.py': the entry is train.py; "),
        ("import os\n", "LR=1", "argument 'LR=1': to set a variable, give --env=LR=1 (To"),
        ("import os\n", "lr=1", "argument 'lr=1': neither the launcher nor train.py reads it"),
        ("import os\n", "--port=2222", "option --port: --mode=collective has no pservers; "),
        ("import nets\n", "--lr=1", "option --lr: "),
        (ARGPARSE, "--lrs=1 --log_every=1", "option --lrs: did you mean --lr?\n"),
        (ARGPARSE, "'--lr 1'", "option --lr 1: the quotes make it a single argument; remove them: --lr 1"),
        (ARGPARSE, "--lr 1 '--log 1'", "option --log 1: the quotes make it"),
        (ARGPARSE, "x --lr 1", "argument 'x': "),
        (ARGPARSE, "--lr=1 x", "argument 'x': "),
    ],
)  # fmt: skip
def test_an_argument_that_the_script_does_not_read_is_refused_with_its_correction(
    workspace: Path, source: str, argv: str, words: str
) -> None:
    (workspace / "train.py").write_text(source)
    found = corrections(workspace, argv)
    assert found.startswith(f"unknown {words}")
    assert found.endswith("(To pass it to your script, put it after --.)")
    assert corrections(workspace, f"-- {argv}") == ""


@pytest.mark.parametrize(
    ("source", "argv"),
    [
        (ARGPARSE + "p.add_argument('-name')\n", "-name x"),
        (ARGPARSE + "p.add_argument('--job_name')\n", "--job_name worker"),
        (ARGPARSE + "p.add_argument('--workers')\n", "--workers 2"),
        ("import torch\n", "-- -N 2"),
        ("import torch, sys\nprint(sys.argv[1:])\n", "-N 2"),
        ("import torch, sys\nprint(sys.argv[2])\n", "-N 2"),
        ("import torch, sys\nfrom sys import argv\n", "-N 2"),
        ("import torch, mine\n", "-N 2"),
        (ARGPARSE + "p.add_argument('-N')\n", "-N 2"),
        (ARGPARSE + "p.add_argument('-N')\n", "-N2"),
        (ARGPARSE + "p.add_argument('--gpus_used')\n", "--gpus=1"),
        (ARGPARSE + "p.add_argument('-v', '--verbose')\n", "-v --verbose"),
        (ARGPARSE + "for name in NAMES: p.add_argument(name)\n", "-N 2"),
        (ARGPARSE + "p.add_argument(f'--{NAME}')\n", "-N 2"),
        (ARGPARSE + "args, rest = p.parse_known_args()\n", "-N 2"),
        (ARGPARSE + "import pytorch_lightning as pl\npl.Trainer.add_argparse_args(p)\n", "--gpus 2"),
        ("import getopt, sys\n", "-n 2"),
        ("import importlib\nimportlib.import_module('main').run()\n", "-n 2"),
        ("exec(open('main.py').read())\n", "-n 2"),
        ("import subprocess, sys\nsubprocess.run(['x', *sys.argv[1:]])\n", "-n 2"),
        ("from paddle import v2\n", "--log_dir=x"),
        (ARGPARSE, "--lr -1 --log-every=1 --log 3"),
        (ARGPARSE, "-- --learning_rate=1"),
        (ARGPARSE + "p.add_argument('data')\n", "--lr 1 dir"),
        (ARGPARSE + "p.add_argument('--fast', action=argparse.BooleanOptionalAction)\n", "--no-fast"),
        (ARGPARSE + "p.add_argument('-v', action='count')\n", "-vvv"),
        (ARGPARSE + "p.add_argument('--' + NAME)\n", "--x 2"),
        (ARGPARSE + "add = p.add_argument\nadd(NAME)\n", "--x 2"),
        (ARGPARSE + "s = p.add_subparsers()\ns.add_parser('fit')\n", "fit --lr 1"),
        (ARGPARSE + "p.add_argument('rest', nargs='...')\n", "x --y"),
        ("import argparse\np = argparse.ArgumentParser(prefix_chars='+')\n", "x +lr"),
        ("import argparse\np = argparse.ArgumentParser(parents=[lib.p])\n", "--x"),
        ("import sys\nprint(sys.argv[1])\n", "data"),
        ("import sys\nprint(sys.argv[1])\n", "--fast"),
        ("from lib import args\n", "--x"),
        ("import nets, lib\n", "--x"),
        ("import click\n@click.command()\ndef main(x): ...\n", "--x=1 -mode=a"),
        ("import hydra\n", "lr=0.1 +x=1"),
        ("import fire\nfire.Fire(main)\n", "train --x"),
        ("from absl import app\n", "--x"),
        ("import jax\njax.config.parse_flags_with_absl()\n", "--jax_debug_nans"),
        ("import tensorflow as tf\ntf.compat.v1.app.run()\n", "--x"),
        ("from transformers import HfArgumentParser\n", "--x"),
        ("from lightning.pytorch.cli import LightningCLI\n", "fit --x"),
        ("from torch.distributed.run import main\nmain()\n", "--x"),
        ("import fileinput\nfor line in fileinput.input(): print(line)\n", "x"),
        ("import sys\nsys.path.append('lib')\nimport datasets\n", "--x"),
        ("import os\nos.environ['PADDLE_INIT_SEED']\n", "--seed=1"),
        ("from paddle import v2\nmode = 1\n", "-mode=1"),
        ("print(\n", "--x"),
        ("import os\n", "--nics=lo"),
        (ARGPARSE, "--lr '-O2 -DN=1' --log-every '- a'"),
        ("import argparse\np = argparse.ArgumentParser()\np.add_argument(dest='data')\n", "dir"),
        ("import imp\nimp.load_source('conf', 'lib.py')\n", "--x"),
        ("import sys\nname, value = sys.argv[1].split('=')\n", "--user=me"),
        ("import sys\nmode = sys.argv[1][2:]\n", "--debug"),
    ],
)  # fmt: skip
def test_an_argument_that_the_script_may_read_is_passed_on(workspace: Path, source: str, argv: str) -> None:
    (workspace / "train.py").write_text(source)
    assert corrections(workspace, argv) == ""


def test_programs_modules_of_the_nodes_and_other_processes_may_read_any_argument(workspace: Path) -> None:
    (workspace / "train.py").write_text("import os\n")
    (workspace / "run.sh").write_text('#!/bin/sh\nexec python train.py "$@"\n')
    assert corrections(workspace, "--x", entry="run.sh") == ""
    assert corrections(workspace, "--x", entry="absent.py") == ""
    assert unread(["--x"], Entry(module="pkg.train"), workspace, Mode.COLLECTIVE) == ""
    assert unread(["--config=train.py", "--x"], Entry(path="train.py"), workspace, Mode.V1) == ""
    assert unread(["--num_passes", "5", "--nouse_gpu"], Entry(path="train.py"), workspace, Mode.V2) == ""
    assert "--x" in unread(["--num_passes", "5", "--x"], Entry(path="train.py"), workspace, Mode.V2)


@pytest.mark.parametrize(
    ("script", "argv", "words"),
    [
        ("echo $LR\n", "-e LR=0.1", "unknown option -e: give --env=LR=0.1 (To"),
        ("python train.py\n", "--lr=0.1", "unknown option --lr: neither the launcher nor run.sh reads it"),
        ("python train.py\n", "LR=0.1", "unknown argument 'LR=0.1': to set a variable, give --env=LR=0.1"),
        ("python train.py\n", "-- --lr=0.1", ""),
        ("python train.py $*\n", "--lr=0.1", ""),
        ("python train.py --lr ${1:-0.1}\n", "0.2", ""),
        ("python train.py --lr ${!#}\n", "0.2", ""),
        ("while getopts e: name; do :; done\n", "-e LR=0.1", ""),
        ("for one\ndo echo x\ndone\n", "-e LR=0.1", ""),
        ("set -e\n[ -f a ] && . ./common.sh\n", "-e LR=0.1", ""),
        ("source common.sh\n", "-e LR=0.1", ""),
        ("if true; then source common.sh; fi\n", "-e LR=0.1", ""),
        ('exec "$0" x\n', "-e LR=0.1", ""),
        ('eval "$COMMAND"\n', "-e LR=0.1", ""),
    ],
)
def test_arguments_of_a_shell_script_that_reads_none_are_refused(
    workspace: Path, script: str, argv: str, words: str
) -> None:
    (workspace / "run.sh").write_text(f"#!/bin/bash\n{script}")
    found = corrections(workspace, argv, entry="run.sh")
    assert found.startswith(words)
    assert bool(found) == bool(words)
    assert corrections(workspace, argv, "run.sh", Mode.V2) == ""


@pytest.mark.parametrize(
    ("argv", "entry", "words"),
    [
        (
            "python train.py --lr 1",
            "train.py",
            "after -- come only the script's arguments: leave out python train.py",
        ),
        ("/usr/bin/python3 ws/train.py", "train.py", "leave out /usr/bin/python3 ws/train.py"),
        ("python other.py", "train.py", ""),
        ("python train.py", "run.sh", ""),
        ("--lr 1", "train.py", ""),
        ("python", "train.py", ""),
    ],
)
def test_a_command_line_after_the_dashes_is_refused(argv: str, entry: str, words: str) -> None:
    found = repeated(argv.split(), Entry(path=entry))
    assert found.endswith(words)
    assert bool(found) == bool(words)


def test_the_packages_that_contain_a_module_are_read(workspace: Path) -> None:
    (workspace / "pkg" / "sub").mkdir(parents=True)
    (workspace / "pkg" / "sub" / "train.py").write_text("import os\n")
    assert "--x" in unread(["--x"], Entry(module="pkg.sub.train"), workspace, Mode.COLLECTIVE)
    (workspace / "pkg" / "__init__.py").write_text(READER)
    assert unread(["--x"], Entry(module="pkg.sub.train"), workspace, Mode.COLLECTIVE) == ""


def test_modules_beside_a_script_in_a_folder_are_read(workspace: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "train.py").write_text("import datasets\n")
    (workspace / "src" / "datasets.py").write_text(READER)
    assert corrections(workspace, "--x", entry="src/train.py") == ""
    (workspace / "src" / "datasets.py").write_text("import os\n")
    assert "--x" in corrections(workspace, "--x", entry="src/train.py")


def test_a_job_with_an_unread_argument_does_not_start(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (workspace / "train.py").write_text("open('ran', 'w')\n")
    monkeypatch.chdir(workspace.parent)
    argv = ["-p", str(workspace), "--mode=collective", "--hosts=local"]
    with pytest.raises(UsageError, match="neither the launcher nor train") as caught:
        run([*argv, "--x"])
    assert caught.value.exit_code is ExitCode.USAGE
    assert run([*argv, "--dry_run", "--", "--x"]) is ExitCode.DONE
