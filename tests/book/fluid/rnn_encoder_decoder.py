# SPDX-License-Identifier: Apache-2.0
"""The chapter before attention: an LSTM to and fro reads a sentence, another writes it from the last state alone."""

import numpy
import roles

import paddle
import paddle.fluid as fluid
from paddle.dataset import wmt14

DICT_SIZE = 30
EMBEDDING_DIM = 16
ENCODER_SIZE = DECODER_SIZE = 48
BATCH_SIZE = 40
USE_PEEPHOLES = False


def bi_lstm_encoder(input_seq, gate_size):
    input_forward_proj = fluid.layers.fc(input=input_seq, size=gate_size * 4, bias_attr=False)
    forward, _ = fluid.layers.dynamic_lstm(
        input=input_forward_proj, size=gate_size * 4, use_peepholes=USE_PEEPHOLES
    )
    input_reversed_proj = fluid.layers.fc(input=input_seq, size=gate_size * 4, bias_attr=False)
    backward, _ = fluid.layers.dynamic_lstm(
        input=input_reversed_proj, size=gate_size * 4, is_reverse=True, use_peepholes=USE_PEEPHOLES
    )
    encoded = [fluid.layers.sequence_last_step(forward), fluid.layers.sequence_first_step(backward)]
    return fluid.layers.concat(input=encoded, axis=1)


def lstm_step(x_t, hidden_t_prev, cell_t_prev, size):
    def linear():
        return fluid.layers.fc(input=[hidden_t_prev, x_t], size=size)

    forget_gate = fluid.layers.sigmoid(x=linear())
    input_gate = fluid.layers.sigmoid(x=linear())
    output_gate = fluid.layers.sigmoid(x=linear())
    kept = fluid.layers.elementwise_mul(x=forget_gate, y=cell_t_prev)
    added = fluid.layers.elementwise_mul(x=input_gate, y=fluid.layers.tanh(x=linear()))
    cell_t = fluid.layers.sums(input=[kept, added])
    return fluid.layers.elementwise_mul(x=output_gate, y=fluid.layers.tanh(x=cell_t)), cell_t


def lstm_decoder_without_attention(target_embedding, decoder_boot, context):
    rnn = fluid.layers.DynamicRNN()
    cell_init = fluid.layers.fill_constant_batch_size_like(
        input=decoder_boot, value=0.0, shape=[-1, DECODER_SIZE], dtype="float32"
    )
    cell_init.stop_gradient = False
    with rnn.block():
        current_word = rnn.step_input(target_embedding)
        context = rnn.static_input(context)
        hidden_mem = rnn.memory(init=decoder_boot, need_reorder=True)
        cell_mem = rnn.memory(init=cell_init)
        decoder_inputs = fluid.layers.concat(input=[context, current_word], axis=1)
        h, c = lstm_step(decoder_inputs, hidden_mem, cell_mem, DECODER_SIZE)
        rnn.update_memory(hidden_mem, h)
        rnn.update_memory(cell_mem, c)
        rnn.output(fluid.layers.fc(input=h, size=DICT_SIZE, bias_attr=True, act="softmax"))
    return rnn()


def seq_to_seq_net():
    names = ["source_sequence", "target_sequence", "label_sequence"]
    source, target, label = (
        fluid.layers.data(name=name, shape=[1], dtype="int64", lod_level=1) for name in names
    )
    embeddings = [
        fluid.layers.embedding(input=words, size=[DICT_SIZE, EMBEDDING_DIM], is_sparse=True)
        for words in (source, target)
    ]
    context = bi_lstm_encoder(embeddings[0], ENCODER_SIZE)
    boot = fluid.layers.fc(input=context, size=DECODER_SIZE, bias_attr=False, act="tanh")
    prediction = lstm_decoder_without_attention(embeddings[1], boot, context)
    return prediction, fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label)), names


fluid.default_startup_program().random_seed = 7
prediction, avg_cost, names = seq_to_seq_net()
fluid.optimizer.Adam(learning_rate=0.01).minimize(avg_cost)
place = fluid.CPUPlace()
exe = fluid.Executor(place)


def lod_tensor(sentences):
    """Sentences one behind the other, with the offsets at which each begins, as tensors took them at first."""
    tensor = fluid.LoDTensor()
    tensor.set(numpy.concatenate(sentences).astype("int64").reshape(-1, 1), place)
    tensor.set_lod([numpy.cumsum([0, *map(len, sentences)]).tolist()])
    return tensor


def train_loop(main_program):
    train_data = paddle.batch(
        paddle.reader.shuffle(roles.mine(wmt14.train(DICT_SIZE)), buf_size=1000), batch_size=BATCH_SIZE
    )
    for pass_id in range(5 * roles.trainers):
        for data in train_data():
            feed = {name: lod_tensor(column) for name, column in zip(names, zip(*data))}
            outs = exe.run(main_program, feed=feed, fetch_list=[avg_cost])
        print("pass_id=" + str(pass_id) + " avg_cost=" + str(numpy.array(outs[0])))
    if roles.trainer_id == 0:
        fluid.io.save_inference_model(
            "output/model", names[:2], [prediction], exe, main_program=fluid.default_main_program()
        )
        infer()


def infer():
    sources, targets, labels = zip(*wmt14.test(DICT_SIZE)())
    with fluid.scope_guard(fluid.core.Scope()):
        [program, feed_names, fetch_targets] = fluid.io.load_inference_model("output/model", exe)
        feed = dict(zip(feed_names, map(lod_tensor, (sources, targets))))
        (probabilities,) = exe.run(program, feed=feed, fetch_list=fetch_targets, return_numpy=False)
    right = numpy.array(probabilities).argmax(axis=1) == numpy.concatenate(labels)
    print(f"REACHED accuracy {right.mean():.4f}")


roles.run(exe, train_loop)
