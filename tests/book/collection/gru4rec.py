# SPDX-License-Identifier: Apache-2.0
"""The next item of a session by a GRU; sequences are made into tensors by hand, with offsets."""

import os
import tempfile

import numpy as np

import paddle.fluid as fluid

ITEMS, HIDDEN, BATCH = 30, 16, 8


def to_lodtensor(data, place):
    lengths = [len(each) for each in data]
    offsets, at = [0], 0
    for each in lengths:
        at += each
        offsets.append(at)
    flat = np.concatenate(data, axis=0).astype("int64").reshape([-1, 1])
    res = fluid.LoDTensor()
    res.set(flat, place)
    res.set_lod([offsets])
    return res


def sessions():
    rng = np.random.RandomState(5)
    for _ in range(25):
        starts = rng.randint(0, ITEMS, BATCH)
        length = rng.randint(2, 6)  # alike within a batch, so that two trainers share out the words evenly
        yield [[(start + at) % ITEMS for at in range(length + 1)] for start in starts]


def network():
    src = fluid.layers.data(name="src_wordseq", shape=[1], dtype="int64", lod_level=1)
    dst = fluid.layers.data(name="dst_wordseq", shape=[1], dtype="int64", lod_level=1)
    emb = fluid.layers.embedding(
        input=src,
        size=[ITEMS, HIDDEN],
        param_attr=fluid.ParamAttr(initializer=fluid.initializer.Uniform(-0.1, 0.1), learning_rate=10.0),
        is_sparse=True,
    )
    gates = fluid.layers.fc(
        input=emb,
        size=HIDDEN * 3,
        param_attr=fluid.ParamAttr(initializer=fluid.initializer.Uniform(-0.1, 0.1), learning_rate=1.0),
    )
    gru = fluid.layers.dynamic_gru(
        input=gates, size=HIDDEN, param_attr=fluid.ParamAttr(initializer=fluid.initializer.Uniform(-0.1, 0.1))
    )
    fc = fluid.layers.fc(input=gru, size=ITEMS, act="softmax")
    cost = fluid.layers.cross_entropy(input=fc, label=dst)
    acc = fluid.layers.accuracy(input=fc, label=dst, k=20)
    return src, dst, fluid.layers.mean(x=cost), acc


def train(program, loss, acc, trainer, trainers):
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    for number in range(2):
        for data in sessions():
            mine = data[trainer::trainers]
            src = to_lodtensor([each[:-1] for each in mine], place)
            dst = to_lodtensor([each[1:] for each in mine], place)
            feed = {"src_wordseq": src, "dst_wordseq": dst}
            cost, recall = exe.run(program, feed=feed, fetch_list=[loss, acc])
            assert np.exp(cost[0]) > 1 and 0 <= recall[0] <= 1
            print("loss: %.6f" % float(cost), flush=True)
        if trainer == 0:
            folder = os.path.join(tempfile.mkdtemp(), "epoch_%d" % number)
            fluid.io.save_inference_model(folder, ["src_wordseq", "dst_wordseq"], [loss, acc], exe)
    exe.close()
    if trainer == 0:
        infer(folder)


def infer(folder):
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    with fluid.scope_guard(fluid.core.Scope()):
        program, _, fetches = fluid.io.load_inference_model(folder, exe)
        data = next(sessions())
        feed = {
            "src_wordseq": to_lodtensor([each[:-1] for each in data], place),
            "dst_wordseq": to_lodtensor([each[1:] for each in data], place),
        }
        para = exe.run(program, feed=feed, fetch_list=fetches, return_numpy=False)
        assert 0 <= para[1]._get_float_element(0) <= 1


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    _, _, loss, acc = network()
    fluid.optimizer.Adagrad(learning_rate=0.05).minimize(loss)
    role, trainer = os.getenv("TRAINING_ROLE"), int(os.getenv("PADDLE_TRAINER_ID", "0"))
    trainers = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
    if role is None:
        train(fluid.default_main_program(), loss, acc, 0, 1)
        return
    t = fluid.DistributeTranspiler()
    t.transpile(trainer, pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"], trainers=trainers)
    if role == "PSERVER":
        current = os.environ["PADDLE_CURRENT_ENDPOINT"]
        exe = fluid.Executor(fluid.CPUPlace())
        prog = t.get_pserver_program(current)
        exe.run(t.get_startup_program(current, prog))
        exe.run(prog)
    else:
        train(t.get_trainer_program(), loss, acc, trainer, trainers)


if __name__ == "__main__":
    main()
