# SPDX-License-Identifier: Apache-2.0
"""Chapter 4 of the v2 book: vectors of words, by the next word of real sentences."""

import collections
import itertools
import math
import os
import random

import numpy as np

import paddle.v2 as paddle

embsize = 32
hiddensize = 128
N = 5

trainer_id = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
trainers = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))


def mine(reader):
    return lambda: itertools.islice(reader(), trainer_id, None, trainers)


def wordemb(inlayer):
    return paddle.layer.table_projection(
        input=inlayer,
        size=embsize,
        param_attr=paddle.attr.Param(
            name="_proj", initial_std=0.001, learning_rate=1, l2_rate=0, sparse_update=True
        ),
    )


def frequencies_alone(train, test, dict_size):
    """The cost of always telling how frequent each word is: what a network must beat to have learned order."""
    counts = collections.Counter(sample[-1] for sample in train())
    total = sum(counts.values()) + dict_size
    costs = [math.log(total / (counts[sample[-1]] + 1)) for sample in test()]
    return sum(costs) / len(costs)


def main():
    random.seed(trainer_id)  # the order of shuffle
    paddle.init(use_gpu=False, trainer_count=1)
    word_dict = paddle.dataset.imikolov.build_dict()
    dict_size = len(word_dict)
    names = ["firstw", "secondw", "thirdw", "fourthw", "fifthw"]
    words = [paddle.layer.data(name=name, type=paddle.data_type.integer_value(dict_size)) for name in names]

    contextemb = paddle.layer.concat(input=[wordemb(word) for word in words[:-1]])
    hidden1 = paddle.layer.fc(
        input=contextemb,
        size=hiddensize,
        act=paddle.activation.Sigmoid(),
        layer_attr=paddle.attr.Extra(drop_rate=0.2),
        bias_attr=paddle.attr.Param(learning_rate=2),
        param_attr=paddle.attr.Param(initial_std=1.0 / math.sqrt(embsize * 8), learning_rate=1),
    )
    predictword = paddle.layer.fc(
        input=hidden1,
        size=dict_size,
        bias_attr=paddle.attr.Param(learning_rate=2),
        act=paddle.activation.Softmax(),
    )
    cost = paddle.layer.classification_cost(input=predictword, label=words[-1])

    parameters = paddle.parameters.create(cost)
    adagrad = paddle.optimizer.AdaGrad(
        learning_rate=8e-2, regularization=paddle.optimizer.L2Regularization(8e-4)
    )
    trainer = paddle.trainer.SGD(cost, parameters, adagrad, is_local=trainers == 1)

    train = paddle.reader.firstn(paddle.dataset.imikolov.train(word_dict, N), 28000)
    test = paddle.reader.firstn(paddle.dataset.imikolov.test(word_dict, N), 2000)

    def event_handler(event):
        if isinstance(event, paddle.event.EndIteration) and event.batch_id % 20 == 0:
            print(
                "Pass %d, Batch %d, Cost %f, %s" % (event.pass_id, event.batch_id, event.cost, event.metrics)
            )
        if isinstance(event, paddle.event.EndPass):
            result = trainer.test(paddle.batch(test, 100))
            print("Pass %d, Testing metrics %s, cost %f" % (event.pass_id, result.metrics, result.cost))

    trainer.train(
        paddle.batch(paddle.reader.shuffle(mine(train), 20000), 128 // trainers),
        num_passes=1,
        event_handler=event_handler,
    )

    os.makedirs("output", exist_ok=True)
    with open("output/model.tar", "w") as f:
        trainer.save_parameter_to_tar(f)
    with open("output/model.tar", "rb") as f:
        loaded = paddle.parameters.Parameters.from_tar(f)
    embeddings = loaded.get("_proj").reshape(len(word_dict), embsize)
    with open("output/emb.txt", "w") as f:
        np.savetxt(f, embeddings, delimiter=",", newline="\n")

    samples = list(test())
    probs = paddle.infer(output_layer=predictword, parameters=loaded, input=[each[:-1] for each in samples])
    reached = float(np.mean([-math.log(row[each[-1]]) for row, each in zip(probs, samples)]))
    print("REACHED cost %.4f by frequencies %.4f" % (reached, frequencies_alone(train, test, dict_size)))


if __name__ == "__main__":
    main()
