# SPDX-License-Identifier: Apache-2.0
"""A chapter as 0.11 wrote it: `paddle.v2.fluid`, an evaluator in the program, an end as soon as it is good enough."""

import os
import random
import tempfile

import numpy as np
import paddle.v2.fluid as fluid
import paddle.v2.fluid.layers as layers
import paddle.v2.fluid.nets as nets
from paddle.v2.fluid.framework import Program

import paddle.v2 as paddle

BATCH_SIZE = 20


def train():
    rng = np.random.RandomState(61)
    for _ in range(BATCH_SIZE * 15):
        label = rng.randint(0, 4)
        image = rng.rand(1, 12, 12) * 0.3
        image[0, label * 3 : label * 3 + 3] += 0.7
        yield image.astype("float32").ravel(), int(label)


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    random.seed(1)  # the order of shuffle
    images = layers.data(name="pixel", shape=[1, 12, 12], dtype="float32")
    label = layers.data(name="label", shape=[1], dtype="int64")
    conv_pool = nets.simple_img_conv_pool(
        input=images, filter_size=5, num_filters=6, pool_size=2, pool_stride=2, act="relu"
    )
    predict = layers.fc(input=conv_pool, size=4, act="softmax")
    avg_cost = layers.mean(x=layers.cross_entropy(input=predict, label=label))
    inference_program = fluid.default_main_program().clone()
    with fluid.program_guard(inference_program):
        test_accuracy = fluid.evaluator.Accuracy(input=predict, label=label)
        test_target = [avg_cost, *test_accuracy.metrics, *test_accuracy.states]
        inference_program = fluid.io.get_inference_program(test_target)
    optimizer = fluid.optimizer.AdamOptimizer(learning_rate=0.01, beta1=0.9, beta2=0.999)
    optimizer.minimize(avg_cost)
    accuracy = fluid.evaluator.Accuracy(input=predict, label=label)
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=[images, label], place=place)
    train_reader = paddle.batch(paddle.reader.shuffle(train, buf_size=500), batch_size=BATCH_SIZE)
    folder = os.path.join(tempfile.mkdtemp(), "digits.model")
    for pass_id in range(20):
        accuracy.reset(exe)
        for data in train_reader():
            loss, acc = exe.run(
                fluid.default_main_program(),
                feed=feeder.feed(data),
                fetch_list=[avg_cost, *accuracy.metrics],
            )
            print("loss: " + str(loss[0]) + " acc " + str(acc), flush=True)
        pass_acc = accuracy.eval(exe)
        test_accuracy.reset(exe)
        for data in train_reader():
            exe.run(inference_program, feed=feeder.feed(data), fetch_list=[avg_cost])
        test_pass_acc = test_accuracy.eval(exe)
        print("pass_id=" + str(pass_id) + " pass_acc=" + str(pass_acc) + " " + str(test_pass_acc))
        if pass_id > 1 and test_pass_acc > 0.95:
            fluid.io.save_inference_model(folder, ["pixel"], [predict], exe)
            program, feeds, targets = fluid.io.load_inference_model(folder, exe)
            assert isinstance(program, Program)
            tensor_img = np.array([each[0] for each in data], "float32").reshape(-1, 1, 12, 12)
            results = exe.run(program, feed={feeds[0]: tensor_img}, fetch_list=targets)
            assert np.mean(results[0].argmax(axis=1) == [each[1] for each in data]) > 0.9
            exit(0)
    exit(1)


if __name__ == "__main__":
    main()
