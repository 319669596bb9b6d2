# SPDX-License-Identifier: Apache-2.0
"""A job with a dense and a sparse parameter that records its steps and its parameters where the hosts can be queried.

--batches=N    of each of three passes
--places=DIR   where `beats-RANK` grows by one byte per step, and `parameters-RANK` has the digest of the parameters
--files=N      small files that trainer 0 writes to output/ at its end, including a few of 3 MB
--hostile=1    grandchildren that escape: setsid, double fork, TERM ignored, stopped, forking on, environment cleared
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator

import paddle.v2 as paddle

PASSES, WORDS, CLASSES, BATCH = 3, 20_000, 2_000, 8
FLEE = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
os.setsid()
if os.fork():
    os._exit(0)
"""
SLEEP = FLEE + "time.sleep(1000)\n"
STOP = FLEE + "os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(1000)\n"
KEEP_FORKING = (
    FLEE
    + "while os.getpid():\n    time.sleep(0.05)\n    if os.fork():\n        os._exit(0)\n    os.setsid()\n"
)

flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
rank, life = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_RESTART_COUNT"])
batches = int(flags["batches"])


def reader() -> Iterator[list[tuple[list[int], int]]]:
    """Yield this trainer's batches, which differ from those of other trainers."""
    for batch in range(batches):
        first = (batch * 3 + rank) * BATCH
        yield [([(first + each) * 7919 % WORDS, each], (first + each) % CLASSES) for each in range(BATCH)]


def start_hostile_grandchildren() -> None:
    """Start all kinds of hostile grandchildren, with and without the job's environment."""
    for program in (SLEEP, STOP, KEEP_FORKING):
        for environment in (dict(os.environ), {}):
            subprocess.Popen([sys.executable, "-I", "-S", "-c", program], env=environment)


def network() -> paddle.layer.LayerOutput:
    """Return an embedding, two dense layers and a cost."""
    words = paddle.layer.data(name="words", type=paddle.data_type.integer_value_sequence(WORDS))
    label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(CLASSES))
    table = paddle.layer.embedding(
        input=words, size=32, param_attr=paddle.attr.Param(name="table", sparse_update=True)
    )
    hidden = paddle.layer.fc(input=paddle.layer.pooling(input=table), size=256, act=paddle.activation.Tanh())
    predicted = paddle.layer.fc(input=hidden, size=CLASSES, act=paddle.activation.Softmax())
    return paddle.layer.classification_cost(input=predicted, label=label)


def write_files(count: int) -> None:
    """Write files whose names determine their contents: "file-12" contains "12" and a newline, "large-3" 3 MB of 3s."""
    for number in range(count):
        os.makedirs(f"output/{number // 1000}", exist_ok=True)
        with open(f"output/{number // 1000}/file-{number}", "w") as file:
            file.write(f"{number}\n")
    for number in range(count // 1000):
        with open(f"output/large-{number}", "w") as file:
            file.write(str(number % 10) * 3_000_000)


def main() -> None:
    """Train, and record the steps and parameters."""
    if flags["hostile"] == "1" and life == 0:
        start_hostile_grandchildren()

    def on_event(event: object) -> None:
        if isinstance(event, paddle.event.EndIteration):
            with open(os.path.join(flags["places"], f"beats-{rank}"), "ab") as beats:
                beats.write(b".")
            print(f"pass {event.pass_id}, batch {event.batch_id}, trainer {rank}", flush=True)

    paddle.init()
    cost = network()
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Momentum(momentum=0, learning_rate=1e-2)
    trainer = paddle.trainer.SGD(cost, parameters, optimizer, is_local=False)
    trainer.train(reader, num_passes=PASSES, event_handler=on_event)
    digest = hashlib.sha256()
    for name in sorted(parameters.names()):
        digest.update(parameters.get(name).tobytes())
    with open(os.path.join(flags["places"], f"parameters-{rank}"), "w") as file:
        file.write(digest.hexdigest())
    if rank == 0:
        write_files(int(flags["files"]))


main()
