# SPDX-License-Identifier: Apache-2.0
"""The manual's script as processes: encrypted, started in any order, ended by itself, and told when somebody dies."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess

import numpy as np

from tests.runtime.fluid.remote.role_processes import DEADLINE_S, Processes


def alone(steps: int) -> list[float]:
    """Return the losses of the same net in one process, which sees whole batches."""
    import paddle.fluid as fluid
    from tests.runtime.fluid.remote.manual_script import batches
    from tests.runtime.fluid.transpiled_job import one_process

    def net() -> fluid.framework.Variable:
        x, y = fluid.layers.data("x", [64]), fluid.layers.data("y", [1])
        hidden = fluid.layers.fc(x, 64, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        fluid.optimizer.SGD(0.02).minimize(loss)
        return loss

    return one_process(net, [{"x": x, "y": y} for x, y in batches(steps)], seed=1)[0]


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], DEADLINE_S)[0], "no line came"
    return process.stdout.readline()


def begin(trainers: list[subprocess.Popen[str]]) -> None:
    """Let trainers that have all come to the servers begin, and wait for the first loss of each."""
    for process in trainers:
        assert line_of(process) == "ready\n"
    for process in trainers:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in trainers:
        float(line_of(process))


def test_the_manuals_script_trains_as_one_process_does_and_ends_by_itself(jobs: list[Processes]) -> None:
    steps = 6
    job = Processes(servers=2, trainers=2, STEPS=str(steps))
    jobs.append(job)
    trainers = [job.start("TRAINER", 0)]  # before any server
    ours, theirs = os.pipe()
    servers = [job.start("PSERVER", at, endpoint, theirs) for at, endpoint in enumerate(job.endpoints)]
    os.close(theirs)
    trainers.append(job.start("TRAINER", 1))
    outputs = [process.communicate(timeout=DEADLINE_S) for process in trainers]
    ends = [process.communicate(timeout=DEADLINE_S) for process in servers]
    assert [process.returncode for process in job.running] == [0] * 4, (outputs, ends)
    losses = np.mean([[float(line) for line in out.split()] for out, _ in outputs], axis=0)
    np.testing.assert_allclose(losses, alone(steps), rtol=1e-5)
    with os.fdopen(ours) as reports:
        told = [json.loads(line) for line in reports if '"ready"' in line]
    assert sorted(event["endpoints"] for event in told) == sorted([each] for each in job.endpoints)


def test_who_waits_for_a_trainer_that_was_killed_is_told_which(jobs: list[Processes]) -> None:
    job = Processes(servers=1, trainers=2)
    jobs.append(job)
    server = job.start("PSERVER", 0, job.endpoints[0], FLAGS_rpc_deadline="500")
    trainers = [job.start("TRAINER", rank) for rank in range(2)]
    begin(trainers)
    trainers[1].kill()
    _, error = trainers[0].communicate(timeout=DEADLINE_S)
    assert trainers[0].returncode == 1
    assert "PserverError" in error
    assert "missing: trainer 1 (connection lost)" in error
    assert server.poll() is None  # they may be started again
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 0


def test_trainers_of_a_server_that_was_killed_are_told_which(jobs: list[Processes]) -> None:
    job = Processes(servers=1, trainers=1)
    jobs.append(job)
    server = job.start("PSERVER", 0, job.endpoints[0])
    trainer = job.start("TRAINER", 0)
    begin([trainer])
    server.kill()
    _, error = trainer.communicate(timeout=DEADLINE_S)
    assert trainer.returncode == 1
    assert f"PserverLost: pserver {job.endpoints[0]} is gone" in error
