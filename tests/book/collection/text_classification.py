# SPDX-License-Identifier: Apache-2.0
"""Bag, convolution, LSTM and GRU over words, each with Adagrad, and saved for inference."""

import random
import sys
import tempfile

import numpy as np

import paddle
import paddle.fluid as fluid

WORDS, WIDTH, BATCH = 40, 12, 16


def reader():
    rng = np.random.RandomState(11)
    for _ in range(BATCH * 20):
        label = rng.randint(0, 2)
        yield [int(each) for each in rng.randint(0, 20, rng.randint(2, 6)) * 2 + label], label


def data2tensor(data, place):
    word = [each[0] for each in data]
    lod = [0]
    for each in word:
        lod.append(lod[-1] + len(each))
    flat = np.concatenate(word, axis=0).astype("int64").reshape([-1, 1])
    res = fluid.core.LoDTensor()
    res.set(flat, place)
    res.set_lod([lod])
    return {"words": res, "label": np.array([each[1] for each in data]).astype("int64").reshape([-1, 1])}


def bow(emb, label):
    bag = fluid.layers.tanh(fluid.layers.sequence_pool(input=emb, pool_type="sum"))
    return fluid.layers.fc(input=bag, size=WIDTH, act="tanh")


def cnn(emb, label):
    conv = fluid.nets.sequence_conv_pool(
        input=emb, num_filters=WIDTH, filter_size=3, act="tanh", pool_type="max"
    )
    return fluid.layers.fc(input=[conv], size=WIDTH)


def lstm(emb, label):
    fc0 = fluid.layers.fc(input=emb, size=WIDTH * 4)
    hidden, _ = fluid.layers.dynamic_lstm(input=fc0, size=WIDTH * 4, is_reverse=0)
    return fluid.layers.fc(
        input=fluid.layers.tanh(fluid.layers.sequence_pool(hidden, "max")), size=WIDTH, act="tanh"
    )


def gru(emb, label):
    gates = fluid.layers.fc(input=emb, size=WIDTH * 3)
    return fluid.layers.sequence_pool(fluid.layers.dynamic_gru(input=gates, size=WIDTH), pool_type="max")


def train(net):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    random.seed(1)  # the order of shuffle
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        data = fluid.layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
        label = fluid.layers.data(name="label", shape=[1], dtype="int64")
        emb = fluid.layers.embedding(
            input=data,
            size=[WORDS, WIDTH],
            param_attr=fluid.ParamAttr(learning_rate=30.0 if net is lstm else 1.0),
        )
        prediction = fluid.layers.fc(input=net(emb, label), size=2, act="softmax")
        cost = fluid.layers.mean(x=fluid.layers.cross_entropy(input=prediction, label=label))
        acc = fluid.layers.accuracy(input=prediction, label=label)
        fluid.optimizer.Adagrad(learning_rate=0.05).minimize(cost)
        place = fluid.CPUPlace()
        exe = fluid.Executor(place)
        exe.run(startup)
        batches = paddle.batch(paddle.reader.shuffle(reader, buf_size=100), batch_size=BATCH)
        for _ in range(2):
            accs, costs, count = 0.0, 0.0, 0
            for each in batches():
                value, part = exe.run(main, feed=data2tensor(each, place), fetch_list=[cost, acc])
                costs += len(each) * value
                accs += len(each) * part
                count += len(each)
                print("loss: %f" % value, flush=True)
            assert "%.2f" % (costs / count) and accs / count > 0.4
        folder = tempfile.mkdtemp()
        fluid.io.save_inference_model(folder, ["words", "label"], acc, exe)
        program, feeds, targets = fluid.io.load_inference_model(folder, exe)
        (part,) = exe.run(program, feed=data2tensor(each, place), fetch_list=targets)
        assert feeds == ["words", "label"] and part > 0.5, part


if __name__ == "__main__":
    for net in (bow, cnn, gru, lstm) if len(sys.argv) < 2 else [globals()[sys.argv[1]]]:
        train(net)
