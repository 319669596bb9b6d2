# SPDX-License-Identifier: Apache-2.0
"""Warnings about a workspace's files, which a job prints before its nodes are connected."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddle_cluster.plan.plan_text import describe, opening
from tests.launcher.planning import LOCAL, Planned


@pytest.mark.parametrize(
    ("script", "module", "is_reported"),
    [
        ("import torch\n", "", True),
        ("import torch, nets\n", "import torch.nn\n", True),
        ("import torch, nets\n", "import torch.distributed as dist\n", False),
        ("import torch, os\nrank = os.environ['RANK']\n", "", False),
        ("import nets\n", "", False),
        ("import torch\nprint(", "", False),
    ],
)
def test_a_torch_script_whose_ranks_never_meet_is_reported(
    planned: Planned,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    module: str,
    is_reported: bool,
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/train.py").write_text(script)
    (tmp_path / "ws/nets.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    text = opening(planned(LOCAL, "--mode=collective"))
    assert ("3 ranks will train alone" in text) == is_reported
    assert "train alone" not in opening(planned(LOCAL, "--mode=collective", "--nnodes=1"))


def test_a_file_that_hides_a_package_is_reported(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ws").mkdir()
    for name in ("train.py", "torch.py"):
        (tmp_path / "ws" / name).touch()
    monkeypatch.chdir(tmp_path)
    (line,) = opening(planned(LOCAL)).splitlines()[2:]
    assert "ws/torch.py" in line
    assert line in describe(planned(LOCAL)).splitlines()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (
            "#!/bin/sh\nconda activate x\n",
            "ws/run.sh:2: a job has no login shell, so `conda activate` is probably not defined",
        ),
        ("#!/bin/bash\nset -e\nmodule load cuda\n", "ws/run.sh:3: "),
        ("#!/bin/bash\n. /opt/conda/etc/profile.d/conda.sh\nconda activate x\n", ""),
        ('#!/bin/bash\neval "$(conda shell.bash hook)"\nconda activate x\n', ""),
        ("#!/bin/bash\nsource activate x\n", "ws/run.sh:2: "),
        ("#!/bin/bash -l\nmodule load cuda\n", ""),
        ("#!/bin/bash -i\nconda activate x\n", ""),
        ("#!/bin/bash\n[ -f /m.sh ] && . /m.sh\nmodule load cuda\n", ""),
        ("#!/bin/bash\nmodule() { eval `modulecmd bash $*`; }\nmodule load cuda\n", ""),
        ("#!/bin/bash\nif command -v module; then\n  module load cuda\nfi\n", ""),
        ("#!/bin/bash\n# source it first\nexport A=1\nmodule load cuda\n", "ws/run.sh:4: "),
    ],
)
def test_a_command_that_only_login_shells_have_is_reported(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "run.sh").write_text(script)
    monkeypatch.chdir(tmp_path)
    lines = opening(planned(LOCAL, "--entry=run.sh")).splitlines()[2:]
    assert [line.partition(told)[0] for line in lines] == (["WARNING: "] if told else [])


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("def main():\n    pass\n", "train.py:1: the script defines main, but never calls it"),
        (
            "def main():\n    pass\nif __name__ == 'main':\n    main()\n",
            "train.py:3: the name of a script is '__main__', never 'main'",
        ),
        ("def main():\n    pass\nif __name__ == '__main__':\n    main()\n", ""),
        ("def main():\n    pass\n\nmain()\n", ""),
        ("def main():\n    pass\nx = main()\n", ""),
        ("import nets\n\ndef helper():\n    pass\n", ""),
        ("from nets import ex\n\n@ex.automain\ndef main():\n    pass\n", ""),
        ("def main():\n    pass\nif __name__ == '__mp_main__':\n    main()\nmain()\n", ""),
    ],
)
def test_a_script_that_calls_none_of_its_functions_is_reported(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    lines = opening(planned(LOCAL)).splitlines()[2:]
    assert len(lines) == bool(told)
    assert told in "".join(lines)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (
            "torchrun --nnodes=3 --nproc_per_node=1 train.py\n",
            "run.sh:2 starts torchrun, but the launcher starts the processes itself: give --entry=train.py "
            "--nproc_per_node=1",
        ),
        (
            'cd src && exec torchrun --standalone \\\n  --nproc-per-node 2 train.py --lr 0.1 "$@"\n',
            "run.sh:2 starts torchrun, so each node trains a model of its own, but the launcher starts the processes "
            "itself: give --entry=train.py --nproc_per_node=2 -- --lr 0.1",
        ),
        (
            '# start\n"$PADDLE_PYTHON" -u -m torch.distributed.run --nnodes=3 --nproc_per_node=$GPUS train.py\n',
            "run.sh:3 starts torch.distributed.run, but the launcher starts the processes itself: give "
            "--entry=train.py --nproc_per_node=N",
        ),
        ("OMP_NUM_THREADS=1 accelerate launch --num_machines 3 -m pkg.train\n", "give --entry=-mpkg.train"),
        (
            "srun ./a.out\n",
            "run.sh:2 starts srun, but the launcher starts the processes itself: leave srun out",
        ),
        (
            "torchrun --nnodes=$NNODES --node_rank=$NODE_RANK --master_addr=$MASTER_ADDR train.py\n",
            "run.sh:2 NNODES is not set in a job",
        ),
        ("torchrun --nnodes=3 --node_rank=$PADDLE_TRAINER_ID --master_addr $MASTER_ADDR train.py\n", ""),
        ("torchrun --nnodes=3 --rdzv_endpoint=$MASTER_ADDR:29400 train.py\n", ""),
        ("if [ $NODE_RANK = 0 ]; then\n  mpirun -H a,b train.py\nfi\n", ""),
        ("echo torchrun --nnodes=3 train.py\n# torchrun --nnodes=3 train.py\ntorchrun --version\n", ""),
        ("cat <<END\ntorchrun --nnodes=3 train.py\nEND\n", ""),
    ],
)
def test_a_shell_script_that_starts_another_launcher_is_reported(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "run.sh").write_text(f"#!/bin/sh -e\n{script}")
    monkeypatch.chdir(tmp_path)
    lines = opening(planned(LOCAL, "--entry=run.sh", "--mode=collective")).splitlines()[2:]
    assert [told in line for line in lines] == [True] * bool(told)
    assert "starts" not in opening(planned(LOCAL, "--entry=run.sh", "--mode=collective", "--nnodes=1"))


@pytest.mark.parametrize(
    ("definition", "arguments", "is_reported"),
    [
        ('parser.add_argument("-n", "--name")', ["--name=run7"], True),
        ("@click.option('--name')\ndef main(name): ...", ["--name", "run7", "--lr=1"], True),
        ('parser.add_argument("--name")', ["--name=run7", "--", "--name=resnet"], False),
        ('parser.add_argument("--named")', ["--name=run7"], False),
        ('parser.add_argument("--name")', [], False),
    ],
)
def test_a_name_that_the_script_may_expect_is_reported(
    planned: Planned,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    definition: str,
    arguments: list[str],
    is_reported: bool,
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/train.py").write_text(f"{definition}\n")
    monkeypatch.chdir(tmp_path)
    assert ("--name=run7 names the job" in opening(planned(LOCAL, *arguments))) == is_reported
