# SPDX-License-Identifier: Apache-2.0
"""The sample workspace with the manual's own settings for asynchronous training, and a vocabulary of real size."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.test_main_job import ROOT, command, run_job

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


def make_workspace(directory: Path) -> Path:
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
    wide = slowed.replace("HIDDEN_SIZE = 256", f"HIDDEN_SIZE = {HIDDEN}")
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
    conf.write_text(f"HOSTS = ['local'] * 3\nROOT_DIR = {str(tmp_path / 'nodes')!r}\nPSERVERS = {servers}\n")
    output = run_job(make_workspace(tmp_path), conf)
    for rank in range(3):
        (*_, last) = re.findall(rf"\[trainer {rank} local-{rank}\] Pass (\d+), Train cost [\d.]+", output)
        assert last == "2"
    assert "exit 0" in output
