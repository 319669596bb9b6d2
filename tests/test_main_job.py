# SPDX-License-Identifier: Apache-2.0
"""The main job on embedded nodes, as a user runs it: commands in, logs and model out."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests import nursery
from tests.launcher.control_jobs import Terminal
from tests.launcher.login_server import free_port
from tests.local_nodes import warm_nodes

ROOT = Path(__file__).resolve().parent.parent
TEXT = "the cat dog sees likes a red blue house bird near under big small and runs"
WORDS = TEXT.split(" ")
PASSES = 3
VOCABULARY = 2000  # as many words as prepare.py keeps
HIDDEN = 600  # with so many words more than four chunks on one server
SENTENCES = 400
MANUAL = """
    adagrad = paddle.optimizer.AdaGrad(
        is_async=True,
        async_lagged_grad_discard_ratio=1.6,
        learning_rate=3e-3,
        regularization=paddle.optimizer.L2Regularization(8e-4),
    )
"""
SLOW = """
    def event_handler(event):
        if isinstance(event, paddle.event.BeginIteration) and trainer_id == 2:
            import time
            time.sleep(0.05)  # a slow machine: what it computes lasts
"""


def command(*argv: str | Path, cwd: Path) -> str:
    """Run a command to its end; its output."""
    done = subprocess.run(
        argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cluster")
    path = directory / "conf.py"
    port = free_port()  # not the one of everybody's jobs: a port that is taken is told on the screen
    path.write_text(
        f"HOSTS = ['local'] * 3\nROOT_DIR = {str(warm_nodes(directory / 'nodes', 3))!r}\nPADDLE_PORT = {port}\n"
    )
    return path


def make_workspace(directory: Path) -> Path:
    """The sample workspace over a small regular language, in which the next word can be learned."""
    text = "\n".join(
        " ".join(WORDS[(start + step * stride) % len(WORDS)] for step in range(8))
        for start in range(len(WORDS))
        for stride in range(1, 7)
        for _ in range(8)
    )
    (directory / "corpus.txt").write_text(text)
    workspace = directory / "ws"
    workspace.mkdir()
    (workspace / "train.py").write_bytes((ROOT / "workspace_template" / "train.py").read_bytes())
    prepare = ROOT / "workspace_template" / "prepare.py"
    command(
        sys.executable, prepare, f"--corpus={directory / 'corpus.txt'}", f"--out={workspace}", cwd=directory
    )
    return workspace


def run_job(workspace: Path, conf: Path, *options: str) -> str:
    argv = [f"--job_dispatch_package={workspace}", f"--conf={conf}", f"--num_passes={PASSES}", *options]
    done = nursery.run("launcher", argv, os.environ, workspace.parent, 110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, conf: Path) -> tuple[Path, str]:
    workspace = make_workspace(tmp_path_factory.mktemp("job"))
    return workspace, run_job(workspace, conf)


def test_the_cost_falls_pass_by_pass_on_every_trainer(job: tuple[Path, str]) -> None:
    _, output = job
    for rank in range(3):
        lines = [line for line in output.splitlines() if line.startswith(f"[trainer {rank} local-{rank}] ")]
        costs = [float(cost) for line in lines for cost in re.findall(r"Train cost ([\d.]+)", line)]
        tests = [float(cost) for line in lines for cost in re.findall(r"Test cost ([\d.]+)", line)]
        assert len(costs) == PASSES
        assert costs == sorted(costs, reverse=True)
        assert tests[-1] < 0.9 * tests[0]


def test_the_screen_has_one_line_of_the_pservers_and_their_logs_have_the_rest(job: tuple[Path, str]) -> None:
    workspace, output = job
    assert re.search(r"^3 pservers ready at :\d+", output, re.MULTILINE)
    assert not re.search(r"\[pserver \d local-\d\] I", output)  # a warning of a taken port may stand there
    assert len(output.splitlines()) <= 60
    log = (workspace / "log" / "node_0" / "paddle_pserver2.INFO").read_text()
    assert "worker started, peer = trainer 2" in log
    assert "[pserver 0 local-0] I" in (workspace / "log" / "job.log").read_text()


def test_a_terminal_of_80_columns_wraps_no_line_and_shows_the_curve_of_costs(
    job: tuple[Path, str], conf: Path, tmp_path: Path
) -> None:
    shutil.copytree(job[0], tmp_path / "ws", ignore=shutil.ignore_patterns("log", "output"))
    env = {**os.environ, "TERM": "xterm", "LANG": "C.UTF-8"}
    terminal = Terminal(
        ["-p", "ws", f"--conf={conf}", "--num_passes=2"], tmp_path, env, columns=80, forked=True
    )
    try:
        assert terminal.wait() == 0, terminal.said
    finally:
        terminal.end()
    lines = re.sub(r"\x1b\[\d*[A-Za-z]", "\n", terminal.said).splitlines()
    assert [line for line in lines if len(line) > 80 and str(tmp_path) not in line] == []
    _, _, stays = terminal.said.rpartition("the cost of trainer 0:")
    curve, _, _ = stays.partition("== stop")
    costs = re.findall(r"^ *([\d.]+) +[▁▂▃▄▅▆▇█]", curve, re.MULTILINE)  # beside the upper and the lower end
    high, low = map(float, costs)
    assert high > low


def test_logs_and_model_are_where_the_screen_says(job: tuple[Path, str]) -> None:
    workspace, output = job
    assert f"logs: {workspace / 'log'}" in output
    assert f"output: {workspace / 'output'}" in output
    for node_id in range(3):
        collected = {path.name for path in (workspace / "log" / f"node_{node_id}").iterdir()}
        assert collected >= {"train.log", "server.log", "paddle_trainer.INFO", "paddle_pserver2.INFO"}
    passes = sorted(path.name for path in (workspace / "output").iterdir())
    assert passes == [f"pass-{number:05d}" for number in range(PASSES)]
    with tarfile.open(workspace / "output" / passes[-1] / "params.tar.gz") as model:
        assert "_proj" in model.getnames()


def test_a_second_run_sends_no_file_and_gives_the_same_bits(
    job: tuple[Path, str], conf: Path, tmp_path: Path
) -> None:
    first, _ = job
    second = make_workspace(tmp_path)
    output = run_job(second, conf)
    assert "nothing sent" in output
    for name in [f"pass-{number:05d}" for number in range(PASSES)]:
        members = []
        for workspace in (first, second):
            with tarfile.open(workspace / "output" / name / "params.tar.gz") as model:
                members.append({one.name: model.extractfile(one).read() for one in model})  # type: ignore[union-attr]
        assert members[0] == members[1]


def test_run_sh_hands_its_arguments_on() -> None:
    output = command("sh", ROOT / "run.sh", "--dry_run", "--num_passes=7", cwd=Path("/"))
    assert "train.py --num_passes=7" in output
    assert "pserver-2" in output


def test_a_node_that_talks_nonsense_ends_the_job_as_lost(conf: Path, tmp_path: Path) -> None:
    for name in ("paddle_cluster", "runtime"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "paddle.py", tmp_path)
    agent = tmp_path / "runtime" / "paddle_node" / "agent" / "processes" / "processes.py"
    honest = agent.read_text()
    agent.write_text(honest.replace('"started", proc=name', '"started", proc=7'))
    assert agent.read_text() != honest
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "train.py").write_text("import time\ntime.sleep(60)\n")
    argv = [f"--job_dispatch_package={workspace}", f"--conf={conf}", "--mode=collective"]
    done = subprocess.run(
        [sys.executable, tmp_path / "paddle.py", *argv], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 5, done.stdout + done.stderr
    assert re.search(r"FIRST ERROR: local-\d: cannot read its 'started' message", done.stdout)
    assert "Traceback" not in done.stdout + done.stderr


def make_manual_workspace(directory: Path) -> Path:
    """The sample over sentences of which every word occurs, each of them seldom."""
    words = [f"w{number}" for number in range(VOCABULARY)]
    choices = random.Random(3)
    choices.shuffle(words)
    sentences = 2 * [words[start::SENTENCES] for start in range(SENTENCES)]
    (directory / "corpus.txt").write_text("\n".join(" ".join(words) for words in sentences))
    workspace = directory / "ws"
    workspace.mkdir()
    script = (ROOT / "workspace_template" / "train.py").read_text()
    settled = re.sub(r"\n    adagrad = .*?\n    \)\n", MANUAL, script, flags=re.DOTALL)
    slowed = settled.replace("\n    def event_handler(event):\n", SLOW)
    wide = slowed.replace("MANUAL = Settings(256,", f"MANUAL = Settings({HIDDEN},")
    assert len({script, settled, slowed, wide}) == 4
    (workspace / "train.py").write_text(wide)
    prepare = ROOT / "workspace_template" / "prepare.py"
    argv = (f"--corpus={directory / 'corpus.txt'}", f"--out={workspace}")
    command("python3", prepare, *argv, cwd=directory)
    return workspace


@pytest.mark.parametrize("servers", ["[0]", "[0, 1, 2]"])
def test_asynchronous_training_with_the_settings_of_the_manual_ends_well(
    servers: str, tmp_path: Path
) -> None:
    conf = tmp_path / "conf.py"
    conf.write_text(
        f"HOSTS = ['local'] * 3\nROOT_DIR = {str(warm_nodes(tmp_path / 'nodes', 3))!r}\nPSERVERS = {servers}\n"
    )
    output = run_job(make_manual_workspace(tmp_path), conf, "--manual_settings")
    for rank in range(3):
        (*_, last) = re.findall(rf"\[trainer {rank} local-{rank}\] Pass (\d+), Train cost [\d.]+", output)
        assert last == "2"
    assert "exit 0" in output
