# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/contributing.md: each diff, applied to a copy, touches as few files as it says, and works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
RECIPES = {
    name: (
        int(count),
        textwrap.dedent("\n".join(re.findall(r"^    .*$|^$", text, re.MULTILINE))).strip("\n") + "\n",
    )
    for name, count, text in re.findall(
        r"^### An? (\w+): (\d) files?\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
}
TRANSPORT = """
import os
import numpy as np
from paddle.env import JobEnvironment
from paddle.optim.spec import OptimizerSpec
from paddle.pserver import Client, command
from paddle.pserver.transports.unix import UnixConnection

given = ["--port=0", "--ports_num=1", "--num_gradient_servers=1", "--bind=127.0.0.1"]
endpoint = command.Server(command.ServerOptions.read(given, JobEnvironment())).endpoints[0]
sent, put = [], UnixConnection.send
UnixConnection.send = lambda self, message: sent.append(1) or put(self, message)
client = Client([endpoint], trainer_id=0, num_trainers=1, within_node=False)
client.create({"w": np.zeros(1 << 20, np.float32)}, OptimizerSpec("momentum", learning_rate=0.5))
out = {"w": np.zeros(1 << 20, np.float32)}
client.push_pull({"w": np.ones(1 << 20, np.float32)}, out)
print(bool(sent), set(out["w"].tolist()), flush=True)
os._exit(0)
"""
OPERATOR = """
import numpy as np
import paddle.fluid as fluid
x = fluid.layers.data("x", [3])
x.stop_gradient = False
block = fluid.default_main_program().global_block()
out = block.create_var(name="out", dtype="float32", shape=x.shape)
block.append_op(type="cube", inputs={"X": [x]}, outputs={"Out": [out]})
(gradient,) = fluid.gradients([out], [x])
values = fluid.Executor().run(feed={"x": np.float32([[1, 2, 3]])}, fetch_list=[out, gradient])
print([value.tolist() for value in values])
"""
RULE = """
import numpy as np
import paddle.fluid as fluid
import paddle.v2
x = fluid.layers.data("x", [2])
fluid.optimizer.Sign(0.5).minimize(fluid.layers.mean(fluid.layers.fc(x, 1, param_attr="w", bias_attr=False)))
executor = fluid.Executor()
executor.run(fluid.default_startup_program())
moved = fluid.global_scope().get("w").copy()
executor.run(feed={"x": np.float32([[3, -4]])})
print((moved - fluid.global_scope().get("w")).round(3).tolist(), paddle.v2.optimizer.Sign(learning_rate=1).spec.rule)
"""
TRAINED = """
import paddle.v2 as paddle
paddle.init()
x = paddle.layer.data("x", paddle.data_type.dense_vector(1))
y = paddle.layer.data("y", paddle.data_type.dense_vector(1))
cost = paddle.layer.square_error_cost(paddle.layer.fc(x, 1), y)
trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum(learning_rate=0.01))
trainer.train(paddle.batch(lambda: iter([([1.0], [2.0])] * 8), 4), num_passes=1)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The program without tests and pages."""
    for name in ("paddle_cluster", "runtime"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "paddle.py", tmp_path)
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "train.py").write_text("print('trained')\n")
    (tmp_path / "conf.py").write_text(f"HOSTS = ['local']\nROOT_DIR = {str(tmp_path / 'nodes')!r}\n")
    return tmp_path


def run(copy: Path, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv],
        cwd=copy,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )


def job(copy: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run(copy, "paddle.py", "-p", "ws", "--conf=conf.py", "--mode=collective", *options, **env)


def an_operator_computes(copy: Path) -> None:
    done = run(copy, "-P", "-c", OPERATOR, PYTHONPATH=str(copy / "runtime"))
    assert done.stdout.strip() == "[[[1.0, 8.0, 27.0]], [[3.0, 12.0, 27.0]]]", done.stderr


def a_rule_updates(copy: Path) -> None:
    done = run(copy, "-P", "-c", RULE, PYTHONPATH=str(copy / "runtime"))
    assert done.stdout.strip() == "[[0.5], [-0.5]] sign", done.stderr


def an_option_is_read(copy: Path) -> None:
    assert job(copy, "--nice=3", "--dry_run").returncode == 0
    refused = job(copy, "--nice=x", "--dry_run")
    assert refused.returncode == 2
    assert "--nice: expected a whole number" in refused.stderr


def an_engine_starts_a_job(copy: Path) -> None:
    docker = copy / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text('#!/bin/sh\n[ "$*" = "${*#exec -i worker-1 }" ] && exit 9\nshift 3\nexec "$@"\n')
    docker.chmod(0o755)
    (copy / "conf.py").write_text(
        f"HOSTS = ['worker-1']\nROOT_DIR = {str(copy / 'nodes')!r}\nPYTHON = {sys.executable!r}\n"
    )
    done = job(copy, "--engine=docker", PATH=f"{docker.parent}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trained" in done.stdout


def a_fact_is_shown(copy: Path) -> None:
    (copy / "ws" / "train.py").write_text(TRAINED)
    done = job(copy, "--json", PADDLE_STATE_DIR=str(copy / "state"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"batch_size": 4' in done.stdout
    (job_id,) = re.findall(r'"event": "Ended", "job_id": "([^"]*)"', done.stdout)
    shown = run(copy, "paddle.py", "status", job_id, PADDLE_STATE_DIR=str(copy / "state")).stdout
    assert re.search(r"^  process .* samples/s +size\b", shown, re.MULTILINE), shown
    assert re.search(r"^  trainer-0 .* 4$", shown, re.MULTILINE), shown


def a_transport_carries_values(copy: Path) -> None:
    done = run(copy, "-P", "-c", TRANSPORT, PYTHONPATH=str(copy / "runtime"))
    assert done.stdout.strip() == "True {-0.5}", done.stderr


CHECKS: dict[str, Callable[[Path], None]] = {
    "transport": a_transport_carries_values,
    "operator": an_operator_computes,
    "rule": a_rule_updates,
    "option": an_option_is_read,
    "engine": an_engine_starts_a_job,
    "fact": a_fact_is_shown,
}


def test_there_is_a_check_for_each_recipe() -> None:
    assert set(CHECKS) == set(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_touches_as_few_files_as_it_says_and_works(recipe: str, copy: Path) -> None:
    count, diff = RECIPES[recipe]
    assert len(re.findall(r"^\+\+\+ ", diff, re.MULTILINE)) == count
    applied = subprocess.run(
        ["git", "apply", "-C1", "-"], cwd=copy, input=diff, capture_output=True, text=True, timeout=30
    )
    assert applied.returncode == 0, f"update the recipe in docs/contributing.md: {applied.stderr}"
    CHECKS[recipe](copy)
