# SPDX-License-Identifier: Apache-2.0
"""Attention over a user's history that is padded per batch and declared as long as the longest of all."""

import os

import numpy as np

import paddle.fluid as fluid

ITEMS, CATS, LONGEST, BATCH = 40, 8, 43, 8


def batches(trainer, trainers):
    rng = np.random.RandomState(2)
    for _ in range(20):
        length = rng.randint(1, 10)
        hist = rng.randint(1, ITEMS, (BATCH, length))
        target = rng.randint(1, ITEMS, BATCH)
        label = (hist[:, 0] % 2 == target % 2).astype("float32")
        rows = []
        for h, t, y in list(zip(hist, target, label))[trainer::trainers]:
            mask = np.zeros([length, 1]).astype("float32")
            seq = np.full((length, 1), t)
            column = h.reshape([length, 1])
            rows.append((column, column % CATS, mask, seq, seq % CATS, str(t), str(t % CATS), [y]))
        yield rows


def network():
    def seq(name, dtype="int64"):
        return fluid.layers.data(name=name, shape=[LONGEST, 1], dtype=dtype)

    hist_item, hist_cat = seq("hist_item_seq"), seq("hist_cat_seq")
    target_items, target_cats = seq("target_item_seq"), seq("target_cat_seq")
    mask = seq("mask", "float32")
    item = fluid.layers.data(name="target_item", shape=[1], dtype="int64")
    cat = fluid.layers.data(name="target_cat", shape=[1], dtype="int64")
    label = fluid.layers.data(name="label", shape=[1], dtype="float32")

    def embed(ids, size, name):
        return fluid.layers.embedding(input=ids, size=[size, 8], param_attr=name, is_sparse=False)

    item_b = fluid.layers.embedding(
        input=item, size=[ITEMS, 1], param_attr=fluid.initializer.Constant(value=0.0), is_sparse=False
    )
    hist = fluid.layers.concat([embed(hist_item, ITEMS, "item"), embed(hist_cat, CATS, "cat")], axis=2)
    tseq = fluid.layers.concat([embed(target_items, ITEMS, "item"), embed(target_cats, CATS, "cat")], axis=2)
    target = fluid.layers.concat([embed(item, ITEMS, "item"), embed(cat, CATS, "cat")], axis=1)
    both = fluid.layers.concat([hist, tseq, hist - tseq, hist * tseq], axis=2)
    att = fluid.layers.fc(
        both, size=16, act="sigmoid", num_flatten_dims=2, param_attr="att1_w", bias_attr="att1_b"
    )
    att = fluid.layers.fc(att, size=1, num_flatten_dims=2, param_attr="att2_w", bias_attr="att2_b")
    att += mask
    weight = fluid.layers.softmax(
        fluid.layers.scale(fluid.layers.transpose(att, perm=[0, 2, 1]), scale=16**-0.5)
    )
    out = fluid.layers.reshape(fluid.layers.matmul(weight, hist), shape=[0, 16])
    out = fluid.layers.fc(fluid.layers.concat([out, target], axis=1), size=16, act="sigmoid", name="dense")
    logit = fluid.layers.fc(out, size=1, name="last") + item_b
    loss = fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(x=logit, label=label))
    names = "hist_item_seq hist_cat_seq mask target_item_seq target_cat_seq target_item target_cat label"
    return loss, names.split(), logit


def train(program, loss, names, trainer, trainers):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(feed_list=names, place=fluid.CPUPlace())
    for _ in range(3):
        for rows in batches(trainer, trainers):
            results = exe.run(program, feed=feeder.feed(rows), fetch_list=[loss], return_numpy=True)
            print("loss: %.6f" % results[0][0], flush=True)
    exe.close()


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    loss, names, _ = network()
    fluid.clip.set_gradient_clip(clip=fluid.clip.GradientClipByGlobalNorm(clip_norm=5.0))
    rate = fluid.layers.piecewise_decay(boundaries=[40], values=[0.85, 0.2])
    fluid.optimizer.SGD(learning_rate=rate).minimize(loss)
    role, trainer = os.getenv("TRAINING_ROLE"), int(os.getenv("PADDLE_TRAINER_ID", "0"))
    trainers = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
    if role is None:
        train(fluid.default_main_program(), loss, names, 0, 1)
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
        train(t.get_trainer_program(), loss, names, trainer, trainers)


if __name__ == "__main__":
    main()
