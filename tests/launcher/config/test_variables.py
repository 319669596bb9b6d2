# SPDX-License-Identifier: Apache-2.0
"""--env, --env_file and the workspace's .env: who wins, what is refused, and that no value is ever shown."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_cluster.cli.commands.run import spans
from paddle_cluster.config.arguments import parse
from paddle_cluster.config.resolve import resolve
from paddle_cluster.config.settings import Settings
from paddle_cluster.config.variables import refusal
from paddle_cluster.errors import ConfError, ExitCode
from paddle_cluster.files.payload import Payload
from paddle_cluster.plan import plan as planning
from paddle_cluster.plan.environment import ADDED_ON_NODE
from paddle_cluster.plan.machines import INTERFACE_VARIABLES, Machines
from paddle_cluster.plan.plan_text import describe
from paddle_node.contract import names

# What a plan sets and the user may set instead.
REPLACEABLE = frozenset(
    (
        "GLOG_max_log_size",
        "PYTHONPATH",
        "PYTHONUNBUFFERED",
        "PYTHONFAULTHANDLER",
        "LD_LIBRARY_PATH",
        "CUDA_VISIBLE_DEVICES",
        "FLAGS_selected_gpus",
        "OMP_NUM_THREADS",
        "PADDLE_PSERVER_PATIENCE_S",
        "PADDLE_PSERVER_STATE_DIR",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_THREAD_TIMEOUT",
        "TF_CONFIG",
        "OMPI_MCA_orte_hnp_uri",
        *(f"DMLC_{name}" for name in ("TRACKER_URI", "TRACKER_PORT", "NUM_WORKER", "TASK_ID")),
        *(f"JAX_{name}" for name in ("COORDINATOR_ADDRESS", "COORDINATOR_BIND_ADDRESS", "LOCAL_DEVICE_IDS")),
        *INTERFACE_VARIABLES,
    )
)
ROOT = Path(__file__).resolve().parents[3]
ADDRESSES = {0: "10.0.0.1", 1: "10.0.0.2"}
SECRET = "s3cret-value"

Resolve = Callable[..., Settings]


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """The settings for a workspace `ws` with these arguments and environment."""
    monkeypatch.chdir(tmp_path)
    Path("conf.py").write_text("HOSTS = ['a', 'b']\n")
    Path("ws").mkdir()
    Path("ws/train.py").write_text("pass\n")

    def settings(*argv: str, **environ: str) -> Settings:
        return resolve(parse(["--conf=conf.py", "-p", "ws", *argv]), environ)

    return settings


def refused(configured: Resolve, *argv: str, **environ: str) -> str:
    with pytest.raises(ConfError) as caught:
        configured(*argv, **environ)
    assert caught.value.exit_code is ExitCode.USAGE
    assert SECRET not in str(caught.value)
    return str(caught.value)


def test_the_last_source_wins(configured: Resolve) -> None:
    Path("ws/.env").write_text("A=ws\nB=ws\nC=ws\nD=ws\n")
    Path("one.env").write_text("B=one\nC=one\nD=one\n")
    Path("two.env").write_text("C=two\nD=two\n")
    argv = ["--env", "D=first", "--env_file=one.env", "--env=D=last", "--env_file=two.env", "--env", "E"]
    variables = configured(*argv, E="mine", F="not asked for").job.variables
    assert variables.revealed("/runtime") == {"A": "ws", "B": "one", "C": "two", "D": "last", "E": "mine"}


def test_a_value_keeps_everything_after_the_first_sign(configured: Resolve) -> None:
    variables = configured("--env", "A=b=c d$(id)\n", "--env=B=").job.variables
    assert variables.revealed("/runtime") == {"A": "b=c d$(id)\n", "B": ""}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--env", "TOKEN"], "--env TOKEN: TOKEN is not in your environment; export it first"),
        (
            ["--env", f"1A={SECRET}"],
            "--env: expected NAME or NAME=VALUE with a name of letters, digits and _, got '1A'",
        ),
        ([f"--env=={SECRET}"], "--env: expected NAME or NAME=VALUE"),
        (
            ["--env", f"{SECRET}!"],
            "is it a value without its NAME=? To pass it to your script, put it after --.",
        ),
        (["--env", f"RANK={SECRET}"], "RANK cannot be set: it is derived from PSERVERS, TRAINERS and"),
        (
            ["--env", "PADDLE_JOB_KEY=x"],
            "PADDLE_JOB_KEY cannot be set: ",
        ),
        (["--env", "PADDLE_INIT_SEED=1"], "give the flag --seed=VALUE instead"),
        (["--env", "PADDLE_WIRE=plain"], "give --wire instead"),
        (
            ["--env", "BIG=" + SECRET * 20_000],
            "BIG: name and value take 240004 bytes, but Linux allows 131071",
        ),
        (["--env_file", "none.env"], "none.env: no such file"),
        (
            ["--env_file", "much.env"],
            "much.env:9: V8: all variables together exceed 1048576 bytes",
        ),
        (["--env_file", "."], ".: cannot be read: a directory; --env_file "),
        (["--env_file", "/dev/zero"], "/dev/zero: cannot be read: the file is larger than 8 MiB"),
        (["--env_file", "bad.env"], "bad.env:2: expected NAME=VALUE"),
        (["--env_file", "rank.env"], "rank.env:3: LOCAL_RANK cannot be set"),
    ],
)
def test_a_wrong_variable_is_refused_with_its_place(configured: Resolve, argv: list[str], words: str) -> None:
    Path("bad.env").write_text(f"A=1\n{SECRET}\n")
    Path("much.env").write_text("".join(f"V{number}={'x' * 120_000}\n" for number in range(40)))
    Path("rank.env").write_text(f"\n\nLOCAL_RANK={SECRET}\n")
    assert words in refused(configured, *argv)


def test_a_wrong_line_in_the_workspaces_file_is_told(configured: Resolve) -> None:
    Path("ws/.env").write_text("MASTER_PORT=1\n")
    assert "ws/.env:1: MASTER_PORT cannot be set: " in refused(configured)


@pytest.mark.parametrize("mode", ["v2", "fluid", "collective"])
def test_whatever_a_plan_sets_is_refused_or_may_be_replaced(configured: Resolve, mode: str) -> None:
    settings = configured(f"--mode={mode}", "--nproc_per_node=2", "--seed=1")
    plan = planning.build(settings, "JOB1")
    endpoints = planning.planned_endpoints(plan, ADDRESSES)
    machines = Machines(gpus={0: 8, 1: 8})
    processes = [
        *planning.pserver_processes(plan, ADDRESSES, machines),
        *planning.trainer_processes(plan, ADDRESSES, endpoints, machines),
    ]
    names = {name for process in processes for name in process.env} - REPLACEABLE
    assert {name for name in names if not refusal(name)} == set()
    assert {name for name in REPLACEABLE if refusal(name)} == set()


def test_whatever_is_added_to_a_process_later_is_refused_and_in_the_dry_run() -> None:
    sources = [ROOT / "paddle_cluster/job/starter.py", *(ROOT / "runtime/paddle_node/agent").rglob("*.py")]
    named = {name for path in sources for name in re.findall(r'"(PADDLE_[A-Z_]+)"', path.read_text())}
    named |= {name for path in sources for name in re.findall(r"\b(PADDLE_[A-Z_]+)=", path.read_text())}
    named |= {text for text in vars(names).values() if str(text).startswith("PADDLE_")}
    assert len(named) > 4
    assert {name for name in named if not refusal(name)} == set()
    assert named - {names.JOB_ID, names.NODE_ID, names.WIRE, "PADDLE_PYTHON"} <= set(ADDED_ON_NODE)


def test_a_python_path_of_the_user_comes_after_the_runtime(configured: Resolve) -> None:
    assert configured("--env=PYTHONPATH=/a:/b").job.variables.revealed("/rt") == {"PYTHONPATH": "/rt:/a:/b"}
    assert configured("--env=PYTHONPATH=").job.variables.revealed("/rt") == {"PYTHONPATH": "/rt"}


@pytest.mark.parametrize(
    ("value", "planned", "sent"),
    [("2,3", [None, None], {"CUDA_VISIBLE_DEVICES": "2,3"}), ("all", ["0,1", "2,3"], {})],
)
def test_a_user_who_rules_the_gpus_is_left_to_it(
    configured: Resolve, value: str, planned: list[str | None], sent: dict[str, str]
) -> None:
    settings = configured("--nproc_per_node=2", "--mode=collective", f"--env=CUDA_VISIBLE_DEVICES={value}")
    plan = planning.build(settings, "JOB1")
    first, second, *_ = planning.trainer_processes(plan, ADDRESSES, {}, Machines(gpus={0: 4, 1: 4}))
    assert "CUDA_VISIBLE_DEVICES" not in first.env
    assert [process.env.get("FLAGS_selected_gpus") for process in (first, second)] == planned
    assert settings.job.variables.revealed("/rt") == sent


def test_no_value_of_a_variable_is_shown_or_stored(configured: Resolve) -> None:
    settings = configured(f"--env=TOKEN={SECRET}", "--env", "OTHER", OTHER=SECRET)
    plan = planning.build(settings, "JOB1")
    text = describe(plan)
    assert "TOKEN=***" in text
    assert "OTHER=***" in text
    for shown in (text, repr(settings), repr(plan), str(settings.job.variables), f"{settings.job.variables}"):
        assert SECRET not in shown
    with pytest.raises(TypeError):
        json.dumps(dataclasses.asdict(settings)["job"]["variables"])


def test_files_of_variables_do_not_travel(configured: Resolve) -> None:
    for name in ("ws/.env", "ws/prod.env", "ws/other.env"):
        Path(name).write_text(f"TOKEN={SECRET}\n")
    Path("ws/deep").mkdir()
    Path("ws/deep/.env").write_text("A=1\n")
    plan = planning.build(configured("--env_file=ws/prod.env"), "JOB1")
    package = Payload(plan)._workspace
    assert package is not None
    assert {entry.path for entry in package.files} == {"train.py", "other.env", "deep/.env"}


def test_a_directory_called_env_is_no_file_of_variables(configured: Resolve) -> None:
    Path("ws/.env").mkdir()
    Path("ws/.env/pyvenv.cfg").touch()
    assert configured().job.variables.names == ()


def test_values_are_found_on_a_command_line() -> None:
    words = [
        "python",
        "p.py",
        "--env=A=one",
        "--env",
        "B=two",
        "--env",
        "C",
        "--env_file=D=x",
        "--",
        "--env=E=five",
    ]
    line = "".join(word + "\0" for word in words).encode()
    assert [line[at : at + size] for at, size in spans(line, (b"--env",))] == [b"one", b"two"]


def test_a_value_on_the_command_line_is_soon_hidden(configured: Resolve) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from paddle_cluster.cli.main import main\n"
        "code = main()\n"
        "print(open('/proc/self/cmdline').read().split('\\0')[-4:])\n"
    )
    argv = [
        "--dry_run",
        "-p",
        "ws",
        "--conf=conf.py",
        f"--env=TOKEN={SECRET}",
        "--env",
        f"B={SECRET}",
        "--seed=1",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    stars = "*" * len(SECRET)
    assert f"['--env', 'B={stars}', '--seed=1', '']" in done.stdout
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "value",
    ["A=1,2", "A=1 b=2", "A=python x B=1", "A=B=1,C=2", "A=-Da=1 -Db=2", "A=mlx5_0,=mlx5_1", "A=1\nB=2"],
)
def test_a_variable_may_have_a_value_with_commas_and_blanks(value: str) -> None:
    assert parse(["-p", "ws", f"--env={value}"])["env"] == (value,)
