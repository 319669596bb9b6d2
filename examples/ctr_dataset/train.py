# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""Predicts clicks from files that a pipe command converts to samples: alone, or as pserver or trainer in Fluid."""

import argparse
import os
import pathlib

import numpy as np

import paddle.fluid as fluid

BUCKETS = 100_003
NUMBERS, CATEGORIES = 13, 26
HERE = pathlib.Path(__file__).resolve().parent

ROLE = os.environ.get("TRAINING_ROLE", "")
TRAINERS = int(os.environ.get("PADDLE_TRAINERS_NUM", 1))
TRAINER_ID = int(os.environ.get("PADDLE_TRAINER_ID", 0))


def network(width):
    """Return the inputs in slot order, the mean cost, the AUC so far, and the AUC's state variables."""
    dense = fluid.layers.data(name="dense_input", shape=[NUMBERS])
    categories = [
        fluid.layers.data(name=f"C{at}", shape=[1], lod_level=1, dtype="int64")
        for at in range(1, CATEGORIES + 1)
    ]
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    table = fluid.ParamAttr(name="features", initializer=fluid.initializer.Uniform(-0.05, 0.05, seed=1))
    embedded = [
        fluid.layers.sequence_pool(
            fluid.layers.embedding(input=ids, size=[BUCKETS, width], is_sparse=True, param_attr=table), "sum"
        )
        for ids in categories
    ]
    hidden = fluid.layers.concat([*embedded, dense], axis=1)
    for size in (64, 32):
        hidden = fluid.layers.fc(input=hidden, size=size, act="relu")
    probability = fluid.layers.fc(input=hidden, size=2, act="softmax")
    cost = fluid.layers.mean(fluid.layers.cross_entropy(input=probability, label=label))
    auc, _, states = fluid.layers.auc(input=probability, label=label, slide_steps=0)
    return [dense, *categories, label], cost, auc, states


def dataset(inputs, files, batch_size, threads):
    """Return a dataset of rows that clicks.py converts to samples."""
    made = fluid.DatasetFactory().create_dataset("QueueDataset")
    made.set_use_var(inputs)
    made.set_pipe_command(f"python {HERE / 'clicks.py'} {BUCKETS}")
    made.set_batch_size(batch_size)
    made.set_thread(threads)
    made.set_filelist(files)
    return made


def made_up(folder, files, rows):
    """Write files of rows in which a few categories determine whether there is a click; return their paths."""
    taste = np.random.default_rng(2017).standard_normal((CATEGORIES, 20))
    paths = []
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        rng = np.random.default_rng([TRAINER_ID, number])
        with open(folder / f"part-{TRAINER_ID}-{number}", "w", encoding="ascii") as out:
            for _ in range(rows // files):
                drawn = rng.integers(0, 20, CATEGORIES)
                click = int(3 * taste[np.arange(4), drawn[:4]].sum() > rng.logistic())
                numbers = "\t".join(map(str, rng.integers(0, 9, NUMBERS)))
                print(click, numbers, "\t".join(f"{each:08x}" for each in drawn), sep="\t", file=out)
        paths.append(out.name)
    return paths


def evaluate(executor, program, inputs, files, auc, states):
    """Print the AUC of held-out rows."""
    for state in states:
        tensor = fluid.global_scope().find_var(state.name).get_tensor()
        tensor.set(np.zeros_like(np.array(tensor)), executor.place)
    held_back = dataset(inputs, files, 1 << 20, 1)
    executor.infer_from_dataset(program, held_back, fetch_list=[auc], fetch_info=["AUC of held-out rows"])


def main():
    """Run as the pserver or the trainer that TRAINING_ROLE names."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--train", nargs="*", help="files of rows; default: generate rows")
    arguments.add_argument("--test", help="rows held out for the test")
    arguments.add_argument("--passes", type=int, default=1)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--batch_size", type=int, default=64)
    arguments.add_argument("--made_up", type=int, default=2000, help="rows that each trainer generates")
    options = arguments.parse_args()

    inputs, cost, auc, states = network(width=8)
    guesses = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.005).minimize(cost)
    program, startup = fluid.default_main_program(), fluid.default_startup_program()
    executor = fluid.Executor(fluid.CPUPlace())
    if ROLE:
        transpiler = fluid.DistributeTranspiler()
        servers = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"]
        transpiler.transpile(TRAINER_ID, pservers=servers, trainers=TRAINERS)
        if ROLE == "PSERVER":
            served, begin = transpiler.get_pserver_programs(os.environ["PADDLE_CURRENT_ENDPOINT"])
            executor.run(begin)
            executor.run(served)  # until all trainers have finished
            return
        program = transpiler.get_trainer_program()

    executor.run(startup)
    # Every trainer uses the files whose number matches its rank.
    files = (
        options.train[TRAINER_ID::TRAINERS] if options.train else made_up(HERE / "data", 4, options.made_up)
    )
    for number in range(options.passes):
        print(f"Pass {number}")
        executor.train_from_dataset(
            program=program,
            dataset=dataset(inputs, files, options.batch_size, options.threads),
            fetch_list=[cost, auc],
            fetch_info=["cost", "AUC"],
            print_period=20,
            debug=True,
        )
    if options.test and not ROLE:
        evaluate(executor, guesses, inputs, [options.test], auc, states)
    executor.close()  # the pservers no longer wait for this trainer


if __name__ == "__main__":
    main()
