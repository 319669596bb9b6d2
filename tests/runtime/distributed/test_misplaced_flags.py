# SPDX-License-Identifier: Apache-2.0
"""Flags and environment of `launch` and `launch_ps`, before anything is started; flags that went to the script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddle.distributed import launch_ps, nodes
from paddle.distributed.keeper import last_lines
from paddle.errors import ConfigError

RUNTIME = Path(__file__).resolve().parents[3] / "runtime"
LIMIT_S = 60.0
SHOWS = """
import json, os, pathlib, sys
role, rank = os.environ["TRAINING_ROLE"], os.environ["PADDLE_TRAINER_ID"]
pathlib.Path(f"{role}.{rank}").write_text(json.dumps(sys.argv[1:]))
"""


def launched(folder: Path, *words: str, module: str = "launch") -> tuple[list[list[str]], str]:
    """What each trainer got as its arguments, and what the launcher said."""
    (folder / "train.py").write_text(SHOWS)
    ended = subprocess.run(
        [sys.executable, "-P", "-m", f"paddle.distributed.{module}", *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(RUNTIME), "CPU_NUM": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    return [json.loads(path.read_text()) for path in sorted(folder.glob("TRAINER.*"))], ended.stderr


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ("train.py --gpus 2", "--gpus 2 train.py"),
        ("train.py --lr 0.1 --gpus=2 data", "--gpus=2 train.py --lr 0.1 data"),
        ("train.py --gpus 2 --log_dir logs x", "--gpus 2 --log_dir logs train.py x"),
        ("--print_config=False train.py --gpus 2", "--print_config=False --gpus 2 train.py"),
    ],
)
def test_flags_after_the_script_are_the_scripts_and_the_right_command_is_told(
    words: str, right: str, tmp_path: Path
) -> None:
    given = words.split()
    trainers, said = launched(tmp_path, *given)
    assert trainers == [given[given.index("train.py") + 1 :]]
    assert "launch: WARNING: --gpus" in said
    assert f"python -m paddle.distributed.launch {right}. " in said


def test_the_command_that_is_told_does_what_was_meant(tmp_path: Path) -> None:
    trainers, said = launched(tmp_path, "--gpus", "2", "train.py", "--lr", "0.1")
    assert trainers == [["--lr", "0.1"]] * 2
    assert "WARNING" not in said


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("--gpus=2 train.py --gpus 7", 2),
        ("train.py -- --gpus 7", 1),
        ("train.py --gpus_per_step 7", 1),
        ("train.py gpus --n=--gpus", 1),
    ],
)
def test_who_says_that_a_flag_is_the_scripts_is_told_nothing(words: str, count: int, tmp_path: Path) -> None:
    given = words.split()
    trainers, said = launched(tmp_path, *given)
    assert trainers == [given[given.index("train.py") + 1 :]] * count
    assert "WARNING" not in said


def test_launch_ps_tells_of_its_own_flags(tmp_path: Path) -> None:
    trainers, said = launched(tmp_path, "train.py", "--worker_num=1", "--gpus", "2", module="launch_ps")
    assert trainers == [["--worker_num=1", "--gpus", "2"]] * 2
    assert "launch: WARNING: --worker_num=1 comes after train.py, so it is passed to the script" in said
    assert "python -m paddle.distributed.launch_ps --worker_num=1 train.py --gpus 2. " in said


@pytest.mark.parametrize("name", ["PADDLE_TRAINER_ID", "PADDLE_NUM_TRAINERS"])
def test_a_number_that_is_no_number_of_nodes_is_told(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        nodes.resolve(None, None, {name: "9" * 5000})


def test_brackets_of_ipv6_are_not_part_of_an_address() -> None:
    assert nodes.resolve("[fd00::1], fd00::2", "[fd00::2]", {}) == nodes.Nodes(("fd00::1", "fd00::2"), 1)


@pytest.mark.parametrize("name", ["--cluster_node_ips", "PADDLE_TRAINERS", "POD_IP"])
def test_a_node_with_a_port_in_its_address_is_told(name: str) -> None:
    given = "10.0.0.1:6170" if name == "POD_IP" else "10.0.0.1:6170,10.0.0.2"
    flag = given if name == "--cluster_node_ips" else None
    with pytest.raises(
        ConfigError, match=rf"{name}.*write 10\.0\.0\.1 here, and give the port 6170 as --start"
    ):
        nodes.resolve(flag, None, {} if flag else {name: given})


@pytest.mark.parametrize("given", ["127.0.0.1:65536", "127.0.0.1:0", "10.0.0.1:6170,10.0.0.1:6170"])
def test_endpoints_that_cannot_be_are_refused(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.touch()
    assert launch_ps.main([f"--endpoints={given}", str(script)]) == 2
    assert "--endpoints" in capsys.readouterr().err


def test_the_end_of_a_log_without_end_is_bounded() -> None:
    assert all(len(line) <= 16384 for line in last_lines(Path("/dev/full")))
