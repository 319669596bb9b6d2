# SPDX-License-Identifier: Apache-2.0
"""Warnings about habits of PyTorch scripts for one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddle_cluster.plan.plan_text import opening
from tests.launcher.planning import LOCAL, Planned

BODY = """import torch, os
from torch import distributed, nn, multiprocessing as mp
distributed.init_process_group("gloo")
loss.backward()
"""
_POOL = "from concurrent import futures\ndef work(x): 1 / 0\nwith futures.ThreadPoolExecutor() as pool:\n"
WRAPPED = BODY + "model = nn.parallel.DistributedDataParallel(model)\n"


@pytest.mark.parametrize(
    ("script", "warned"),
    [
        (BODY, "train.py:4: nothing exchanges gradients"),
        (BODY + "distributed.all_reduce(x)\n", ""),
        (WRAPPED, ""),
        (WRAPPED + "data = DataLoader(dataset)\n", "train.py:6: every rank reads the same samples"),
        (WRAPPED + "data = DataLoader(dataset, sampler=DistributedSampler(dataset))\n", ""),
        (WRAPPED + "data = DataLoader(dataset[rank::ranks])\n", ""),
        (
            WRAPPED + "os.environ['MASTER_ADDR'] = 'localhost'\n",
            "train.py:6: ranks of other nodes cannot find",
        ),
        (WRAPPED + "if 'MASTER_ADDR' not in os.environ:\n    os.environ['MASTER_ADDR'] = 'a'\n", ""),
        (WRAPPED + "mp.spawn(main, nprocs=2)\n", "train.py:6: each rank of the job starts ranks of its own"),
        (WRAPPED + "if 'RANK' not in os.environ:\n    os.environ['MASTER_ADDR'] = 'localhost'\n", ""),
        (WRAPPED + "if os.environ.get('RANK') is None:\n    os.environ['MASTER_ADDR'] = '127.0.0.1'\n", ""),
        (
            WRAPPED + "os.environ['MASTER_ADDR'] = os.environ.get('MASTER_ADDR', 'localhost')\n",
            "",
        ),
        (WRAPPED + "os.environ['MASTER_ADDR'] = first_host(os.environ['SLURM_NODELIST'])\n", ""),
        (WRAPPED + "os.environ['MASTER_PORT'] = '29500'\n", ""),
        (WRAPPED + "if 'LOCAL_RANK' in os.environ:\n    main()\nelse:\n    mp.spawn(main)\n", ""),
        (WRAPPED + "rank = int(socket.gethostname()[-1])\n", "train.py:6: names of hosts are not ranks"),
        (WRAPPED + "args.rank = args.rank * gpus_of_a_node + gpu\nmp.spawn(main)\n", ""),
        (WRAPPED + "mesh = init_device_mesh('cpu', (2,))\ndata = DataLoader(dataset)\n", ""),
        (BODY.replace("torch", "nets"), ""),
    ],
)
def test_habits_that_keep_ranks_from_training_together_are_warned_of(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, warned: str
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    lines = [line for line in opening(planned(LOCAL, "--mode=collective")).splitlines() if "WARNING" in line]
    assert [warned in line for line in lines] == [True] * bool(warned)
    assert "WARNING" not in opening(planned(LOCAL, "--mode=collective", "--nnodes=1"))


@pytest.mark.parametrize(
    ("script", "warned"),
    [
        ("try:\n    trainer.train(reader)\nexcept:\n    pass\n", "train.py:3: if training fails"),
        (
            "try:\n    main()\nexcept Exception as error:\n    print(error)\n",
            "train.py:3: if training fails",
        ),
        (
            "try:\n    f()\nexcept ValueError:\n    log(1)\n    sys.exit(0)\n",
            "train.py:5: this line reports success",
        ),
        ("try:\n    f()\nexcept OSError:\n    os._exit(0)\n", "train.py:4: this line reports success"),
        (f"{_POOL}    pool.submit(work, 1)\n", "train.py:4: an error in the function is lost"),
        (f"{_POOL}    pool.map(work, x)\n", "train.py:4: an error in the function is lost"),
        (f"{_POOL}    done = pool.submit(work, 1)\n", ""),
        (f"{_POOL}    list(pool.map(work, x))\n", ""),
        (f"{_POOL}    pool.submit(imported, 1)\n", ""),
        (f"{_POOL}    queue.submit(work)\n", ""),
        (f"{_POOL}    pool.submit(work)\n".replace("1 / 0", "\n try: f()\n finally: pass"), ""),
        ("os.system('python3 train2.py')\n", "train.py:1: this line discards the exit code"),
        (
            "subprocess.run([sys.executable, 'b.py'], env=python)\n",
            "train.py:1: this line discards the exit code",
        ),
        ("subprocess.run(['python', 'b.py'], check=True)\n", ""),
        ("code = os.system('python3 train2.py')\n", ""),
        ("os.system('mkdir -p a')\n", ""),
        ("def main(): pass\nmain\n", "train.py:1: the script defines main, but never calls it"),
        ("try:\n    main()\nexcept Exception:\n    print(1)\n    raise\n", ""),
        ("try:\n    main()\nexcept Exception:\n    sys.exit(1)\n", ""),
        ("try:\n    main()\nexcept KeyboardInterrupt:\n    sys.exit(0)\n", ""),
        ("try:\n    import yaml\nexcept Exception:\n    pass\n", ""),
        ("while True:\n    try:\n        train()\n    except Exception:\n        pass\n", ""),
        ("try:\n    while True:\n        exe.run()\nexcept fluid.core.EOFException:\n    pass\n", ""),
        ("try:\n    f()\nexcept fluid.core.EOFException:\n    reader.reset()\n    sys.exit(0)\n", ""),
        ("try:\n    main()\n    sys.exit(0)\nexcept Exception as e:\n    print(e)\nsys.exit(1)\n", ""),
        ("ok = 0\ntry:\n    main()\n    ok = 1\nexcept Exception:\n    pass\nsys.exit(1 - ok)\n", ""),
    ],
)
def test_statements_that_turn_a_failure_into_success_are_warned_of(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, warned: str
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    lines = [line for line in opening(planned(LOCAL, "--mode=collective")).splitlines() if "WARNING" in line]
    assert [warned in line for line in lines] == [True] * bool(warned)


@pytest.mark.parametrize(
    ("script", "warned"),
    [
        ('parser.add_argument("--trainer_id", type=int, default=0)\n', "PADDLE_INIT_TRAINER_ID"),
        ("add('-n', '--num_gradient_servers')\nBATCH_SIZE = 2\n", "PADDLE_INIT_NUM_GRADIENT_SERVERS"),
        ("add('--trainer_id', default=int(os.getenv('PADDLE_INIT_TRAINER_ID', 0)))\n", ""),
        ("add('--trainer_id', default=rank())\n", ""),
        ("add('--trainer_id', default=0)\nif cluster: rank = os.environ['OMPI_COMM_WORLD_RANK']\n", ""),
        ("add('--num_gradient_servers', default=1)\nsize = os.environ['PADDLE_TRAINERS_NUM']\n", ""),
        ("print('--trainer_id is set')\n", ""),
    ],
)
def test_options_about_trainers_that_no_trainer_gets_are_warned_of(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, warned: str
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    lines = [line for line in opening(planned(LOCAL, "--mode=v2")).splitlines() if "WARNING" in line]
    assert [warned in line and "ws/train.py:1: " in line for line in lines] == [True] * bool(warned)
    given = ("--", "--trainer_id=0", "--num_gradient_servers", "3")
    for options in (("--mode=v2", "--nnodes=1"), ("--mode=collective",), ("--mode=v2", *given)):
        assert "WARNING" not in opening(planned(LOCAL, *options))


@pytest.mark.parametrize(
    ("script", "warned"),
    [
        (
            "python3 train.py 2>&1 | tee log.txt\n",
            "run.sh:2: the exit code of this line is that of the last program",
        ),
        ("set -o pipefail\npython3 train.py | tee log.txt\n", ""),
        (
            "A=1 /usr/bin/python3.11 train.py\necho done\n",
            "run.sh:2: if this line fails, the script continues",
        ),
        ('"$PADDLE_PYTHON" train.py\n\ncp a output\n', "run.sh:2: if this line fails, the script continues"),
        ("set -e\npython3 train.py\necho done\n", ""),
        ("python3 prepare.py || exit 1\npython3 train.py\n", ""),
        ("python3 a.py &\npython3 b.py\n", ""),
        ("python3 train.py \\\n  --lr 1\n", ""),
        ("python3 train.py\n# the end\n", ""),
        ("python3 - <<END\nprint(1)\nEND\n", ""),
        ("PY=python3\n$PY train.py\n", ""),
    ],
)
def test_lines_of_a_shell_script_whose_failure_is_lost_are_warned_of(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, warned: str
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/run.sh").write_text(f"#!/bin/bash\n{script}")
    (tmp_path / "ws/run.sh").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    started = opening(planned(LOCAL, "--mode=collective", "--entry=run.sh"))
    lines = [line for line in started.splitlines() if "WARNING" in line]
    assert [warned in line for line in lines] == [True] * bool(warned)


@pytest.mark.parametrize(
    ("script", "argv", "warned"),
    [
        ("export RANK=$SLURM_PROCID\n", [], "run.sh:2: SLURM_PROCID is empty in a job: use RANK instead"),
        ("\necho ${SLURM_NTASKS}x\n", [], "run.sh:3: SLURM_NTASKS is empty in a job: use WORLD_SIZE instead"),
        ("R=$SLURM_PROCID\n", ["--env=SLURM_PROCID=0"], ""),
        ("R=${SLURM_PROCID:-$RANK}\n", [], ""),
        ("SLURM_PROCID=$RANK\necho $SLURM_PROCID\n", [], ""),
        ('[ -n "$SLURM_PROCID" ] && RANK=$SLURM_PROCID\n', [], ""),
        ("# $SLURM_PROCID\necho $SLURM_PROCID_X\n", [], ""),
        ("srun sh -c 'echo $SLURM_PROCID'\n", [], "run.sh:2 starts srun, but"),
        ("R=$OMPI_COMM_WORLD_RANK\n", [], ""),
    ],
)
def test_ranks_of_other_launchers_that_a_shell_script_expands_are_warned_of(
    planned: Planned,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    argv: list[str],
    warned: str,
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/run.sh").write_text(f"#!/bin/bash\n{script}")
    (tmp_path / "ws/run.sh").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    started = opening(planned(LOCAL, "--mode=collective", "--entry=run.sh", *argv))
    lines = [line for line in started.splitlines() if "WARNING" in line]
    assert [warned in line for line in lines] == [True] * bool(warned)
