# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""Recognizes handwritten digits: a Fluid program on several processes without pservers."""

import argparse
import itertools
import os
import random

import numpy as np

import paddle.dataset
import paddle.fluid as fluid
import paddle.reader

BATCH_SIZE = 64
TRAINERS = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
TRAINER_ID = int(os.getenv("PADDLE_TRAINER_ID", "0"))


def network():
    """Return the two inputs, the mean cost and the accuracy of two convolutional layers."""
    image = fluid.layers.data(name="image", shape=[1, 28, 28])
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    first = fluid.nets.simple_img_conv_pool(image, 16, 5, pool_size=2, pool_stride=2, act="relu")
    second = fluid.nets.simple_img_conv_pool(first, 32, 5, pool_size=2, pool_stride=2, act="relu")
    predicted = fluid.layers.fc(second, size=10, act="softmax")
    cost = fluid.layers.mean(fluid.layers.cross_entropy(input=predicted, label=label))
    return [image, label], cost, fluid.layers.accuracy(input=predicted, label=label)


def own_batches():
    """Yield batches of this process's part of the digits.

    A step needs all processes: each one uses the same number of batches, and the few remaining digits belong to another
    process after the next shuffle.
    """
    random.seed(1)  # the same order in all processes
    digits = paddle.reader.shuffle(paddle.dataset.mnist.train(), 60000)
    while True:
        own = itertools.islice(digits(), TRAINER_ID, None, TRAINERS)
        yield [list(itertools.islice(own, BATCH_SIZE)) for _ in range(60000 // TRAINERS // BATCH_SIZE)]


def measured(executor, program, feeder, fetched):
    """Return cost and accuracy over all digits of the test set."""
    sums = np.zeros(2)
    for batch in paddle.reader.batch(paddle.dataset.mnist.test(), 500)():
        sums += np.array([float(v.item()) for v in executor.run(program, feeder.feed(batch), fetched)]) * len(
            batch
        )
    return sums / 10000


def main():
    """Train; process 0 tests after every pass."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--passes", type=int, default=3)
    arguments.add_argument("--batches", type=int, default=0, help="maximum batches per pass; 0: all")
    arguments.add_argument(
        "--asynchronous", action="store_true", help="do not wait for the steps of other processes"
    )
    arguments.add_argument("--k_steps", type=int, default=1, help="steps between averages of parameters")
    options = arguments.parse_args()

    inputs, cost, accuracy = network()
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.002).minimize(cost)
    if TRAINERS > 1:
        config = fluid.DistributeTranspilerConfig()
        config.mode = "nccl2"
        config.sync_mode, config.k_steps = not options.asynchronous, options.k_steps
        fluid.DistributeTranspiler(config=config).transpile(
            TRAINER_ID,
            trainers=os.environ["PADDLE_TRAINER_ENDPOINTS"],
            current_endpoint=os.environ["PADDLE_CURRENT_ENDPOINT"],
        )
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    parallel = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        cost.name, num_trainers=TRAINERS, trainer_id=TRAINER_ID, places=fluid.cpu_places(1)
    )
    feeder = fluid.DataFeeder(feed_list=inputs, place=executor.place)

    for number, batches in enumerate(itertools.islice(own_batches(), options.passes)):
        for batch_id, batch in enumerate(batches[: options.batches or None]):
            (value,) = executor.run(parallel, feeder.feed(batch), [cost])
            if batch_id % 100 == 0:
                print(f"Pass {number}, Batch {batch_id}, Cost {value.item():f}")
        parallel.average(executor)  # if parameters are averaged, this makes them equal everywhere
        if TRAINER_ID == 0:
            test_cost, right = measured(executor, test_program, feeder, [cost, accuracy])
            print(f"Pass {number}, Test cost {test_cost:f}, Test accuracy {right:.4f}")
    if TRAINER_ID == 0:
        fluid.io.save_params(executor, "output/parameters", fluid.default_main_program())


if __name__ == "__main__":
    main()
