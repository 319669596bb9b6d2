# SPDX-License-Identifier: Apache-2.0

"""Chapter 1 as it was written for Fluid 0.14 to 1.2: the same script alone, with servers, and without them."""

import numpy
import roles

import paddle
import paddle.fluid as fluid

try:
    from paddle.fluid.contrib.inferencer import *  # noqa: F403
    from paddle.fluid.contrib.trainer import *  # noqa: F403
except ImportError:
    from paddle.fluid.inferencer import *  # noqa: F403
    from paddle.fluid.trainer import *  # noqa: F403

params_dirname = "output/fit_a_line.inference.model"
train_reader = paddle.batch(roles.mine(paddle.dataset.uci_housing.train()), batch_size=20 // roles.trainers)
test_reader = paddle.batch(paddle.dataset.uci_housing.test(), batch_size=20)


def inference_program():
    x = fluid.layers.data(name="x", shape=[13], dtype="float32")
    return fluid.layers.fc(input=x, size=1, act=None)


def train_program():
    y_predict = inference_program()
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    return fluid.layers.mean(fluid.layers.square_error_cost(input=y_predict, label=y))


def optimizer_program():
    return fluid.optimizer.SGD(learning_rate=0.02)


trainer = Trainer(  # noqa: F405
    train_func=train_program, place=fluid.CPUPlace(), optimizer_func=optimizer_program
)


def event_handler(event):
    if isinstance(event, EndStepEvent) and event.step == 0:  # noqa: F405
        print("Epoch %d, Cost %.2f" % (event.epoch, event.metrics[0]))
    if isinstance(event, EndEpochEvent):  # noqa: F405
        test_metrics = trainer.test(reader=test_reader, feed_order=["x", "y"])
        if event.epoch == 29 or test_metrics[0] < 10.0:
            trainer.stop()
            trainer.save_params(params_dirname)


trainer.train(num_epochs=30, event_handler=event_handler, reader=train_reader, feed_order=["x", "y"])

inferencer = Inferencer(  # noqa: F405
    infer_func=inference_program, param_path=params_dirname, place=fluid.CPUPlace()
)
samples = list(paddle.dataset.uci_housing.test()())
features = numpy.array([sample[0] for sample in samples]).astype("float32")
prices = numpy.array([sample[1] for sample in samples]).astype("float32")
results = inferencer.infer({"x": features})
simplest = ((prices - prices.mean()) ** 2).mean()
print(f"REACHED cost {((results[0] - prices) ** 2).mean():.3f} of {simplest:.3f}")
