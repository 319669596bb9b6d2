# SPDX-License-Identifier: Apache-2.0

"""Chapter 1 of Fluid's book: prices of houses by a line, with a program that memory_optimize went over."""

import numpy
import roles

import paddle
import paddle.fluid as fluid

fluid.default_startup_program().random_seed = 7
x = fluid.layers.data(name="x", shape=[13], dtype="float32")
y_predict = fluid.layers.fc(input=x, size=1, act=None)
y = fluid.layers.data(name="y", shape=[1], dtype="float32")
cost = fluid.layers.square_error_cost(input=y_predict, label=y)
avg_cost = fluid.layers.mean(cost)

sgd_optimizer = fluid.optimizer.SGD(learning_rate=0.02)
sgd_optimizer.minimize(avg_cost)
fluid.memory_optimize(fluid.default_main_program())

place = fluid.CPUPlace()
exe = fluid.Executor(place)


def train_loop(main_program):
    feeder = fluid.DataFeeder(place=place, feed_list=[x, y])
    train_reader = paddle.batch(
        roles.mine(paddle.dataset.uci_housing.train()), batch_size=20 // roles.trainers
    )
    for pass_id in range(20):
        for batch_id, data in enumerate(train_reader()):
            (avg_loss_value,) = exe.run(main_program, feed=feeder.feed(data), fetch_list=[avg_cost])
            if batch_id == 0:
                print("Pass %d, Cost %.2f" % (pass_id, avg_loss_value))
    if roles.trainer_id == 0:
        fluid.io.save_inference_model("output/model", ["x"], [y_predict], exe)
        infer()


def infer():
    inference_scope = fluid.core.Scope()
    with fluid.scope_guard(inference_scope):
        [program, feed_names, fetch_targets] = fluid.io.load_inference_model("output/model", exe)
        samples = list(paddle.dataset.uci_housing.test()())
        features = numpy.array([sample[0] for sample in samples]).astype("float32")
        prices = numpy.array([sample[1] for sample in samples]).astype("float32")
        results = exe.run(program, feed={feed_names[0]: features}, fetch_list=fetch_targets)
    simplest = ((prices - prices.mean()) ** 2).mean()
    print(f"REACHED cost {((results[0] - prices) ** 2).mean():.3f} of {simplest:.3f}")


roles.run(exe, train_loop)
