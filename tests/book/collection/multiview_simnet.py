# SPDX-License-Identifier: Apache-2.0
"""Queries and titles of several views, each through an encoder that a factory makes; a pairwise margin."""

import os
import random

import numpy as np

import paddle
import paddle.fluid as fluid
import paddle.fluid.layers.nn as nn
import paddle.fluid.layers.tensor as tensor

WORDS, WIDTH, HIDDEN, BATCH, MARGIN = 50, 12, 12, 8, 0.3


class BowEncoder:
    def forward(self, emb):
        return nn.sequence_pool(input=emb, pool_type="sum")


class CNNEncoder:
    def forward(self, emb):
        return fluid.nets.sequence_conv_pool(
            input=emb,
            num_filters=WIDTH,
            filter_size=3,
            act="tanh",
            pool_type="max",
            param_attr=self.__class__.__name__,
        )


class GrnnEncoder:
    def forward(self, emb):
        gates = nn.fc(input=emb, size=WIDTH * 3, param_attr="grnn.w")
        gru = nn.dynamic_gru(input=gates, size=WIDTH, param_attr="grnn.u", bias_attr="grnn.bias")
        return nn.sequence_pool(input=gru, pool_type="max")


class SimpleEncoderFactory:
    def create(self, kind):
        return {"bow": BowEncoder, "cnn": CNNEncoder, "gru": GrnnEncoder}[kind]()


def slots(prefix, count):
    return [
        fluid.layers.data(name="%s%d" % (prefix, at), shape=[1], lod_level=1, dtype="int64")
        for at in range(count)
    ]


def samples():
    rng = np.random.RandomState(6)
    for _ in range(BATCH * 40):
        topic = rng.randint(0, 5)

        def text(of):
            return [int(each) for each in of * 10 + rng.randint(0, 10, rng.randint(1, 5))]

        other = (topic + rng.randint(1, 5)) % 5
        yield [text(topic), text(topic), text(topic), text(topic), text(other), text(other)]


def network():
    factory = SimpleEncoderFactory()
    q, pt, nt = slots("q", 2), slots("pt", 2), slots("nt", 2)
    emb = [
        [fluid.layers.embedding(each, size=[WORDS, WIDTH], param_attr="emb") for each in side]
        for side in (q, pt, nt)
    ]
    kinds = ["cnn", "gru"]
    hidden = []
    for side, name in zip(emb, ["query_hid", "title_hid", "title_hid"]):
        views = nn.concat([factory.create(kind).forward(each) for kind, each in zip(kinds, side)])
        hidden.append(nn.fc(views, size=HIDDEN, param_attr=name, bias_attr=name + ".b"))
    cos_pos, cos_neg = nn.cos_sim(hidden[0], hidden[1]), nn.cos_sim(hidden[0], hidden[2])
    zeros = tensor.fill_constant_batch_size_like(input=cos_neg, shape=[-1, 1], value=0.0, dtype="float32")
    margin = tensor.fill_constant_batch_size_like(input=cos_neg, shape=[-1, 1], value=MARGIN, dtype="float32")
    loss = nn.mean(
        nn.elementwise_max(zeros, nn.elementwise_sub(nn.elementwise_add(margin, cos_neg), cos_pos))
    )
    correct = nn.reduce_sum(tensor.cast(fluid.layers.less_than(cos_neg, cos_pos), dtype="float32"))
    return q + pt + nt, loss, correct


def transpiled(role, trainer):
    """Return whether this process trains, after making the programs of its place; a server serves first."""
    config = fluid.DistributeTranspilerConfig()
    if not os.getenv("PADDLE_PSERVERS_IP_PORT_LIST"):
        config.mode = "nccl2"
        ranks, own = os.environ["PADDLE_TRAINER_ENDPOINTS"], os.environ["PADDLE_CURRENT_ENDPOINT"]
        fluid.DistributeTranspiler(config=config).transpile(trainer, trainers=ranks, current_endpoint=own)
        return True
    is_sync = os.getenv("ASYNCHRONOUS") is None
    t = fluid.DistributeTranspiler(config=config)
    servers, trainers = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"], int(os.environ["PADDLE_TRAINERS_NUM"])
    t.transpile(trainer, pservers=servers, trainers=trainers, sync_mode=is_sync)
    if role == "TRAINER":
        t.get_trainer_program()
        return True
    exe = fluid.Executor(fluid.CPUPlace())
    prog, startup = t.get_pserver_programs(os.environ["PADDLE_CURRENT_ENDPOINT"])
    exe.run(startup)
    exe.run(prog)
    return False


def main():
    fluid.default_startup_program().random_seed = 1
    random.seed(1)  # the order of shuffle
    fluid.default_main_program().random_seed = 1
    slot_list, loss, correct = network()
    infer_program = fluid.default_main_program().clone()
    fluid.optimizer.Adam(learning_rate=5e-3).minimize(loss)
    place = fluid.CPUPlace()
    role, trainer = os.getenv("TRAINING_ROLE"), int(os.getenv("PADDLE_TRAINER_ID", "0"))
    trainers = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
    if trainers > 1 and not transpiled(role, trainer):
        return
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    run = exe.run
    if trainers > 1 and not os.getenv("PADDLE_PSERVERS_IP_PORT_LIST"):
        run = fluid.ParallelExecutor(False, loss.name, num_trainers=trainers, trainer_id=trainer).run

    reader = paddle.batch(paddle.reader.shuffle(samples, buf_size=BATCH * 2), BATCH)
    feeder = fluid.DataFeeder(feed_list=slot_list, place=place)
    for _ in range(2):
        for data in reader():
            mine = data[trainer::trainers]
            value, right = run(feed=feeder.feed(mine), fetch_list=[loss.name, correct.name])
            print("loss: %f" % value[0], flush=True)
    names = [each.name for each in slot_list]
    infer_feeder = fluid.DataFeeder(program=infer_program, feed_list=names, place=place)
    (right,) = exe.run(infer_program, feed=infer_feeder.feed(data), fetch_list=[correct.name])
    assert float(right) / len(data) > 0.5
    exe.close()


if __name__ == "__main__":
    main()
