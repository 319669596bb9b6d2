# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""Predicts the fifth word from four: Fluid's word2vec on Penn Treebank, as pserver, as trainer, or alone."""

import argparse
import itertools
import os

import numpy as np

import paddle
import paddle.dataset
import paddle.fluid as fluid
import paddle.reader

EMBEDDING_SIZE = 32
HIDDEN_SIZE = 256
N = 5
BATCH_SIZE = 100
WORDS = ["first", "second", "third", "fourth", "next"]

ROLE = os.getenv("TRAINING_ROLE", "ALONE")
TRAINERS = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
TRAINER_ID = int(os.getenv("PADDLE_TRAINER_ID", "0"))


def network(dict_size):
    """Return the five inputs and the mean cost of predicting the last one."""
    inputs = [fluid.layers.data(name=name, shape=[1], dtype="int64") for name in WORDS]
    embeddings = [
        fluid.layers.embedding(
            input=word,
            size=[dict_size, EMBEDDING_SIZE],
            is_sparse=True,  # a trainer sends and fetches only the rows of its words
            param_attr=fluid.ParamAttr(name="shared_w"),
        )
        for word in inputs[:-1]
    ]
    hidden = fluid.layers.fc(fluid.layers.concat(embeddings, axis=1), size=HIDDEN_SIZE, act="sigmoid")
    predicted = fluid.layers.fc(hidden, size=dict_size, act="softmax")
    cost = fluid.layers.cross_entropy(input=predicted, label=inputs[-1])
    return inputs, fluid.layers.mean(cost)


def own_part(reader):
    """Return this trainer's share of the samples, so that all trainers together use each sample once."""
    return lambda: itertools.islice(reader(), TRAINER_ID, None, TRAINERS)


def train(executor, program, words, inputs, cost, options):
    """Train on this trainer's part of the text."""
    feeder = fluid.DataFeeder(feed_list=inputs, place=executor.place)
    reader = own_part(paddle.dataset.imikolov.train(words, N))
    batches = paddle.reader.batch(paddle.reader.shuffle(reader, 10000), BATCH_SIZE)
    for number in range(options.passes):
        costs = []
        for batch_id, batch in enumerate(batches()):
            (value,) = executor.run(program, feed=feeder.feed(batch), fetch_list=[cost])
            costs.append(float(value.item()))
            if batch_id % 100 == 0:
                print(f"Pass {number}, Batch {batch_id}, Cost {np.mean(costs[-100:]):f}")
            if len(costs) == options.batches:
                break
        print(f"Pass {number}, Train cost {np.mean(costs[-100:]):f} over the last batches")


def main():
    """Run as the pserver or the trainer that TRAINING_ROLE names."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--passes", type=int, default=1)
    arguments.add_argument("--batches", type=int, default=0, help="maximum batches per pass; 0: all")
    options = arguments.parse_args()

    words = paddle.dataset.imikolov.build_dict()
    inputs, cost = network(len(words))
    fluid.optimizer.Adagrad(learning_rate=0.02).minimize(cost)
    main_program, startup = fluid.default_main_program(), fluid.default_startup_program()
    executor = fluid.Executor(fluid.CPUPlace())

    if ROLE != "ALONE":
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(
            TRAINER_ID, pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"], trainers=TRAINERS
        )
    if ROLE == "PSERVER":
        here = os.environ["PADDLE_CURRENT_ENDPOINT"]
        served = transpiler.get_pserver_program(here)
        executor.run(transpiler.get_startup_program(here, served))
        executor.run(served)  # until all trainers have finished
        return
    if ROLE == "TRAINER":
        main_program = transpiler.get_trainer_program()
    executor.run(startup)
    train(executor, main_program, words, inputs, cost, options)
    if TRAINER_ID == 0:
        fluid.io.save_persistables(executor, "output/parameters", main_program)
    executor.close()  # the pservers no longer wait for this trainer


if __name__ == "__main__":
    main()
