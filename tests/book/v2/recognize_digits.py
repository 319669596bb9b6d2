# SPDX-License-Identifier: Apache-2.0
"""Chapter 2 of the v2 book: handwritten digits, by two narrow convolutions on a part of MNIST."""

import gzip
import itertools
import os
import random

import numpy as np

import paddle.v2 as paddle

trainer_id = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
trainers = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))


def mine(reader):
    return lambda: itertools.islice(reader(), trainer_id, None, trainers)


def convolutional_neural_network(img):
    conv_pool_1 = paddle.networks.simple_img_conv_pool(
        input=img,
        filter_size=5,
        num_filters=8,
        num_channel=1,
        pool_size=2,
        pool_stride=2,
        act=paddle.activation.Relu(),
    )
    conv_pool_2 = paddle.networks.simple_img_conv_pool(
        input=conv_pool_1,
        filter_size=5,
        num_filters=16,
        num_channel=8,
        pool_size=2,
        pool_stride=2,
        act=paddle.activation.Relu(),
    )
    return paddle.layer.fc(input=conv_pool_2, size=10, act=paddle.activation.Softmax())


def main():
    random.seed(trainer_id)  # the order of shuffle
    paddle.init(use_gpu=False, trainer_count=1)

    images = paddle.layer.data(name="pixel", type=paddle.data_type.dense_vector(784))
    label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(10))
    predict = convolutional_neural_network(images)
    cost = paddle.layer.classification_cost(input=predict, label=label)

    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Momentum(
        learning_rate=0.1 / 128.0,
        momentum=0.9,
        regularization=paddle.optimizer.L2Regularization(rate=0.0005 * 128),
    )
    trainer = paddle.trainer.SGD(
        cost=cost, parameters=parameters, update_equation=optimizer, is_local=trainers == 1
    )
    train = paddle.reader.firstn(paddle.dataset.mnist.train(), 3840)
    test = paddle.reader.firstn(paddle.dataset.mnist.test(), 1000)
    lists = []

    def event_handler(event):
        if isinstance(event, paddle.event.EndIteration) and event.batch_id % 10 == 0:
            print(
                "Pass %d, Batch %d, Cost %f, %s" % (event.pass_id, event.batch_id, event.cost, event.metrics)
            )
        if isinstance(event, paddle.event.EndPass):
            result = trainer.test(reader=paddle.batch(test, batch_size=128))
            print("Test with Pass %d, Cost %f, %s\n" % (event.pass_id, result.cost, result.metrics))
            lists.append((event.pass_id, result.cost, result.metrics["classification_error_evaluator"]))

    trainer.train(
        reader=paddle.batch(paddle.reader.shuffle(mine(train), buf_size=8192), batch_size=64 // trainers),
        event_handler=event_handler,
        num_passes=2,
    )

    best = sorted(lists, key=lambda record: float(record[1]))[0]
    print("Best pass is %s, testing Avgcost is %s" % (best[0], best[1]))
    print("The classification accuracy is %.2f%%" % (100 - float(best[2]) * 100))

    os.makedirs("output", exist_ok=True)
    with gzip.open("output/params.tar.gz", "w") as f:
        trainer.save_parameter_to_tar(f)
    with gzip.open("output/params.tar.gz", "r") as f:
        loaded = paddle.parameters.Parameters.from_tar(f)
    samples = list(test())
    probs = paddle.infer(output_layer=predict, parameters=loaded, input=[(pixels,) for pixels, _ in samples])
    lab = np.argsort(-probs)  # digits, the likeliest first
    print("Label of the first image is: %d" % lab[0][0])
    print("REACHED accuracy %.4f" % np.mean([row[0] == sample[1] for row, sample in zip(lab, samples)]))


if __name__ == "__main__":
    main()
