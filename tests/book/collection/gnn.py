# SPDX-License-Identifier: Apache-2.0
"""Sessions as graphs: fixed declared sizes, batches with as many nodes as they have, int32 indices, py_reader."""

import numpy as np

import paddle.fluid as fluid
import paddle.fluid.layers as layers

ITEMS, HIDDEN, BATCH, NODES, STEPS = 12, 8, 6, 7, 1


def batches():
    rng = np.random.RandomState(8)
    for _ in range(25):
        length = rng.randint(2, 5)
        sessions = (rng.randint(0, ITEMS, (BATCH, 1)) + np.arange(length + 1)) % ITEMS
        unique = [np.unique(each[:-1]) for each in sessions]
        most = max(map(len, unique))
        items = np.zeros((BATCH, most, 1), "int64")
        seq = np.zeros((BATCH, length), "int32")
        adj_in, adj_out = np.zeros((2, BATCH, most, most), "float32")
        for at, (session, nodes) in enumerate(zip(sessions, unique)):
            items[at, : len(nodes), 0] = nodes + 1
            places = np.searchsorted(nodes, session[:-1])
            seq[at] = places + at * most
            for here, there in zip(list(places)[:-1], places[1:]):
                adj_out[at, here, there] = adj_in[at, there, here] = 1.0
        last = (seq[:, -1]).astype("int32")
        mask = np.ones((BATCH, length, 1), "float32")
        yield items, seq, last, adj_in, adj_out, mask, (sessions[:, -1:] + 1).astype("int64")


def network():
    def data(name, shape, dtype):
        return layers.data(name=name, shape=shape, dtype=dtype, append_batch_size=False)

    feed = [
        data("items", [BATCH, NODES, 1], "int64"),
        data("seq_index", [BATCH, NODES], "int32"),
        data("last_index", [BATCH], "int32"),
        data("adj_in", [BATCH, NODES, NODES], "float32"),
        data("adj_out", [BATCH, NODES, NODES], "float32"),
        data("mask", [BATCH, -1, 1], "float32"),
        data("label", [BATCH, 1], "int64"),
    ]
    reader = layers.create_py_reader_by_data(
        capacity=16, feed_list=feed, name="py_reader", use_double_buffer=False
    )
    items, seq_index, last_index, adj_in, adj_out, mask, label = layers.read_file(reader)
    uniform = fluid.initializer.Uniform(low=-0.35, high=0.35)
    state = layers.embedding(
        input=items, param_attr=fluid.ParamAttr(name="emb", initializer=uniform), size=[ITEMS + 1, HIDDEN]
    )
    for _ in range(STEPS):
        into = layers.fc(state, HIDDEN, num_flatten_dims=2, name="state_in", act=None)
        out = layers.fc(state, HIDDEN, num_flatten_dims=2, name="state_out", act=None)
        gate = layers.concat([layers.matmul(adj_in, into), layers.matmul(adj_out, out)], axis=2)
        gate = layers.reshape(gate, shape=[-1, 2 * HIDDEN])
        gate = layers.fc(gate, HIDDEN * 3, name="gru_fc", bias_attr=False)
        hidden, _, _ = layers.gru_unit(
            input=gate, hidden=layers.reshape(state, shape=[-1, HIDDEN]), size=3 * HIDDEN
        )
    final = hidden
    seq = layers.gather(final, layers.reshape(seq_index, shape=[-1]))
    last = layers.gather(final, last_index)
    seq = layers.reshape(seq, shape=[BATCH, -1, HIDDEN])
    seq_fc = layers.fc(seq, HIDDEN, num_flatten_dims=2, bias_attr=False)
    last_fc = layers.fc(last, HIDDEN, bias_attr=False, num_flatten_dims=1)
    both = layers.elementwise_add(layers.transpose(seq_fc, perm=[1, 0, 2]), last_fc)
    bias = layers.create_parameter(
        shape=[HIDDEN], dtype="float32", default_initializer=fluid.initializer.Constant(value=0.0)
    )
    both = layers.sigmoid(layers.transpose(layers.elementwise_add(both, bias), perm=[1, 0, 2]))
    weight = layers.fc(both, 1, num_flatten_dims=2, bias_attr=False)
    weight *= mask
    attention = layers.reduce_sum(layers.elementwise_mul(seq, weight, axis=0), dim=1)
    final = layers.fc(layers.concat([attention, last], axis=1), HIDDEN, bias_attr=False)
    vocab = layers.create_global_var(
        shape=[ITEMS, 1], value=0, dtype="int64", persistable=True, name="all_vocab"
    )
    every = layers.embedding(input=vocab, param_attr=fluid.ParamAttr(name="emb"), size=[ITEMS + 1, HIDDEN])
    logits = layers.matmul(x=final, y=every, transpose_y=True)
    loss = layers.reduce_mean(layers.softmax_with_cross_entropy(logits, label - 1))
    acc = layers.accuracy(input=logits, label=label - 1, k=3)
    return loss, acc, reader, [each.name for each in feed]


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    loss, acc, reader, names = network()
    rate = layers.exponential_decay(learning_rate=0.05, decay_steps=50, decay_rate=0.9)
    decay = fluid.regularizer.L2DecayRegularizer(regularization_coeff=1e-5)
    fluid.optimizer.Adam(learning_rate=rate, regularization=decay).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    vocab = fluid.global_scope().var("all_vocab").get_tensor()
    vocab.set(np.arange(1, ITEMS + 1).astype("int64").reshape((-1, 1)), fluid.CPUPlace())
    reader.decorate_tensor_provider(lambda: iter(batches()))
    total = 0.0
    for _ in range(4):
        reader.start()
        try:
            while True:
                value, part = exe.run(fetch_list=[loss.name, acc.name])
                total += part
                print("loss: %.4f" % value, flush=True)
        except fluid.core.EOFException:
            reader.reset()
    assert total > 0


if __name__ == "__main__":
    main()
