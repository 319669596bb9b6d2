# SPDX-License-Identifier: Apache-2.0

"""Chapter 6 of Fluid's book: what reviewers think, by convolutions or by the steps of a DynamicRNN."""

import argparse

import numpy
import roles

import paddle
import paddle.fluid as fluid

EMB_DIM = 32
SEQ_LEN = 40
BATCH_SIZE = 32


def convolution_net(data, dict_dim):
    emb = fluid.layers.embedding(input=data, size=[dict_dim, EMB_DIM], is_sparse=True)
    conv_3 = fluid.nets.sequence_conv_pool(emb, num_filters=32, filter_size=3, act="tanh", pool_type="max")
    conv_4 = fluid.nets.sequence_conv_pool(emb, num_filters=32, filter_size=4, act="tanh", pool_type="max")
    return fluid.layers.fc(input=[conv_3, conv_4], size=2, act="softmax")


def dyn_rnn_net(data, dict_dim):
    emb = fluid.layers.embedding(input=data, size=[dict_dim, EMB_DIM], is_sparse=True)
    sentence = fluid.layers.fc(input=emb, size=32, act="tanh")
    boot = fluid.layers.fc(input=fluid.layers.sequence_pool(emb, "average"), size=32, act="tanh")
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(sentence)
        prev_hidden = rnn.memory(init=boot, need_reorder=True)
        prev_cell = rnn.memory(value=0.0, shape=[32])
        gates = fluid.layers.fc(input=[word, prev_hidden], size=96, act="sigmoid")
        forget_gate, input_gate, output_gate = fluid.layers.split(gates, 3, dim=1)
        cell_gate = fluid.layers.fc(input=[word, prev_hidden], size=32, act="tanh")
        cell = fluid.layers.sums(
            [
                fluid.layers.elementwise_mul(forget_gate, prev_cell),
                fluid.layers.elementwise_mul(input_gate, cell_gate),
            ]
        )
        hidden = fluid.layers.elementwise_mul(output_gate, fluid.layers.tanh(cell))
        rnn.update_memory(prev_cell, cell)
        rnn.update_memory(prev_hidden, hidden)
        rnn.output(hidden)
    last = fluid.layers.sequence_pool(rnn(), "max")
    return fluid.layers.fc(input=last, size=2, act="softmax")


NETS = {"conv": convolution_net, "dyn_rnn": dyn_rnn_net}
arguments = argparse.ArgumentParser()
arguments.add_argument("--net", choices=NETS, default="conv")
net = arguments.parse_args().net


def cut(reader):
    """The end of a review, where reviewers sum up; one step for each word makes long ones long."""
    if net == "conv":
        return reader
    return lambda: ((words[-SEQ_LEN:], label) for words, label in reader() if len(words) >= SEQ_LEN)


fluid.default_startup_program().random_seed = 7
word_dict = paddle.dataset.imdb.build_dict(r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$", 15)
data = fluid.layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
label = fluid.layers.data(name="label", shape=[1], dtype="int64")
prediction = NETS[net](data, len(word_dict))
cost = fluid.layers.cross_entropy(input=prediction, label=label)
avg_cost = fluid.layers.mean(cost)
acc_out = fluid.layers.accuracy(input=prediction, label=label)
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.Adagrad(learning_rate=0.02).minimize(avg_cost)

place = fluid.CPUPlace()
exe = fluid.Executor(place)


def train_loop(main_program):
    feeder = fluid.DataFeeder(feed_list=[data, label], place=place)
    reviews = paddle.reader.shuffle(roles.mine(cut(paddle.dataset.imdb.train(word_dict))), buf_size=2000)
    train_data = paddle.batch(reviews, batch_size=BATCH_SIZE)
    compiled = fluid.CompiledProgram(main_program).with_data_parallel(loss_name=avg_cost.name)
    for pass_id in range(2 * roles.trainers):
        for batch in train_data():
            if len(batch) < BATCH_SIZE:
                break
            cost_val, acc_val = exe.run(compiled, feed=feeder.feed(batch), fetch_list=[avg_cost, acc_out])
        print("cost=" + str(cost_val) + " acc=" + str(acc_val), pass_id)
    if roles.export(exe, main_program, ["words"], [prediction], test_program):
        infer()


def infer():
    samples = list(cut(paddle.dataset.imdb.test(word_dict))())
    fed = fluid.create_lod_tensor(
        [words for words, _ in samples], [[len(words) for words, _ in samples]], place
    )
    with fluid.scope_guard(fluid.core.Scope()):
        [program, feed_names, fetch_targets] = fluid.io.load_inference_model("output/model", exe)
        results = exe.run(program, feed={feed_names[0]: fed}, fetch_list=fetch_targets, return_numpy=False)
    right = numpy.array(results[0]).argmax(1) == [label for _, label in samples]
    print(f"REACHED accuracy {right.mean():.4f}")


roles.run(exe, train_loop)
