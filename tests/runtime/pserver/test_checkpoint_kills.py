# SPDX-License-Identifier: Apache-2.0
"""kill -9 while checkpoints are written: whatever has a name is whole, and the newest never gets older."""

from __future__ import annotations

import random
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from paddle.optim.spec import OptimizerSpec
from paddle.pserver.checkpoint.folder import newest
from paddle.pserver.client import Client
from paddle.pserver.safekeeping import Safety
from tests.runtime.pserver.in_process_job import Model
from tests.runtime.pserver.kept_job import DECAYED, KeptJob
from tests.runtime.pserver.killed_pserver import client_of, flags
from tests.runtime.pserver.pserver_process import PserverProcess

KILLS = 20
MODEL = Model({"w": (150, 100), "b": (64,)})
ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.1, hyper={"epsilon": 1e-6})


@pytest.mark.timeout(180)
def test_the_newest_whole_checkpoint_loads_wherever_a_server_is_killed(tmp_path: Path) -> None:
    state, root = tmp_path / "state", tmp_path / "checkpoints"
    state.mkdir()
    rng = random.Random(11)
    more = (f"--checkpoint_dir={root}", "--checkpoint_period=2")
    seen: list[int] = []
    unfinished = 0
    with PserverProcess(*flags(state, 1, *more)) as server:
        client = client_of(server, 0, 1)
        client.configure(MODEL.parameters, ADAGRAD, MODEL.values())
        over = threading.Event()
        trainer = threading.Thread(target=_train, args=(client, over), daemon=True)
        trainer.start()
        deadline = time.monotonic() + 60
        while not list(root.glob("v*/part-*")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.0, 0.15))  # a moment nobody chose
            server.end(signal.SIGKILL)
            unfinished += len(list(root.glob(".unfinished*")))
            seen.append(newest(root).version)
            server.start()
        over.set()
        trainer.join(60)
        assert not trainer.is_alive()
        client.close()
    assert seen == sorted(seen), "a checkpoint that was whole is gone"
    assert seen[-1] > seen[0]
    assert unfinished, "no kill fell into a checkpoint"
    state.joinpath("again").mkdir()
    with PserverProcess(*flags(state / "again", 1, f"--checkpoint_dir={root}", "--resume=latest")) as server:
        client = client_of(server, 0, 1)
        client.configure(MODEL.parameters, ADAGRAD, MODEL.values(99))
        client.start_pass()
        client.close()


def _train(client: Client, over: threading.Event) -> None:
    values = MODEL.empty()
    client.start_pass()
    number = 0
    while not over.is_set():
        client.push_pull(MODEL.gradients(number), 4, values)
        number += 1
    client.finish_pass()


@pytest.mark.timeout(60)
def test_a_manifest_that_was_cut_off_anywhere_is_no_manifest(tmp_path: Path) -> None:
    job = KeptJob(Safety(checkpoints=tmp_path, period=1), ADAGRAD, DECAYED, num_dense=1)
    job.train(0, 2)
    job.close()
    path = tmp_path / "v000000000002" / "part-0-of-1" / "manifest.json"
    whole = path.read_bytes()
    for size in np.random.default_rng(3).integers(0, len(whole), 40):
        path.write_bytes(whole[:size])
        assert newest(tmp_path).version == 1
    path.write_bytes(whole)
    assert newest(tmp_path).version == 2
