# SPDX-License-Identifier: Apache-2.0
"""Texts near their tags, with the layers' modules imported by name; only the text's side is saved."""

import os
import tempfile

import numpy as np

import paddle.fluid as fluid
import paddle.fluid.layers.control_flow as cf
import paddle.fluid.layers.io as io
import paddle.fluid.layers.nn as nn
import paddle.fluid.layers.tensor as tensor

WORDS, TAGS, WIDTH, BATCH, MARGIN = 40, 8, 12, 8, 0.1


def batches(trainer, trainers):
    rng = np.random.RandomState(4)
    for _ in range(40):
        tags = rng.randint(0, TAGS, (BATCH, 1))
        texts = tags * 5 + rng.randint(0, 5, (BATCH, 6))
        wrong = (tags + rng.randint(1, TAGS, (BATCH, 1))) % TAGS
        yield texts[trainer::trainers], tags[trainer::trainers], wrong[trainer::trainers]


def as_sequences(rows, place):
    return fluid.create_lod_tensor(rows.reshape(-1, 1).astype("int64"), [[rows.shape[1]] * len(rows)], place)


def network():
    text = io.data(name="text", shape=[1], lod_level=1, dtype="int64")
    pos_tag = io.data(name="pos_tag", shape=[1], lod_level=1, dtype="int64")
    neg_tag = io.data(name="neg_tag", shape=[1], lod_level=1, dtype="int64")
    text_emb = nn.embedding(input=text, size=[WORDS, WIDTH], param_attr="text_emb")
    pos_emb = nn.embedding(input=pos_tag, size=[TAGS, WIDTH], param_attr="tag_emb")
    neg_emb = nn.embedding(input=neg_tag, size=[TAGS, WIDTH], param_attr="tag_emb")
    conv = fluid.nets.sequence_conv_pool(
        input=text_emb,
        num_filters=WIDTH,
        filter_size=3,
        act="tanh",
        pool_type="max",
        param_attr="cnn",
    )
    text_hid = fluid.layers.fc(input=conv, size=WIDTH, param_attr="text_hid")
    cos_pos = nn.cos_sim(fluid.layers.sequence_pool(pos_emb, "sum"), text_hid)
    mul_text = fluid.layers.sequence_expand_as(x=text_hid, y=neg_emb)
    cos_neg = nn.cos_sim(neg_emb, mul_text)
    worst = fluid.layers.reshape(fluid.layers.sequence_pool(cos_neg, "max"), [-1, 1])
    zeros = tensor.fill_constant_batch_size_like(input=worst, shape=[-1, 1], value=0.0, dtype="float32")
    margin = tensor.fill_constant_batch_size_like(input=worst, shape=[-1, 1], value=MARGIN, dtype="float32")
    hinge = nn.elementwise_max(zeros, nn.elementwise_sub(nn.elementwise_add(margin, worst), cos_pos))
    correct = nn.reduce_sum(tensor.cast(cf.less_than(worst, cos_pos), dtype="float32"))
    return nn.mean(hinge), correct, cos_pos


def train(loss, correct, cos_pos, trainer, trainers):
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    for _ in range(3):
        for rows in batches(trainer, trainers):
            feed = dict(zip(["text", "pos_tag", "neg_tag"], [as_sequences(each, place) for each in rows]))
            value, right = exe.run(feed=feed, fetch_list=[loss, correct])
            assert 0 <= float(right) <= BATCH
            print("loss: %f" % value[0], flush=True)
    if trainer == 0:
        folder = tempfile.mkdtemp()
        fluid.io.save_inference_model(folder, ["text", "pos_tag"], cos_pos, exe)
        with fluid.scope_guard(fluid.Scope()):
            program, feeds, fetches = fluid.io.load_inference_model(folder, exe)
            assert feeds == ["text", "pos_tag"]
            (near,) = exe.run(program, {name: feed[name] for name in feeds}, fetches, return_numpy=False)
            assert np.array(near).shape[1] == 1
    exe.close()


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    loss, correct, cos_pos = network()
    fluid.optimizer.Adagrad(learning_rate=0.1).minimize(loss)
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
    train(loss, correct, cos_pos, trainer, trainers)


if __name__ == "__main__":
    main()
