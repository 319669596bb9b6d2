# SPDX-License-Identifier: Apache-2.0
"""Sessions against items: encoders by string names; users are compared with all items after training."""

import os

import numpy as np

import paddle.fluid as fluid
import paddle.fluid.layers as layers

ITEMS, WIDTH, HIDDEN, BATCH = 24, 12, 12, 8


def batches(trainer, trainers):
    rng = np.random.RandomState(7)
    for _ in range(40):
        kinds = rng.randint(0, 4, BATCH)
        rows = []
        for kind in kinds:
            session = [int(each) for each in kind * 6 + rng.randint(0, 6, 4)]
            wrong = ((kind + rng.randint(1, 4)) % 4) * 6 + rng.randint(0, 6)
            rows.append((session, [int(kind * 6 + rng.randint(0, 6))], [int(wrong)]))
        yield rows[trainer::trainers]


def user_side(user):
    emb = layers.embedding(input=user, size=[ITEMS, WIDTH], param_attr="emb.item")
    gates = layers.fc(input=emb, size=HIDDEN * 3, param_attr="gru.proj_w", bias_attr="gru.proj_b")
    gru = layers.dynamic_gru(input=gates, size=HIDDEN, param_attr="gru.w", bias_attr="gru.b")
    last = layers.sequence_pool(input=gru, pool_type="max")
    return layers.fc(input=last, size=HIDDEN, param_attr="user.w", bias_attr="user.b")


def item_side(item):
    return layers.embedding(input=item, size=[ITEMS, WIDTH], param_attr="emb.item")


def as_item(emb):
    return layers.fc(input=emb, size=HIDDEN, param_attr="item.w", bias_attr="item.b")


def network():
    user = layers.data(name="user", shape=[1], dtype="int64", lod_level=1)
    pos = layers.data(name="p_item", shape=[1], dtype="int64", lod_level=1)
    neg = layers.data(name="n_item", shape=[1], dtype="int64", lod_level=1)
    u = user_side(user)
    p = as_item(layers.sequence_pool(item_side(pos), "sum"))
    n = as_item(layers.sequence_pool(item_side(neg), "sum"))
    cos_pos, cos_neg = layers.cos_sim(p, u), layers.cos_sim(n, u)
    hinge = layers.elementwise_max(
        layers.fill_constant_batch_size_like(cos_neg, [-1, 1], "float32", 0.0), 0.1 + cos_neg - cos_pos
    )
    return layers.mean(hinge), layers.mean(layers.cast(layers.less_than(cos_neg, cos_pos), "float32"))


def infer(exe):
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        user = layers.data(name="user", shape=[1], dtype="int64", lod_level=1)
        every = layers.data(name="all_item", shape=[ITEMS, 1], dtype="int64")
        u = user_side(user)
        items = as_item(layers.reshape(item_side(every), shape=[-1, WIDTH]))
        users = layers.reshape(
            layers.expand(layers.unsqueeze(u, axes=[1]), expand_times=[1, ITEMS, 1]), [-1, HIDDEN]
        )
        scores = layers.reshape(layers.cos_sim(users, items), shape=[-1, ITEMS])
        _, best = layers.topk(scores, k=3)
    sessions = [[0, 1], [13, 14, 15]]
    feed = {
        "user": fluid.create_lod_tensor(np.concatenate(sessions)[:, None], [[2, 3]], fluid.CPUPlace()),
        "all_item": np.tile(np.arange(ITEMS).reshape(1, ITEMS, 1), (2, 1, 1)),
    }
    (found,) = exe.run(program, feed=feed, fetch_list=[best], return_numpy=False)
    assert np.array(found).shape == (2, 3)


def train(loss, acc, trainer, trainers):
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=["user", "p_item", "n_item"], place=place)
    for _ in range(2):
        for rows in batches(trainer, trainers):
            value, part = exe.run(feed=feeder.feed(rows), fetch_list=[loss, acc])
            print("loss: %f" % value, flush=True)
    if trainer == 0:
        infer(exe)
    exe.close()


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    loss, acc = network()
    fluid.optimizer.Adam(learning_rate=0.01).minimize(loss)
    role, trainer = os.getenv("TRAINING_ROLE"), int(os.getenv("PADDLE_TRAINER_ID", "0"))
    trainers = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
    if role is not None:
        t = fluid.DistributeTranspiler()
        t.transpile(trainer, pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"], trainers=trainers)
        if role == "PSERVER":
            current = os.environ["PADDLE_CURRENT_ENDPOINT"]
            exe = fluid.Executor(fluid.CPUPlace())
            prog = t.get_pserver_program(current)
            exe.run(t.get_startup_program(current, prog))
            exe.run(prog)
            return
        t.get_trainer_program()
    train(loss, acc, trainer, trainers)


if __name__ == "__main__":
    main()
