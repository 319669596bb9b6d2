# SPDX-License-Identifier: Apache-2.0
"""v2's trainers beside a server of their node, whose memory they share: the same bits as where all is sent."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.nursery import Forked
from tests.runtime.pserver.pserver_process import KEY, ROOT, PserverProcess
from tests.runtime.v2.training.near_trainer import BATCHES

TRAINERS, DEADLINE_S = 2, 150
SHARED = "gradients and values stay in shared memory"
KILLED_AT = {"plain": "batch 1 0", "adam": "batch 0 2"}
Seen = dict[str, np.ndarray]


def start(rank: int, server: PserverProcess, rule: str, *more: str) -> Forked:
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}",
        "OPENBLAS_NUM_THREADS": "1",
        "PADDLE_JOB_KEY": KEY,
        "PADDLE_INIT_TRAINER_ID": str(rank),
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": str(TRAINERS),
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(server.endpoints),
        "PADDLE_PSERVER_PATIENCE_S": "30",
    }
    script = str(Path(__file__).with_name("near_trainer.py"))
    return Forked("v2", [script, rule, *more], env, None)


def train(
    rule: str, folder: Path, flags: list[str], kill_at: str = "", *more: str
) -> tuple[list[Seen], list[str]]:
    """Return what trainers saw and wrote; `kill_at`: the line of the first one at which the server is killed."""
    folder.mkdir()
    with PserverProcess(*flags, f"--num_gradient_servers={TRAINERS}") as server:
        running = [start(rank, server, rule, str(folder), *more) for rank in range(TRAINERS)]
        try:
            said = ""
            if kill_at:
                assert running[0].stdout is not None
                for line in running[0].stdout:
                    said += line
                    if line.startswith(kill_at):
                        break
                server.end(signal.SIGKILL)
                server.start()
            texts = [process.communicate(timeout=DEADLINE_S)[0] for process in running]
            texts[0] = said + texts[0]
        finally:
            for process in running:
                process.kill()
                process.wait(DEADLINE_S)
    assert [process.returncode for process in running] == [0] * TRAINERS, "\n".join(texts)
    seen: list[Seen] = []
    for rank in range(TRAINERS):
        with np.load(folder / f"{rank}.npz") as found:
            seen.append(dict(found))
    return seen, texts


def same(one: list[Seen], other: list[Seen]) -> bool:
    return all(
        mine.keys() == theirs.keys() and all(mine[name].tobytes() == theirs[name].tobytes() for name in mine)
        for mine, theirs in zip(one, other, strict=True)
    )


@pytest.fixture(scope="module", params=["plain", "adam"])
def sent(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Seen]]:
    """The rule, and what trainers see whose values and gradients are all sent."""
    seen, texts = train(request.param, tmp_path_factory.mktemp("sent") / "job", ["--port=0"], "", "apart")
    assert not any(SHARED in text for text in texts)
    return request.param, seen


def test_whoever_looks_at_shared_weights_sees_what_was_sent_to_others(
    sent: tuple[str, list[Seen]], tmp_path: Path
) -> None:
    rule, wanted = sent
    seen, texts = train(rule, tmp_path / "job", ["--port=0"])
    assert all(SHARED in text for text in texts)
    assert same(seen, wanted)
    for each in seen:
        assert np.array_equal(each["inferred"], each["inferred anew"])
        assert len(set(each["saved"])) >= BATCHES - 1


def test_a_server_that_is_killed_in_a_pass_takes_no_weights_with_it(
    sent: tuple[str, list[Seen]], tmp_path: Path
) -> None:
    rule, wanted = sent
    flags = ["--port=0", f"--state_dir={tmp_path}"]
    seen, texts = train(rule, tmp_path / "job", flags, KILLED_AT[rule])
    assert all(SHARED in text for text in texts)
    assert same(seen, wanted)
