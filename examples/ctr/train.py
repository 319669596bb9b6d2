# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""Predicts clicks from 10^11 categories: pserver and trainer of a Fluid job."""

import argparse
import itertools
import os

import criteo
import numpy as np

import paddle.fluid as fluid
import paddle.reader

WIDTH = 8
BATCH_SIZE = 64

ROLE = os.environ["TRAINING_ROLE"]
TRAINERS = int(os.environ["PADDLE_TRAINERS_NUM"])
TRAINER_ID = int(os.environ["PADDLE_TRAINER_ID"])


def network(table_rate):
    """Return the inputs, the mean cost and the probability of a click."""
    ids = fluid.layers.data(name="ids", shape=[criteo.CATEGORIES, 1], dtype="int64")
    numbers = fluid.layers.data(name="numbers", shape=[criteo.NUMBERS], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    embedding = fluid.layers.embedding(
        input=ids,
        size=[criteo.POSSIBLE_IDS, WIDTH],
        is_sparse=True,
        is_distributed=True,  # rows exist only on the pservers, and only for IDs that occurred
        param_attr=fluid.ParamAttr(
            name="features",
            initializer=fluid.initializer.Uniform(-0.05, 0.05, seed=1),
            learning_rate=table_rate,  # the pservers apply plain gradient descent to the table
        ),
    )
    flat = fluid.layers.reshape(embedding, [-1, criteo.CATEGORIES * WIDTH])
    hidden = fluid.layers.concat([flat, numbers], axis=1)
    for size in (64, 32):
        hidden = fluid.layers.fc(input=hidden, size=size, act="relu")
    probability = fluid.layers.fc(input=hidden, size=2, act="softmax")
    cost = fluid.layers.mean(fluid.layers.cross_entropy(input=probability, label=label))
    return [ids, numbers, label], cost, probability


def own_part(reader):
    """Return this trainer's share of the rows, so that all trainers together use each row once."""
    return lambda: itertools.islice(reader(), TRAINER_ID, None, TRAINERS)


def train(executor, program, feeder, reader, cost, passes):
    """Train on this trainer's share of the rows."""
    batches = paddle.reader.batch(paddle.reader.shuffle(own_part(reader), 10_000), BATCH_SIZE)
    for number in range(passes):
        costs = [
            float(executor.run(program, feed=feeder.feed(batch), fetch_list=[cost])[0].item())
            for batch in batches()
        ]
        print(f"Pass {number}, {len(costs)} batches, Cost {np.mean(costs):f}")


def evaluate(executor, program, inputs, reader, probability):
    """Return the mean log loss and the area under the ROC curve of rows, without training on them."""
    guesses = program._prune([probability])  # without the operators that send to the servers
    feeder = fluid.DataFeeder(feed_list=inputs, place=executor.place)
    chances, labels = [], []
    for batch in paddle.reader.batch(reader, BATCH_SIZE)():
        fed = feeder.feed([row[:-1] for row in batch])
        (found,) = executor.run(guesses, feed=fed, fetch_list=[probability])
        chances.extend(found[:, 1])
        labels.extend(int(row[-1].item()) for row in batch)
    p, y = np.clip(chances, 1e-7, 1 - 1e-7), np.array(labels)
    metric = fluid.metrics.Auc("auc")
    metric.update(np.stack([1 - p, p], axis=1), y[:, None])
    return -np.mean(np.where(y == 1, np.log(p), np.log(1 - p))), metric.eval()


def main():
    """Run as the pserver or the trainer that TRAINING_ROLE names."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--train", help="a file of rows; default: generate rows")
    arguments.add_argument("--test", help="rows held out for the test")
    arguments.add_argument("--passes", type=int, default=1)
    arguments.add_argument("--made_up", type=int, default=4000, help="number of rows to generate")
    arguments.add_argument(
        "--save_dir", default="output/parameters", help="directory where each pserver saves its rows"
    )
    options = arguments.parse_args()

    inputs, cost, probability = network(table_rate=20.0)
    fluid.optimizer.Adagrad(learning_rate=0.02).minimize(cost)
    startup = fluid.default_startup_program()
    transpiler = fluid.DistributeTranspiler()
    transpiler.transpile(TRAINER_ID, pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"], trainers=TRAINERS)
    executor = fluid.Executor(fluid.CPUPlace())
    if ROLE == "PSERVER":
        here = os.environ["PADDLE_CURRENT_ENDPOINT"]
        served, begin = transpiler.get_pserver_programs(here)
        executor.run(begin)
        executor.run(served)  # until all trainers have finished
        return

    program = transpiler.get_trainer_program()
    executor.run(startup)
    feeder = fluid.DataFeeder(feed_list=inputs, place=executor.place)
    rows = criteo.rows(options.train) if options.train else criteo.made_up(options.made_up, seed=1)
    held_back = criteo.rows(options.test) if options.test else criteo.made_up(1000, seed=2)
    train(executor, program, feeder, rows, cost, options.passes)
    if TRAINER_ID == 0:
        loss, area = evaluate(executor, program, inputs[:-1], held_back, probability)
        print(f"Held out: log loss {loss:f}, AUC {area:f}")
        fluid.io.save_persistables(executor, options.save_dir, program)
    executor.close()  # the pservers no longer wait for this trainer


if __name__ == "__main__":
    main()
