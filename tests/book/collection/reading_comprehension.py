# SPDX-License-Identifier: Apache-2.0
"""Questions and passages: DynamicRNN over words with a static question, softmax over sequences, soft labels."""

import numpy as np

import paddle.fluid as fluid
import paddle.fluid.layers as layers

WORDS, WIDTH, BATCH = 30, 8, 4


def batches():
    rng = np.random.RandomState(16)
    for _ in range(25):
        rows = []
        for _ in range(BATCH):
            passage = list(rng.permutation(WORDS)[: rng.randint(4, 8)])
            place = rng.randint(0, len(passage))
            question = [int(passage[place])] * rng.randint(1, 3)
            start = [[1.0 if at == place else 0.0] for at in range(len(passage))]
            rows.append((question, [int(each) for each in passage], start))
        yield rows


def encode(ids, name):
    emb = layers.embedding(
        input=ids, size=[WORDS, WIDTH], dtype="float32", param_attr=fluid.ParamAttr(name="emb")
    )

    def one(reverse):
        gates = layers.fc(input=emb, size=WIDTH * 4, name=name + "_fc_" + str(reverse), bias_attr=False)
        hidden, _ = layers.dynamic_lstm(input=gates, size=WIDTH * 4, use_peepholes=False, is_reverse=reverse)
        return hidden

    return layers.concat(input=[one(False), one(True), emb], axis=1)


def match(passage, question):
    drnn = layers.DynamicRNN()
    with drnn.block():
        word = drnn.step_input(passage)
        asked = drnn.static_input(question)
        memory = drnn.memory(shape=[WIDTH], value=0.0)
        expanded = layers.sequence_expand(x=layers.fc([word, memory], size=WIDTH, bias_attr=False), y=asked)
        mixed = layers.tanh(layers.fc(asked, size=WIDTH, bias_attr=False) + expanded)
        weights = layers.sequence_softmax(input=layers.fc(mixed, size=1, bias_attr=False))
        pooled = layers.sequence_pool(
            input=layers.elementwise_mul(x=asked, y=layers.reshape(x=weights, shape=[-1]), axis=0),
            pool_type="sum",
        )
        hidden = layers.fc([word, pooled, memory], size=WIDTH, act="tanh")
        drnn.update_memory(memory, hidden)
        drnn.output(hidden)
    return drnn()


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    q_ids = layers.data(name="q_ids", shape=[1], dtype="int64", lod_level=1)
    p_ids = layers.data(name="p_ids", shape=[1], dtype="int64", lod_level=1)
    start_labels = layers.data(name="start_lables", shape=[1], dtype="float32", lod_level=1)
    matched = match(encode(p_ids, "p"), encode(q_ids, "q"))
    logits = layers.fc(matched, size=1, bias_attr=False)
    start = layers.lod_reset(layers.sequence_softmax(logits), y=start_labels)
    picked = layers.elementwise_mul(layers.log(start + 1e-8), start_labels, axis=0)
    cost = layers.mean(layers.scale(layers.sequence_pool(picked, "sum"), scale=-1.0))
    cost.persistable = True
    all_parameters = fluid.default_main_program().block(0).all_parameters()
    decay = layers.sums([layers.reduce_sum(layers.square(each)) for each in all_parameters])
    obj = cost + 1e-5 * decay / 2
    fluid.optimizer.Adam(learning_rate=0.02).minimize(obj)
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    table = np.random.RandomState(0).rand(WORDS, WIDTH).astype("float32")
    fluid.global_scope().find_var("emb").get_tensor().set(table, place)
    feed_list = [
        fluid.default_main_program().global_block().var(name) for name in ("q_ids", "p_ids", "start_lables")
    ]
    feeder = fluid.DataFeeder(feed_list, place)
    pe = fluid.ParallelExecutor(use_cuda=False, loss_name=obj.name)
    for _ in range(4):
        for rows in batches():
            feeds = list(feeder.feed_parallel([rows], 1))
            value, starts = pe.run(feed=feeds, fetch_list=[obj.name, start.name], return_numpy=False)
            print("loss: %f" % np.array(value).mean(), flush=True)
    assert starts.lod()[0][-1] == np.array(starts).shape[0]


if __name__ == "__main__":
    main()
