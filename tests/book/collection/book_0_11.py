# SPDX-License-Identifier: Apache-2.0
"""A chapter as 0.11 and 0.12 wrote it: transpile after minimize with its results, variables of the cloud."""

import os
import tempfile

import numpy as np

import paddle
import paddle.fluid as fluid

BATCH = 20


def reader():
    rng = np.random.RandomState(18)
    weights = rng.rand(13)
    for _ in range(BATCH * 10):
        x = rng.rand(13).astype("float32")
        yield x, [float(x.dot(weights))]


def train_loop(main_program, avg_cost, feed_list, rank, trainers):
    place = fluid.CPUPlace()
    feeder = fluid.DataFeeder(place=place, feed_list=feed_list)
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())

    def mine():
        for number, each in enumerate(reader()):
            if number % trainers == rank:
                yield each

    train_reader = paddle.batch(mine, batch_size=BATCH / trainers)
    folder = tempfile.mkdtemp()
    for pass_id in range(10):
        if trainers == 1 and pass_id:
            fluid.io.save_persistables(exe, folder)
            fluid.io.load_persistables(exe, folder)
        for data in train_reader():
            (avg_loss_value,) = exe.run(main_program, feed=feeder.feed(data), fetch_list=[avg_cost])
            print("loss: %f" % avg_loss_value[0], flush=True)
            if avg_loss_value[0] < 0.0001:
                exit(0)
    exe.close()


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    x = fluid.layers.data(name="x", shape=[13], dtype="float32")
    y_predict = fluid.layers.fc(input=x, size=1, act=None)
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    cost = fluid.layers.square_error_cost(input=y_predict, label=y)
    avg_cost = fluid.layers.mean(cost)
    sgd_optimizer = fluid.optimizer.SGD(learning_rate=0.05)
    optimize_ops, params_grads = sgd_optimizer.minimize(avg_cost)
    training_role = os.getenv("TRAINING_ROLE", "LOCAL")
    if training_role == "LOCAL":
        train_loop(fluid.default_main_program(), avg_cost, [x, y], 0, 1)
        return
    pserver_endpoints = os.getenv("PSERVERS")
    trainers, trainer_id = int(os.getenv("TRAINERS")), int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
    t = fluid.DistributeTranspiler()
    t.transpile(optimize_ops, params_grads, trainer_id, pservers=pserver_endpoints, trainers=trainers)
    if training_role == "PSERVER":
        current_endpoint = os.getenv("SERVER_ENDPOINT")
        pserver_prog = t.get_pserver_program(current_endpoint)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(t.get_startup_program(current_endpoint, pserver_prog))
        exe.run(pserver_prog)
    else:
        train_loop(t.get_trainer_program(), avg_cost, [x, y], trainer_id, trainers)


if __name__ == "__main__":
    main()
