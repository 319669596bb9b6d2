# SPDX-License-Identifier: Apache-2.0
"""The next item of a session against sampled others, by a Bayesian ranking; the saved parameters search all items."""

import os
import tempfile

import numpy as np

import paddle.fluid as fluid

ITEMS, HIDDEN, BATCH, NEGATIVES = 30, 16, 8, 10


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


def sampled(data):
    """Return for each place of each session the right item, then others."""
    rng = np.random.RandomState(sum(map(sum, data)) % 1000)
    return [[[each, *rng.randint(0, ITEMS, NEGATIVES)] for each in session[1:]] for session in data]


def encoder(src):
    emb = fluid.layers.embedding(
        input=src,
        size=[ITEMS, HIDDEN],
        param_attr=fluid.ParamAttr(
            name="emb", initializer=fluid.initializer.XavierInitializer(), learning_rate=1.0
        ),
        is_sparse=True,
    )
    gates = fluid.layers.fc(
        input=emb,
        name="gru_fc",
        size=HIDDEN * 3,
        param_attr=fluid.ParamAttr(initializer=fluid.initializer.XavierInitializer()),
    )
    return fluid.layers.dynamic_gru(
        input=gates,
        size=HIDDEN,
        param_attr=fluid.ParamAttr(name="dy_gru.param", initializer=fluid.initializer.Xavier()),
        bias_attr="dy_gru.bias",
    )


def network(neg_size=NEGATIVES):
    src = fluid.layers.data(name="src", shape=[1], dtype="int64", lod_level=1)
    label = fluid.layers.data(name="label", shape=[neg_size + 1], dtype="int64", lod_level=1)
    # where the right item is among the sampled ones
    pos_label = fluid.layers.data(name="pos_label", shape=[1], dtype="int64", lod_level=1)
    hidden = encoder(src)
    each_label = fluid.layers.sequence_reshape(input=label, new_dim=1)
    label_emb = fluid.layers.embedding(
        input=each_label, size=[ITEMS, HIDDEN], param_attr="emb", is_sparse=True
    )
    label_emb = fluid.layers.sequence_reshape(input=label_emb, new_dim=HIDDEN * (neg_size + 1))
    wide = fluid.layers.expand(x=hidden, expand_times=[1, neg_size + 1])
    products = fluid.layers.elementwise_mul(x=wide, y=label_emb)
    products = fluid.layers.sequence_reshape(input=products, new_dim=HIDDEN)
    scores = fluid.layers.reduce_sum(input=products, dim=1, keep_dim=True)
    scores = fluid.layers.sequence_reshape(input=scores, new_dim=neg_size + 1)
    cost = fluid.layers.bpr_loss(input=scores, label=pos_label)
    acc = fluid.layers.accuracy(input=scores, label=pos_label, k=1)
    return src, label, fluid.layers.reduce_mean(cost), acc


def train(program, loss, acc, trainer, trainers):
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    folder = tempfile.mkdtemp()
    for number in range(3):
        for data in sessions():
            labels = sampled(data)[trainer::trainers]
            mine = data[trainer::trainers]
            offsets = [0, *np.cumsum([len(each) for each in labels]).tolist()]
            label = fluid.LoDTensor()
            label.set(np.concatenate(labels).astype("int64"), place)
            label.set_lod([offsets])
            feed = {
                "src": to_lodtensor([each[:-1] for each in mine], place),
                "pos_label": to_lodtensor([[0] * len(each) for each in labels], place),
                "label": label,
            }
            cost, part = exe.run(program, feed=feed, fetch_list=[loss, acc])
            assert 0 <= part[0] <= 1
            print("loss: %.6f" % np.mean(cost), flush=True)
        if trainer == 0:
            fluid.io.save_params(executor=exe, dirname=os.path.join(folder, "epoch_%d" % number))
    exe.close()
    if trainer == 0 and trainers == 1:
        infer(os.path.join(folder, "epoch_%d" % number))


def infer(folder):
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        src = fluid.layers.data(name="src", shape=[1], dtype="int64", lod_level=1)
        last = fluid.layers.sequence_last_step(input=encoder(src))
        every = fluid.layers.data(name="all_label", shape=[ITEMS, 1], dtype="int64", append_batch_size=False)
        rows = fluid.layers.embedding(input=every, size=[ITEMS, HIDDEN], param_attr="emb")
        label = fluid.layers.data(name="label", shape=[1], dtype="int64")
        scores = fluid.layers.matmul(x=last, y=rows, transpose_y=True)
        acc = fluid.layers.accuracy(input=scores, label=label, k=5)
        exe.run(startup)
        fluid.io.load_params(executor=exe, dirname=folder, main_program=main)
        data = next(sessions())
        feed = {
            "src": to_lodtensor([each[:-1] for each in data], place),
            "all_label": np.arange(ITEMS).reshape(ITEMS, 1),
            "label": np.array([[each[-1]] for each in data]),
        }
        (found,) = exe.run(main, feed=feed, fetch_list=[acc], return_numpy=False)
        print("recall at 5: %.3f" % found._get_float_element(0))
        assert found._get_float_element(0) > 0.5


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
