# SPDX-License-Identifier: Apache-2.0
"""`paddle train --local=0`: trainers of a configuration with pservers equal one process on the joined batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.ports import free_range
from tests.runtime.trainer.test_train_flags import values
from tests.runtime.trainer.train_runs import train
from tests.runtime.v2.training.test_v2_cluster import DEADLINE_S, KEY, ROOT, servers

PROVIDER = """
import numpy
from paddle.trainer.PyDataProvider2 import *

@provider({'x': dense_vector(4), 'y': dense_vector(1)}, should_shuffle=False)
def process(settings, part):
    draw = numpy.random.default_rng(2)
    rows = draw.normal(size=(24, 4))
    for at, row in enumerate(rows):
        if part == 'all' or at % 2 == int(part):
            yield {'x': row.tolist(), 'y': [float(row.sum())]}
"""

CONFIG = """
from paddle.trainer_config_helpers import *

part = get_config_arg('part', str, 'all')
define_py_data_sources2([part], None, 'linear', 'process')
settings(batch_size=4 if part == 'all' else 2, learning_rate=1e-2, learning_method=AdamOptimizer(),
         learning_rate_schedule='pass_manual', learning_rate_args='0:1.0,1:0.1',
         regularization=L2Regularization(1e-3))
hidden = fc_layer(input=data_layer('x', 4), size=6)
outputs(regression_cost(input=fc_layer(input=hidden, size=1, act=LinearActivation()), label=data_layer('y', 1)))
"""


@pytest.mark.timeout(DEADLINE_S)
def test_two_trainers_of_a_configuration_equal_one_on_the_joined_batch(workspace: Path) -> None:
    (workspace / "linear.py").write_text(PROVIDER)
    (workspace / "net.py").write_text(CONFIG)
    train("--config=net.py", "--num_passes=3", "--save_dir=alone")
    with servers(2) as server:
        running = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", "paddle", "train", "--config=net.py", "--num_passes=3",
                 f"--config_args=part={rank}", "--save_dir=together"],
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": str(ROOT / "runtime"),
                    "OPENBLAS_NUM_THREADS": "1",
                    "PADDLE_JOB_KEY": KEY,
                    "PADDLE_INIT_TRAINER_ID": str(rank),
                    "PADDLE_INIT_NUM_GRADIENT_SERVERS": "2",
                    "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(server.endpoints),
                    "PADDLE_PSERVERS_SPARSE_IP_PORT_LIST": ",".join(server.sparse_endpoints),
                },
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]  # fmt: skip
        try:
            texts = [process.communicate(timeout=DEADLINE_S)[1] for process in running]
        finally:
            for process in running:
                process.kill()
                process.wait()
    assert [process.returncode for process in running] == [0, 0], "\n".join(texts)
    assert sorted(path.name for path in (workspace / "together").iterdir()) == [
        f"pass-{number:05d}" for number in range(3)
    ]
    assert ["Saving parameters" in text for text in texts] == [True, False]
    alone, together = (values(workspace / name / "pass-00002") for name in ("alone", "together"))
    assert alone.keys() == together.keys()
    for name, value in alone.items():
        np.testing.assert_allclose(together[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.timeout(DEADLINE_S)
def test_a_trainer_starts_a_server_beside_itself_and_leaves_none_behind(workspace: Path) -> None:
    (workspace / "linear.py").write_text(PROVIDER)
    (workspace / "net.py").write_text(CONFIG)
    train("--config=net.py", "--num_passes=1", "--save_dir=first")
    later = ("--config=net.py", "--num_passes=2", "--start_pass=1", "--init_model_path=first/pass-00000")
    train(*later, "--save_dir=alone")
    flags = (
        "--local=0",
        "--start_pserver=1",
        f"--port={free_range(1)}",
        "--pservers=127.0.0.1",
        "--save_dir=own",
    )
    done = subprocess.run(
        [sys.executable, "-P", "-m", "paddle", "train", *later, *flags],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "runtime"), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "no trainer needs this server any more" in done.stderr
    for name, value in values(workspace / "alone/pass-00001").items():
        np.testing.assert_allclose(values(workspace / "own/pass-00001")[name], value, rtol=1e-5, atol=1e-6)
