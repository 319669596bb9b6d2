# SPDX-License-Identifier: Apache-2.0
"""The manual's script as processes, encrypted or interrupted, and slices in every mode of training."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.transpiler import HashName
from tests.nursery import Forked
from tests.runtime.fluid.remote import sliced_script
from tests.runtime.fluid.remote.role_processes import DEADLINE_S, Processes
from tests.runtime.fluid.transpiled_job import one_process

SCRIPT = Path(sliced_script.__file__)
STEPS = 8


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


def line_of(process: Forked) -> str:
    """Wait for a line, as long as a test may last: `select` knows nothing of lines that are read ahead already."""
    assert process.stdout is not None
    return process.stdout.readline()


def begin(trainers: list[Forked]) -> None:
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


def test_a_trainer_waits_longer_than_its_deadline_for_servers_that_start_late_and_says_for_whom(
    jobs: list[Processes],
) -> None:
    job = Processes(servers=2, trainers=1, STEPS="2", FLAGS_rpc_deadline="500")
    jobs.append(job)
    first, second = job.endpoints
    server = job.start("PSERVER", 0, first, FLAGS_rpc_deadline="60000")
    trainer = job.start("TRAINER", 0)
    assert trainer.stderr is not None
    told: list[str] = []
    while sum(f"waiting for pserver {second} since" in line for line in told) < 2:
        told.append(trainer.stderr.readline())
        assert told[-1], told
    assert "connection refused: nothing is listening on that port" in told[-1]
    assert "wait_port=False" in told[-1]
    assert float(re.findall(r"waited (\d+) s", told[-1])[0]) > 0.5  # a deadline, and more
    late = job.start("PSERVER", 1, second)
    losses, error = trainer.communicate(timeout=DEADLINE_S)
    assert trainer.returncode == 0, error
    assert "all pservers are now listening" in error
    assert len(losses.split()) == 2
    ends = [process.communicate(timeout=DEADLINE_S) for process in (server, late)]
    assert [server.returncode, late.returncode] == [0, 0], ends


def test_a_trainer_that_waits_for_no_port_gives_up_at_its_deadline(jobs: list[Processes]) -> None:
    job = Processes(servers=1, trainers=1, STEPS="1", WAIT_PORT="0", FLAGS_rpc_deadline="500")
    jobs.append(job)
    trainer = job.start("TRAINER", 0)
    _, error = trainer.communicate(timeout=DEADLINE_S)
    assert trainer.returncode == 1
    assert f"PserverLost: pserver {job.endpoints[0]} did not answer" in error


def test_a_trainer_that_waits_for_ports_can_be_interrupted(jobs: list[Processes]) -> None:
    job = Processes(servers=1, trainers=1, STEPS="1")
    jobs.append(job)
    trainer = job.start("TRAINER", 0)
    assert trainer.stderr is not None
    while "waiting for pserver" not in (line := trainer.stderr.readline()):
        assert line, "it ended by itself"
    trainer.send_signal(signal.SIGINT)
    _, error = trainer.communicate(timeout=DEADLINE_S)
    assert trainer.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in error


def test_who_waits_for_a_trainer_that_was_killed_is_told_which_and_servers_give_up_all(
    jobs: list[Processes],
) -> None:
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
    # Both could be started again, but without an agent, they are not, and the server would wait forever.
    _, error = server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 1
    assert (
        "PserverError: trainers 0 (connection lost), 1 (connection lost): no trainer has been connected"
        in error
    )


def test_trainers_of_a_server_that_was_killed_are_told_which(jobs: list[Processes]) -> None:
    job = Processes(servers=1, trainers=1)
    jobs.append(job)
    server = job.start("PSERVER", 0, job.endpoints[0])
    trainer = job.start("TRAINER", 0)
    begin([trainer])
    server.kill()
    _, error = trainer.communicate(timeout=DEADLINE_S)
    assert trainer.returncode == 1
    assert f"PserverLost: pserver {job.endpoints[0]} has exited" in error


def test_servers_that_end_when_their_trainer_leaves_are_no_news(jobs: list[Processes]) -> None:
    job = Processes(servers=2, trainers=1, STEPS="2", HOLD="1", PADDLE_PSERVER_PATIENCE_S="60")
    jobs.append(job)
    job.start_all()
    first, second, trainer = job.running
    assert trainer.stdin is not None
    while (line := line_of(trainer)) != "done\n":
        assert line, trainer.communicate(DEADLINE_S)
    second.send_signal(signal.SIGSTOP)
    trainer.stdin.write("\n")
    trainer.stdin.flush()
    assert first.wait(DEADLINE_S) == 0  # while the trainer still waits for the other one's answer
    second.send_signal(signal.SIGCONT)
    ends = job.outputs()
    assert [process.returncode for process in job.running] == [0, 0, 0], ends
    assert not any("is disconnected" in error or "has exited" in error for _, error in ends), ends


def job(jobs: list[Processes], **settings: str) -> Processes:
    chosen = {
        "SYNC": "1",
        "SLICED": "1",
        "METHOD": "HashName",
        "WIDTH": "256",
        "STEPS": str(STEPS),
        **settings,
    }
    jobs.append(Processes(2, 2, SCRIPT, **chosen))
    return jobs[-1]


def losses_of(job: Processes) -> np.ndarray:
    """Run a job; return the losses of each trainer."""
    job.start_all()
    outputs = job.outputs()
    assert [process.returncode for process in job.running] == [0] * 4, outputs
    return np.array([[float(line) for line in out.split()] for out, _ in outputs[2:]])


# Each two of these values are together in one of them; the transpiler's tests cut and place without processes.
@pytest.mark.parametrize(
    ("sync", "sliced", "method"),
    [("1", "1", "HashName"), ("1", "0", "RoundRobin"), ("0", "1", "RoundRobin"), ("0", "0", "HashName")],
)
def test_a_job_trains_however_its_parameters_are_cut_and_placed(
    jobs: list[Processes], sync: str, sliced: str, method: str
) -> None:
    losses = losses_of(job(jobs, SYNC=sync, SLICED=sliced, METHOD=method))
    if sync == "1":
        expected = one_process(lambda: sliced_script.net(256), [sliced_script.batch()] * STEPS)[0]
        np.testing.assert_allclose(losses.mean(axis=0), expected, rtol=1e-5)
    else:
        assert losses.shape == (2, STEPS)
        assert (losses[:, -1] < 0.9 * losses[:, 0]).all()


@pytest.mark.parametrize(
    ("width", "elements"),
    [("8193", 2**20 + 128), ("131200", 2**24 + 16384)],
    ids=["above a million elements", "above a message"],
)
def test_large_dense_gradients_arrive_whole_in_asynchronous_training(
    jobs: list[Processes], width: str, elements: int
) -> None:
    assert int(width) * sliced_script.IN == elements
    losses = losses_of(job(jobs, SYNC="0", SLICED="0", WIDTH=width, STEPS="2"))
    assert np.isfinite(losses).all()
    assert (losses[:, 0] != losses[:, 1]).all()


def test_trainers_of_a_server_whose_startup_program_fails_are_told_why(jobs: list[Processes]) -> None:
    failing = job(jobs, METHOD="RoundRobin")
    first, second = failing.endpoints
    trainers = [failing.start("TRAINER", rank) for rank in range(2)]
    for process in trainers:
        assert process.stderr is not None
        while "waiting for pserver" not in (line := process.stderr.readline()):
            assert line, "it ended by itself"
    good = failing.start("PSERVER", 0, first)
    bad = failing.start("PSERVER", 1, second, FAILS="1")
    errors = [process.communicate(timeout=DEADLINE_S)[1] for process in trainers]
    assert [process.returncode for process in trainers] == [1, 1]
    for error in errors:
        told = f"PserverError: pserver {second}: it failed before it started serving: ExecutionError: "
        assert re.search(told + r".*cannot reshape array of size 768 into shape \(128,256\)", error), error
    bad.communicate(timeout=DEADLINE_S)
    assert bad.returncode == 1
    assert good.poll() is None  # its trainers may come again


def test_hashed_names_give_a_server_both_slices_of_a_parameter_of_this_net() -> None:
    sliced_script.net(256)
    t = fluid.DistributeTranspiler(fluid.DistributeTranspilerConfig(split_method=HashName))
    t.transpile(0, pservers="127.0.0.1:1,127.0.0.1:2", trainers=2)
    first, second = (set(each["params"]) for each in t.param_grad_ep_mapping.values())
    assert {"dense.block0", "dense.block1"} <= first
    assert {"embedding.block0", "embedding.block1"} <= second
