# SPDX-License-Identifier: Apache-2.0
"""A whole asynchronous job with a slow trainer: the others do not wait, and all see how much of its work is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.deadline import wait_for
from tests.launcher.control_jobs import LIMIT_S, Bench

PASSES, BATCHES, SLOW_BATCHES = 2, 8, 2
NODES = 3  # the port of each for sparse parameters is idle
WIDTH = 1500  # of a layer that is large enough for all three dense ports of one machine
TRAIN = f"""
import os, sys, time
import paddle.v2 as paddle

place, rank = sys.argv[1], os.environ["PADDLE_TRAINER_ID"]
is_slow = rank == "2"
batches = {SLOW_BATCHES} if is_slow else {BATCHES}


def wait_for(condition):
    while not condition():
        time.sleep(0.01)


def steps():
    return sum(os.path.getsize(os.path.join(place, "steps-" + other)) for other in "01")


def reader():
    for batch in range(batches):
        yield [((x / 10, 1.0 - x / 10), (x / 5,)) for x in range(batch, batch + 4)]


def on_event(event):
    if isinstance(event, paddle.event.BeginIteration) and is_slow:
        # the others are through with the whole pass; they meet the slow one at its end
        wait_for(lambda: steps() == 2 * {BATCHES} * (event.pass_id + 1))
    if isinstance(event, paddle.event.EndIteration) and not is_slow:
        with open(os.path.join(place, "steps-" + rank), "a") as file:
            file.write("x")


open(os.path.join(place, "steps-" + rank), "w").close()
paddle.init()
x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(2))
y = paddle.layer.data(name="y", type=paddle.data_type.dense_vector(1))
hidden = x
for size in ({WIDTH}, {WIDTH}, 1):
    hidden = paddle.layer.fc(input=hidden, size=size, act=paddle.activation.Linear())
cost = paddle.layer.square_error_cost(input=hidden, label=y)
optimizer = paddle.optimizer.Momentum(momentum=0, learning_rate=1e-9, is_async=True)
trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer, is_local=False)
trainer.train(reader, num_passes={PASSES}, event_handler=on_event)
if is_slow:
    wait_for(lambda: os.path.exists(os.path.join(place, "go")))
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    (tmp_path / "steps").mkdir()
    for rank in range(2):
        (tmp_path / "steps" / f"steps-{rank}").touch()
    (tmp_path / "ws" / "train.py").write_text(TRAIN)
    conf = (tmp_path / "conf.py").read_text().replace("['local']", f"['local'] * {NODES}")
    (tmp_path / "conf.py").write_text(conf)
    yield bench
    bench.close()


def processes(bench: Bench, job_id: str) -> dict[str, dict[str, Any]]:
    """The processes in what `status` prints for programs."""
    done = bench.run("status", job_id, "--json")
    assert done.returncode == 0, done.stderr
    return {one["name"]: one for one in json.loads(done.stdout)["status"].get("processes", ())}


def test_status_and_the_last_screen_tell_how_many_gradients_of_a_slow_trainer_were_discarded(
    bench: Bench,
) -> None:
    done = bench.run("-p", "ws", "--conf=conf.py", "--detach", "--", str(bench.place / "steps"))
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = bench.jobs()

    def all_is_told() -> dict[str, dict[str, Any]] | None:
        found = processes(bench, job.job_id)
        pushed = [found.get(f"trainer-{rank}", {}).get("pushed", 0) for rank in range(3)]
        return (
            found if pushed == [NODES * PASSES * each for each in (BATCHES, BATCHES, SLOW_BATCHES)] else None
        )

    found = wait_for("all counts of all servers", all_is_told, LIMIT_S)
    assert found is not None
    # of each pass the first one is too old: everything else was pushed before it, and nothing after
    assert found["trainer-2"]["discarded"] == NODES * PASSES
    counts = f"{NODES * PASSES} of {NODES * PASSES * SLOW_BATCHES}"

    def servers_count() -> bool:
        told = [processes(bench, job.job_id)[f"pserver-{rank}"] for rank in range(NODES)]
        return all(0 < (one["version"] or 0) < (one["requests"] or 0) for one in told)

    wait_for("updates and requests of all servers", servers_count, LIMIT_S)
    text = bench.run("status", job.job_id).stdout
    assert re.search(rf"^  trainer-2 .* running .* {counts}$", text, re.MULTILINE), text
    (bench.place / "steps" / "go").touch()
    ended = bench.wait_until_ended(job)
    assert ended.status["exit_code"] == 0
    assert processes(bench, job.job_id)["trainer-2"]["discarded"] == NODES * PASSES
    screen = (ended.directory / "screen.log").read_text()
    line = re.search(r"^.*gradients were discarded as too old.*$", screen, re.MULTILINE)
    assert line is not None, screen
    assert re.search(rf"trainer 2: {counts}( gradients|;|$)", line.group())
