# SPDX-License-Identifier: Apache-2.0

"""Chapter 8 of Fluid's book: translation by an encoder, a decoder with attention in a DynamicRNN, and beam search."""

import numpy
import roles

import paddle
import paddle.fluid as fluid
import paddle.fluid.layers as layers
from paddle.dataset import wmt14

DICT_SIZE = 30
START_ID, END_ID = 0, 1
WORD_DIM = 16
HIDDEN_DIM = 24
BEAM_SIZE = 3
MAX_LENGTH = 12
BATCH_SIZE = 40
feed_order = ["src_word_id", "target_language_word", "target_language_next_word"]


def word_data(name):
    return layers.data(name=name, shape=[1], dtype="int64", lod_level=1)


def embed(ids, table):
    attr = fluid.ParamAttr(name=table)
    return layers.embedding(input=ids, size=[DICT_SIZE, WORD_DIM], is_sparse=True, param_attr=attr)


def encoder():
    """The words as seen from both sides, what attention compares of them, and the first state of the decoder."""
    src_embedding = embed(word_data("src_word_id"), "vemb")
    forward = layers.dynamic_gru(input=layers.fc(src_embedding, HIDDEN_DIM * 3), size=HIDDEN_DIM)
    backward = layers.dynamic_gru(
        input=layers.fc(src_embedding, HIDDEN_DIM * 3), size=HIDDEN_DIM, is_reverse=True
    )
    encoded = layers.concat(input=[forward, backward], axis=1)
    projected = layers.fc(input=encoded, size=HIDDEN_DIM, bias_attr=False)
    boot = layers.fc(input=layers.sequence_first_step(backward), size=HIDDEN_DIM, act="tanh", bias_attr=False)
    return encoded, projected, boot


def step(word, state, encoded, projected):
    """The next state and the probabilities of the next word; one word and one state a sentence."""
    state_proj = layers.fc(input=state, size=HIDDEN_DIM, bias_attr=False)
    mixed = layers.elementwise_add(layers.sequence_expand(x=state_proj, y=projected), projected)
    weights = layers.sequence_softmax(layers.fc(layers.tanh(mixed), size=1, bias_attr=False))
    scaled = layers.elementwise_mul(x=encoded, y=layers.reshape(weights, shape=[-1]), axis=0)
    context = layers.sequence_pool(input=scaled, pool_type="sum")
    gates = layers.fc(input=[word, context], size=HIDDEN_DIM * 3)
    current, _, _ = layers.gru_unit(input=gates, hidden=state, size=HIDDEN_DIM * 3)
    return current, layers.fc(input=current, size=DICT_SIZE, act="softmax")


def train_decoder(encoded, projected, boot):
    rnn = layers.DynamicRNN()
    trg_embedding = embed(word_data("target_language_word"), "trg_vemb")
    with rnn.block():
        current_word = rnn.step_input(trg_embedding)
        encoder_vec = rnn.static_input(encoded)
        encoder_proj = rnn.static_input(projected)
        pre_state = rnn.memory(init=boot, need_reorder=True)
        current_state, score = step(current_word, pre_state, encoder_vec, encoder_proj)
        rnn.update_memory(pre_state, current_state)
        rnn.output(score)
    return rnn()


def infer_decoder(encoded, projected, boot):
    """Every step goes on with the best prefixes of each sentence, as long as one of them has not ended."""
    array_len = layers.fill_constant(shape=[1], dtype="int64", value=MAX_LENGTH)
    counter = layers.zeros(shape=[1], dtype="int64", force_cpu=True)
    init_ids = layers.data(name="init_ids", shape=[1], dtype="int64", lod_level=2)
    init_scores = layers.data(name="init_scores", shape=[1], dtype="float32", lod_level=2)
    # what belongs to a prefix, step by step
    carried = [init_ids, init_scores, boot, encoded, projected]
    arrays = [layers.create_array(each.dtype) for each in carried]
    for value, array in zip(carried, arrays, strict=True):
        layers.array_write(value, array=array, i=counter)
    cond = layers.less_than(x=counter, y=array_len)
    while_op = layers.While(cond=cond)
    with while_op.block():
        pre_ids, pre_score, *of_prefix = (layers.array_read(array=array, i=counter) for array in arrays)
        state, encoder_vec, encoder_proj = (layers.sequence_expand(each, pre_score) for each in of_prefix)
        current_state, score = step(embed(pre_ids, "trg_vemb"), state, encoder_vec, encoder_proj)
        topk_scores, topk_indices = layers.topk(layers.lod_reset(x=score, y=pre_score), k=BEAM_SIZE)
        accu_scores = layers.elementwise_add(
            x=layers.log(topk_scores), y=layers.reshape(pre_score, shape=[-1]), axis=0
        )
        selected_ids, selected_scores = layers.beam_search(
            pre_ids, pre_score, topk_indices, accu_scores, BEAM_SIZE, end_id=END_ID, level=0
        )
        layers.increment(x=counter, value=1, in_place=True)
        selected = [selected_ids, selected_scores, current_state, encoder_vec, encoder_proj]
        for value, array in zip(selected, arrays, strict=True):
            layers.array_write(value, array=array, i=counter)
        length_cond = layers.less_than(x=counter, y=array_len)
        finish_cond = layers.logical_not(layers.is_empty(x=selected_ids))
        layers.logical_and(x=length_cond, y=finish_cond, out=cond)
    return layers.beam_search_decode(arrays[0], arrays[1], beam_size=BEAM_SIZE, end_id=END_ID)


