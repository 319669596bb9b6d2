# SPDX-License-Identifier: Apache-2.0
"""Sentiments by convolutions of several widths; one reader for training and evaluation, decorated again for each."""

import os
import random
import tempfile

import numpy as np

import paddle
import paddle.fluid as fluid

WORDS, WIDTH, BATCH, UNKNOWN = 60, 12, 8, 59


def reader(seed, count):
    def samples():
        rng = np.random.RandomState(seed)
        for _ in range(count):
            label = rng.randint(0, 2)
            words = rng.randint(0, 14, rng.randint(2, 7)) * 2 + label
            yield [UNKNOWN if rng.rand() < 0.1 else int(each) for each in words], label

    return samples


def textcnn_net(words, label=None, is_infer=False):
    emb = fluid.layers.embedding(
        input=words, size=[WORDS, WIDTH], param_attr=fluid.ParamAttr(name="emb", learning_rate=2.0)
    )
    convs = [
        fluid.nets.sequence_conv_pool(
            input=emb, num_filters=WIDTH, filter_size=width, act="tanh", pool_type="max"
        )
        for width in (1, 2, 3)
    ]
    hidden = fluid.layers.fc(input=convs, size=WIDTH)
    prediction = fluid.layers.fc(input=[hidden], size=2, act="softmax")
    if is_infer:
        return prediction
    cost = fluid.layers.mean(x=fluid.layers.cross_entropy(input=prediction, label=label))
    total = fluid.layers.create_tensor(dtype="int64")
    acc = fluid.layers.accuracy(input=prediction, label=label, total=total)
    return cost, prediction, acc, total


def create_model(name, is_infer=False):
    py_reader = fluid.layers.py_reader(
        capacity=16,
        shapes=([-1, 1],) if is_infer else ([-1, 1], [-1, 1]),
        dtypes=("int64",) if is_infer else ("int64", "int64"),
        lod_levels=(1,) if is_infer else (1, 0),
        name=name,
        use_double_buffer=False,
    )
    if is_infer:
        return py_reader, textcnn_net(fluid.layers.read_file(py_reader), is_infer=True)
    words, label = fluid.layers.read_file(py_reader)
    return (py_reader, *textcnn_net(words, label))


def evaluate(exe, program, py_reader, fetches):
    py_reader.start()
    costs, accs, totals = [], [], []
    while True:
        try:
            cost, acc, total = exe.run(program=program, fetch_list=fetches)
            costs.extend(cost * total)
            accs.extend(acc * total)
            totals.extend(total)
        except fluid.core.EOFException:
            py_reader.reset()
            break
    print("[eval] ave loss: %f, ave acc: %f" % (np.sum(costs) / np.sum(totals), sum(accs) / sum(totals)))
    return sum(accs) / sum(totals)


def infer(exe, folder):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        py_reader, prediction = create_model("infer_reader", is_infer=True)
    main = main.clone(for_test=True)
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)

        def fits(var):
            return fluid.io.is_persistable(var) and os.path.exists(os.path.join(folder, var.name))

        fluid.io.load_vars(exe, folder, main_program=main, predicate=fits)
        texts = paddle.batch(lambda: (each[:1] for each in reader(3, 12)()), batch_size=5)
        py_reader.decorate_paddle_reader(texts)
        py_reader.start()
        found = []
        try:
            while True:
                (rows,) = exe.run(main, fetch_list=[prediction.name], return_numpy=True)
                found += rows.argmax(axis=1).tolist()
        except fluid.core.EOFException:
            py_reader.reset()
    return sum(int(label == each[1]) for label, each in zip(found, reader(3, 12)()))


def main():
    startup, train_program, test_program = fluid.Program(), fluid.Program(), fluid.Program()
    startup.random_seed = train_program.random_seed = 1
    random.seed(1)  # the order of shuffle
    with fluid.program_guard(train_program, startup), fluid.unique_name.guard():
        train_reader, loss, _, acc, total = create_model("train_reader")
        fluid.optimizer.Adagrad(learning_rate=0.05).minimize(loss)
    with fluid.program_guard(test_program, startup), fluid.unique_name.guard():
        test_reader, test_loss, _, test_acc, test_total = create_model("test_reader")
    test_program = test_program.clone(for_test=True)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    train_reader.decorate_paddle_reader(
        paddle.batch(paddle.reader.shuffle(reader(1, BATCH * 15), buf_size=50), BATCH)
    )
    folder, steps = tempfile.mkdtemp(), 0
    for epoch in range(3):
        train_reader.start()
        while True:
            try:
                steps += 1
                fetches = [loss.name, acc.name, total.name] if steps % 2 else []
                values = exe.run(program=train_program, fetch_list=fetches, return_numpy=True)
                if values:
                    assert values[2][0] == BATCH and train_reader.queue.size() >= 0
                    print("loss: %f" % values[0], flush=True)
            except fluid.core.EOFException:
                train_reader.reset()
                break
        fluid.io.save_persistables(exe, folder, train_program)
        test_reader.decorate_paddle_reader(paddle.batch(reader(2 + epoch, 50), BATCH))
        right = evaluate(exe, test_program, test_reader, [test_loss.name, test_acc.name, test_total.name])
    assert right > 0.8, right
    assert infer(exe, folder) >= 9


if __name__ == "__main__":
    main()
