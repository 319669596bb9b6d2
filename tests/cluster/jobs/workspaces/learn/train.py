# SPDX-License-Identifier: Apache-2.0
"""A small job that learns a line, slowly, and in which one trainer comes to grief on the way.

--passes=N --batches=N --pause=S   how long it takes
--async=1                          asynchronous training
--die=RANK:STEP:HOW                that trainer dies in that step of its first life: kill, exit_3 or hang
--lives=N                          it does so in its first N lives
--wait=STEP:PATH                   every trainer waits before that step until the file PATH is there
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import NoReturn

import paddle.v2 as paddle

flags = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
rank, life = os.environ["PADDLE_TRAINER_ID"], int(os.environ["PADDLE_RESTART_COUNT"])
victim, die_at, how = (flags.get("die", "none:0:kill")).split(":")
wait_at, _, awaited = flags.get("wait", "-1:").partition(":")
steps = 0


def reader() -> Iterator[list[tuple[tuple[float, float], tuple[float]]]]:
    for batch in range(int(flags.get("batches", "4"))):
        yield [((x / 10, 1.0 - x / 10), (x / 5,)) for x in range(batch, batch + 4)]


def wait_for_the_other_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def come_to_grief() -> NoReturn:
    sys.stdout.write(f"trainer {rank} comes to grief: {how}\n")
    sys.stdout.flush()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        wait_for_the_other_lock()
    sys.exit(3)


def on_event(event: object) -> None:
    global steps
    if isinstance(event, paddle.event.BeginIteration):
        time.sleep(float(flags.get("pause", "0.05")))
        while steps == int(wait_at) and not os.path.exists(awaited):
            time.sleep(0.01)
        if rank == victim and life < int(flags.get("lives", "1")) and steps == int(die_at):
            come_to_grief()
        steps += 1
    elif isinstance(event, paddle.event.EndPass):
        sys.stdout.write(f"trainer {rank} life {life}: end of pass {event.pass_id}\n")
        sys.stdout.flush()


paddle.init()
x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(2))
y = paddle.layer.data(name="y", type=paddle.data_type.dense_vector(1))
cost = paddle.layer.square_error_cost(
    input=paddle.layer.fc(input=x, size=1, act=paddle.activation.Linear()), label=y
)
parameters = paddle.parameters.create(cost)
optimizer = paddle.optimizer.Momentum(momentum=0, learning_rate=1e-3, is_async=flags.get("async") == "1")
trainer = paddle.trainer.SGD(cost, parameters, optimizer, is_local=False)
trainer.train(reader, num_passes=int(flags.get("passes", "3")), event_handler=on_event)
bits = {name: parameters.get(name).tobytes().hex() for name in parameters.names()}
sys.stdout.write(f"trainer {rank} parameters {' '.join(f'{name}={bits[name]}' for name in sorted(bits))}\n")
sys.stdout.write(f"trainer {rank} life {life} is done\n")