def train_program():
    rnn_out = train_decoder(*encoder())
    cost = layers.cross_entropy(input=rnn_out, label=word_data("target_language_next_word"))
    return layers.mean(cost)


fluid.default_startup_program().random_seed = 7
avg_cost = train_program()
fluid.clip.set_gradient_clip(clip=fluid.clip.GradientClipByGlobalNorm(clip_norm=5.0))
optimizer = fluid.optimizer.Adam(
    learning_rate=layers.noam_decay(d_model=HIDDEN_DIM, warmup_steps=60),
    regularization=fluid.regularizer.L2DecayRegularizer(1e-5),
)
optimizer.minimize(avg_cost)
fluid.memory_optimize(fluid.default_main_program())
place = fluid.CPUPlace()
exe = fluid.Executor(place)


def train_loop(main_program):
    feeder = fluid.DataFeeder([main_program.global_block().var(name) for name in feed_order], place)
    pairs = paddle.reader.shuffle(roles.mine(wmt14.train(DICT_SIZE)), buf_size=10000)
    for pass_id in range(4 * roles.trainers):
        for data in paddle.batch(pairs, batch_size=BATCH_SIZE)():
            (cost,) = exe.run(main_program, feed=feeder.feed(data), fetch_list=[avg_cost])
        print("pass_id=%d avg_cost=%f" % (pass_id, cost))
    if roles.trainer_id == 0:
        fluid.io.save_params(exe, "output/parameters", main_program=main_program)
        infer()


def infer():
    # with the names of parameters that the first program has
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        translations = infer_decoder(*encoder())
        decoding = fluid.default_main_program()
    feeds = ["src_word_id", "init_ids", "init_scores"]
    with fluid.scope_guard(fluid.core.Scope()):
        fluid.io.load_params(exe, "output/parameters", main_program=decoding)
        fluid.io.save_inference_model("output/model", feeds, list(translations), exe, main_program=decoding)
    _, trg_dict = wmt14.get_dict(DICT_SIZE)
    right = seen = 0
    with fluid.scope_guard(fluid.core.Scope()):
        [program, feed_names, fetch_targets] = fluid.io.load_inference_model("output/model", exe)
        for data in paddle.batch(wmt14.test(DICT_SIZE), batch_size=BATCH_SIZE)():
            count = len(data)
            words = [numpy.array(sample[0], "int64").reshape(-1, 1) for sample in data]
            lod = [[1] * count, [1] * count]
            fed = {
                "src_word_id": fluid.create_lod_tensor(
                    numpy.concatenate(words), [list(map(len, words))], place
                ),
                "init_ids": fluid.create_lod_tensor(numpy.full((count, 1), START_ID, "int64"), lod, place),
                "init_scores": fluid.create_lod_tensor(numpy.ones((count, 1), "float32"), lod, place),
            }
            assert list(fed) == feed_names
            ids, scores = exe.run(program, feed=fed, fetch_list=fetch_targets, return_numpy=False)
            beams, prefixes = ids.lod()
            for sample, first in zip(data, beams, strict=False):
                best = numpy.array(ids)[prefixes[first] : prefixes[first + 1]].ravel()
                right += best.tolist() == [START_ID, *sample[2]]
            if not seen:
                for beam in range(BEAM_SIZE):
                    found = numpy.array(ids)[prefixes[beam] : prefixes[beam + 1]].ravel()
                    score = numpy.array(scores).ravel()[prefixes[beam + 1] - 1]
                    print("%.4f %s" % (score, " ".join(trg_dict[word] for word in found)))
            seen += count
    print(f"REACHED accuracy {right / seen:.4f}")


roles.run(exe, train_loop)
