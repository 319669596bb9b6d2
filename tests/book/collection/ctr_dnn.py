# SPDX-License-Identifier: Apache-2.0
"""A click predictor over dense numbers and many sparse slots, alone or with parameter servers."""

import os

import numpy as np

import paddle
import paddle.fluid as fluid

SLOTS, WIDTH, HASHES, BATCH = 6, 8, 1001, 32


def samples():
    rng = np.random.RandomState(3)
    for _ in range(BATCH * 12):
        dense = rng.rand(4).astype("float32")
        ids = [[int(each)] for each in rng.randint(0, HASHES, SLOTS)]
        yield [dense, *ids, [int(dense.sum() + (ids[0][0] % 3) > 2.5)]]


def sharded(trainer, trainers):
    def read():
        for number, line in enumerate(samples()):
            if number % trainers == trainer:
                yield line

    return read


def network():
    dense = fluid.layers.data(name="dense_input", shape=[4], dtype="float32")
    sparse = [
        fluid.layers.data(name="C%d" % at, shape=[1], lod_level=1, dtype="int64")
        for at in range(1, SLOTS + 1)
    ]
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    reader = fluid.layers.create_py_reader_by_data(
        capacity=64, feed_list=[dense, *sparse, label], name="py_reader", use_double_buffer=True
    )
    words = fluid.layers.read_file(reader)
    attr = fluid.ParamAttr(name="SparseFeatFactors", initializer=fluid.initializer.Uniform())
    rows = [
        fluid.layers.embedding(
            input=each, size=[HASHES, WIDTH], is_sparse=True, is_distributed=False, param_attr=attr
        )
        for each in words[1:-1]
    ]
    hidden = fluid.layers.concat(rows + words[0:1], axis=1)
    for size in (32, 16):
        scale = 1 / np.sqrt(hidden.shape[1])
        weight = fluid.ParamAttr(initializer=fluid.initializer.Normal(scale=scale))
        hidden = fluid.layers.fc(input=hidden, size=size, act="relu", param_attr=weight)
    predict = fluid.layers.fc(input=hidden, size=2, act="softmax")
    cost = fluid.layers.cross_entropy(input=predict, label=words[-1])
    avg_cost = fluid.layers.reduce_sum(cost)
    auc, batch_auc, _ = fluid.layers.auc(input=predict, label=words[-1], num_thresholds=2**12, slide_steps=20)
    return avg_cost, auc, batch_auc, reader


def train(main, loss, auc, reader, trainer, trainers):
    exe = fluid.Executor(fluid.CPUPlace())
    reader.decorate_paddle_reader(paddle.batch(sharded(trainer, trainers), batch_size=BATCH / trainers))
    strategy = fluid.ExecutionStrategy()
    strategy.num_threads = int(os.getenv("NUM_THREADS", "1"))
    build = fluid.BuildStrategy()
    build.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.AllReduce
    pe = fluid.ParallelExecutor(
        use_cuda=False, loss_name=loss.name, main_program=main, build_strategy=build, exec_strategy=strategy
    )
    exe.run(fluid.default_startup_program())
    for _ in range(2):
        reader.start()
        try:
            while True:
                loss_val, _ = pe.run(fetch_list=[loss.name, auc.name])
                print(f"loss: {np.mean(loss_val) / (BATCH / trainers):.6f}", flush=True)
        except fluid.core.EOFException:
            reader.reset()
    if trainer == 0 and os.getenv("MODEL_DIR"):
        fluid.io.save_persistables(executor=exe, dirname=os.environ["MODEL_DIR"])


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    loss, auc, _, reader = network()
    fluid.optimizer.Adam(learning_rate=1e-2).minimize(loss)
    role, trainer = os.getenv("TRAINING_ROLE"), int(os.getenv("PADDLE_TRAINER_ID", "0"))
    trainers = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
    if role is None:
        train(fluid.default_main_program(), loss, auc, reader, 0, 1)
        return
    t = fluid.DistributeTranspiler()
    t.transpile(trainer, pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"], trainers=trainers)
    if role == "PSERVER":
        current = os.environ["PADDLE_CURRENT_ENDPOINT"]
        prog = t.get_pserver_program(current)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(t.get_startup_program(current, pserver_program=prog))
        exe.run(prog)
    else:
        train(t.get_trainer_program(), loss, auc, reader, trainer, trainers)


if __name__ == "__main__":
    main()
