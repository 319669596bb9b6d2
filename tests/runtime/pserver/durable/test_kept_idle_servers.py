# SPDX-License-Identifier: Apache-2.0
"""What is saved of a job whose model uses one of several servers, and what a kill of either server costs."""

from __future__ import annotations

import shutil
import signal
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import PserverError
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.recovery import Safety
from paddle_node.agent.node.checkpoints import pserver_parts
from tests.runtime.pserver.durable.written_checkpoints import ADAGRAD, PERIOD, STEPS
from tests.runtime.pserver.in_process_job import Model
from tests.runtime.pserver.kept_job import DECAYED, KeptJob, same_bits
from tests.runtime.pserver.killed_pserver import PATIENCE_S, flags
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

HOST = "127.0.0.1:"
MODEL = Model({"w": (300, 40), "b": (64,)})
DESCENT = OptimizerSpec("momentum", learning_rate=0.1)


def run(safety: Safety, first: int, last: int, host: str = HOST) -> dict[str, np.ndarray]:
    job = KeptJob(safety, ADAGRAD, DECAYED, num_dense=3, host=host)
    assert {engine.version for engine in job.engines[: 1 if host else 3]} == {first}
    job.train(first, last)
    found = job.values()
    job.close()
    return found


def test_a_checkpoint_is_that_of_the_server_in_use_and_a_job_continues_from_it(tmp_path: Path) -> None:
    whole = run(Safety(), 0, STEPS)
    run(Safety(checkpoints=tmp_path, period=PERIOD), 0, 17)
    assert {path.name for path in tmp_path.glob("v*/*")} == {"part-0-of-1"}
    assert {(part.servers, part.idle, part.problem) for part in pserver_parts(str(tmp_path))} == {(1, 2, "")}
    assert same_bits(run(Safety(checkpoints=tmp_path, resume="latest"), 15, STEPS), whole)


def test_a_checkpoint_of_all_servers_is_continued_with_one_and_the_other_way_round(tmp_path: Path) -> None:
    whole = run(Safety(), 0, STEPS)
    run(Safety(checkpoints=tmp_path / "all", period=PERIOD), 0, 17, host="")
    assert len({path.name for path in tmp_path.glob("all/v*/*")}) == 3
    assert same_bits(run(Safety(checkpoints=tmp_path / "all", resume="latest"), 15, STEPS), whole)
    run(Safety(checkpoints=tmp_path / "one", period=PERIOD), 0, 17)
    again = run(Safety(checkpoints=tmp_path / "one", resume="latest"), 15, STEPS, host="")
    assert same_bits(again, whole)


def test_a_checkpoint_of_all_servers_without_their_parts_is_refused_and_stays(tmp_path: Path) -> None:
    run(Safety(checkpoints=tmp_path, period=PERIOD), 0, 17, host="")
    for path in tmp_path.glob("v*/part-[12]-of-3"):
        shutil.rmtree(path)
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        PserverError, match=r"no complete checkpoint .* the parts of 3 servers; missing: \[1, 2\]"
    ):
        run(Safety(checkpoints=tmp_path, period=PERIOD, resume="auto"), 15, STEPS)
    assert sorted(tmp_path.rglob("*")) == files


def trained(state: Path, killed: int | None) -> dict[str, np.ndarray]:
    """Train with two servers on this machine, of which one is killed and started again; both end by themselves."""
    for number in range(2):
        (state / str(number)).mkdir(parents=True)
    with ExitStack() as stack:
        servers = [stack.enter_context(PserverProcess(*flags(state / str(number), 1))) for number in range(2)]
        client = TrainerSession.connect(
            [endpoint for server in servers for endpoint in server.endpoints],
            [],
            trainer_id=0,
            num_trainers=1,
            job_key=KEY,
            wire="curve",
            patience_s=PATIENCE_S,
        )
        out = MODEL.empty()
        client.configure(MODEL.parameters, DESCENT, MODEL.values())
        client.start_pass()
        for step in range(6):
            client.push_pull(MODEL.gradients(step), 4, out)
            if step == 2 and killed is not None:
                servers[killed].end(signal.SIGKILL)
                servers[killed].start()
        client.finish_pass()
        client.leave(PATIENCE_S)
        assert [server.end(signal.SIGUSR1)[0] for server in servers] == [0, 0]
    assert not [path for path in state.rglob("*") if path.is_file()]
    return out


@pytest.mark.parametrize("killed", [0, 1], ids=["in use", "idle"])
def test_either_server_is_killed_and_started_again_and_the_bits_stay(tmp_path: Path, killed: int) -> None:
    assert same_bits(trained(tmp_path / "killed", killed), trained(tmp_path / "whole", None))
