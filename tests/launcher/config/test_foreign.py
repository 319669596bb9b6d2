# SPDX-License-Identifier: Apache-2.0
"""Entries of other launchers and scripts of other frameworks: refused before any connection, with what to give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paddle_cluster.config.workspace import check_workspace
from paddle_cluster.errors import ExitCode, UsageError
from tests.launcher.configuring import Resolve

TWO = "HOSTS = ['a', 'b']\n"
ONE = "HOSTS = ['a']\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "train.py").write_text("import torch\n")
    return tmp_path / "ws"


def refused(configured: Resolve, *argv: str, conf: str = TWO) -> str:
    with pytest.raises(UsageError) as caught:
        check_workspace(configured(conf, "-p", "ws", *argv))
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value)


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (
            "-mtorch.distributed.run -- --nproc_per_node=2 train.py --lr=1",
            "train.py --nproc_per_node=2 -- --lr=1",
        ),
        ("-mtorch.distributed.launch -- --nproc-per-node 2 train.py", "train.py --nproc_per_node=2"),
        ("-mtorch.distributed.run --nproc_per_node=3 -- train.py", "train.py --nproc_per_node=3"),
        ("torchrun -- --nproc_per_node=2 -m pkg.train", "-mpkg.train --nproc_per_node=2"),
        ("accelerate -- launch --num_processes 4 train.py", "train.py --nproc_per_node=2"),
        ("-maccelerate.commands.launch -- train.py", "train.py"),
        (
            "deepspeed -- --num_gpus=2 train.py --deepspeed c.json",
            "train.py --nproc_per_node=2 -- --deepspeed c.json",
        ),
        ("horovodrun -- -np 4 python train.py", "train.py --nproc_per_node=2"),
        ("mpirun -- -np 2 python train.py", "train.py"),
        ("-mpaddle.distributed.launch -- --gpus 2 train.py", "train.py --nproc_per_node=2"),
    ],
)
def test_a_launcher_as_the_entry_is_refused_with_the_command_that_is_meant(
    configured: Resolve, files: Path, argv: str, meant: str
) -> None:
    says = refused(configured, *f"--entry={argv}".split())
    assert says.endswith(f"Use: --mode=collective --entry={meant}")
    assert re.search(r"would train \d separate models, one per process", says)


def test_torchrun_may_have_all_processes_of_one_node_to_itself(configured: Resolve, files: Path) -> None:
    check_workspace(configured(ONE, "-p", "ws", "--mode=collective", "--entry=-mtorch.distributed.run"))
    assert "would train 2 separate models" in refused(
        configured, "--entry=-mtorch.distributed.run", "--nproc_per_node=2", conf=ONE
    )
    assert "torchrun needs --mode=collective" in refused(
        configured, "--entry=-mtorch.distributed.run", conf=ONE
    )
    assert "torchrun is not in the workspace" in refused(configured, "--entry=torchrun", conf=ONE)


def test_torchrun_may_meet_at_an_endpoint(configured: Resolve, files: Path) -> None:
    options = ["--nnodes=2", "--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_endpoint=10.0.0.1:29400"]
    entry = ["--mode=collective", "--entry=-mtorch.distributed.run", "--"]
    check_workspace(configured(TWO, "-p", "ws", *entry, *options, "train.py"))


def test_a_file_of_the_workspace_may_have_the_name_of_a_launcher(configured: Resolve, files: Path) -> None:
    (files / "composer").write_text("#!/bin/sh\n")
    (files / "composer").chmod(0o755)
    (files / "ray" / "scripts").mkdir(parents=True)
    (files / "ray" / "scripts" / "__main__.py").write_text("pass\n")
    check_workspace(configured(TWO, "-p", "ws", "--entry=composer"))
    check_workspace(configured(TWO, "-p", "ws", "--entry=-mray.scripts"))


@pytest.mark.parametrize(
    ("script", "is_right"),
    [
        ('torchrun --nproc_per_node=2 \\\n    train.py "$@"\n', False),
        ('exec "$PADDLE_PYTHON" -m torch.distributed.run --nproc_per_node=2 train.py\n', False),
        ("torchrun --nnodes=2 --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT --nproc_per_node=2 train.py\n", True),
        ("torchrun $OPTIONS train.py\n", True),
        ("torchrun --standalone train.py\n", True),
        ("# torchrun train.py\npython train.py\n", True),
        ("command -v torchrun >/dev/null || exit 1\npython train.py\n", True),
        ("echo 'not with torchrun train.py'\npython train.py\n", True),
        ("cd torchrun && python train.py\n", True),
        ("mpirun -np 2 python train.py\n", False),
        ("accelerate launch train.py --lr 1\n", False),
        ("mpirun -np 2 python prepare.py\npython train.py\n", True),
        ('if [ "$RANK" = 0 ]; then\nmpirun -np 2 python train.py\nfi\n', True),
        ("mpirun --hostfile=h python train.py\n", True),
        ("# mpirun python train.py\npython train.py\n", True),
    ],
)
def test_a_script_may_start_another_launcher_if_it_names_the_other_nodes(
    configured: Resolve, files: Path, script: str, is_right: bool
) -> None:
    (files / "run.sh").write_text(f"#!/bin/sh\n{script}")
    (files / "run.sh").chmod(0o755)
    argv = ("--mode=collective", "--entry=run.sh")
    if is_right:
        check_workspace(configured(TWO, "-p", "ws", *argv))
    else:
        assert re.search(
            "starts (torchrun without --nnodes|mpirun, so|accelerate launch, so)", refused(configured, *argv)
        )
        check_workspace(configured(ONE, "-p", "ws", *argv))


@pytest.mark.parametrize(
    "source",
    [
        "import torch\n",
        "def main():\n    from jax import numpy\n",
        "from . import models\n",
        "import models.net\n",
    ],
)
def test_a_script_of_another_framework_is_asked_for_its_mode(
    configured: Resolve, files: Path, source: str
) -> None:
    (files / "models").mkdir()
    (files / "models" / "__init__.py").write_text("")
    (files / "models" / "net.py").write_text("import tensorflow as tf\n")
    (files / "train.py").write_text(source)
    (files / "models" / "__init__.py").write_text("from .net import tf\n")
    says = refused(configured)
    assert re.search(r"^train.py imports (torch|jax|tensorflow), not paddle: did you mean --mode=coll", says)
    for mode in ("v2", "fluid", "collective"):
        check_workspace(configured(TWO, "-p", "ws", f"--mode={mode}"))


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nimport paddle.v2 as paddle\n",
        "import torch\nimport importlib\nimportlib.import_module('paddle.v2')\n",
        "import torch\nfrom models import net\n",
        "import numpy\n",
        "import torch\nprint 'Python 2'\n",
    ],
)
def test_a_script_that_has_paddle_anywhere_is_not_asked(
    configured: Resolve, files: Path, source: str
) -> None:
    (files / "models").mkdir()
    (files / "models" / "net.py").write_text("import paddle.pserver\n")
    (files / "train.py").write_text(source)
    check_workspace(configured(TWO, "-p", "ws"))
