# SPDX-License-Identifier: Apache-2.0
"""Columns of images read by attention; trained by DynamicRNN, decoded by a beam search of whole batches."""

import os
import tempfile

import numpy as np

import paddle.fluid as fluid
import paddle.fluid.profiler as profiler

CLASSES, HEIGHT, WIDE, BATCH = 4, 8, 18, 8
SOS, EOS = 0, 1  # the classes come behind them
HIDDEN, BEAM, LONGEST = 16, 2, 5


def batches(count):
    rng = np.random.RandomState(21)
    for _ in range(count):
        images = rng.rand(BATCH, 1, HEIGHT, WIDE).astype("float32") * 0.1
        words = []
        for at in range(BATCH):
            word = rng.randint(0, CLASSES, rng.randint(1, 4))
            for place, each in enumerate(word):
                images[at, 0, each * 2 : each * 2 + 2, place * 6 : place * 6 + 5] += 1
            words.append([int(each) + 2 for each in word])
        yield images, words


def lod_of(rows, place):
    lengths = [len(each) for each in rows]
    return fluid.create_lod_tensor(np.concatenate(rows).astype("int64").reshape(-1, 1), [lengths], place)


def encoder(images):
    conv = fluid.layers.conv2d(
        input=images, num_filters=8, filter_size=3, padding=1, act=None, use_cudnn=False
    )
    norm = fluid.layers.batch_norm(input=conv, act="relu")
    features = fluid.layers.pool2d(
        input=norm, pool_size=2, pool_type="max", pool_stride=2, use_cudnn=False, ceil_mode=True
    )
    columns = fluid.layers.im2sequence(
        input=features, stride=[1, 1], filter_size=[features.shape[2], 1], padding=[0, 0, 0, 0]
    )
    attr = fluid.ParamAttr(initializer=fluid.initializer.Normal(0.0, 0.1))

    def gru(is_reverse):
        gates = fluid.layers.fc(input=columns, size=HIDDEN * 3, param_attr=attr, bias_attr=False)
        return fluid.layers.dynamic_gru(
            input=gates, size=HIDDEN, is_reverse=is_reverse, candidate_activation="relu"
        )

    forward, backward = gru(False), gru(True)
    encoded = fluid.layers.concat(input=[forward, backward], axis=1)
    projected = fluid.layers.fc(input=encoded, size=HIDDEN, bias_attr=False)
    boot = fluid.layers.fc(
        input=fluid.layers.sequence_pool(input=backward, pool_type="first"), size=HIDDEN, act="relu"
    )
    return encoded, projected, boot


def attention(encoded, projected, state):
    asked = fluid.layers.fc(input=state, size=HIDDEN, bias_attr=False, param_attr="att_state")
    mixed = projected + fluid.layers.sequence_expand(x=asked, y=projected)
    weights = fluid.layers.fc(
        input=fluid.layers.tanh(mixed), size=1, bias_attr=False, param_attr="att_weight"
    )
    weights = fluid.layers.reshape(x=fluid.layers.sequence_softmax(input=weights), shape=[-1])
    scaled = fluid.layers.elementwise_mul(x=encoded, y=weights, axis=0)
    return fluid.layers.sequence_pool(input=scaled, pool_type="sum")


def step(word, state, encoded, projected):
    emb = fluid.layers.embedding(word, size=[CLASSES + 2, HIDDEN], param_attr="trg_emb")
    context = attention(encoded, projected, state)
    gates = fluid.layers.fc(
        input=[context, emb], size=HIDDEN * 3, bias_attr=False, param_attr=["gate_context", "gate_word"]
    )
    state, _, _ = fluid.layers.gru_unit(
        input=gates, hidden=state, size=HIDDEN * 3, param_attr="gru_w", bias_attr="gru_b"
    )
    score = fluid.layers.fc(
        input=state, size=CLASSES + 2, act="softmax", param_attr="out_w", bias_attr="out_b"
    )
    return state, score


def train_net():
    images = fluid.layers.data(name="pixel", shape=[1, HEIGHT, WIDE], dtype="float32")
    label_in = fluid.layers.data(name="label_in", shape=[1], dtype="int64", lod_level=1)
    label_out = fluid.layers.data(name="label_out", shape=[1], dtype="int64", lod_level=1)
    encoded, projected, boot = encoder(images)
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(label_in)
        encoder_vec, encoder_proj = rnn.static_input(encoded), rnn.static_input(projected)
        memory = rnn.memory(init=boot, need_reorder=True)
        state, score = step(word, memory, encoder_vec, encoder_proj)
        rnn.update_memory(memory, state)
        rnn.output(score)
    cost = fluid.layers.cross_entropy(input=rnn(), label=label_out)
    return fluid.layers.reduce_sum(cost)


def infer_net():
    images = fluid.layers.data(name="pixel", shape=[1, HEIGHT, WIDE], dtype="float32")
    init_ids = fluid.layers.data(name="init_ids", shape=[1], dtype="int64", lod_level=2)
    init_scores = fluid.layers.data(name="init_scores", shape=[1], dtype="float32", lod_level=2)
    encoded, projected, boot = encoder(images)
    longest = fluid.layers.fill_constant(shape=[1], dtype="int64", value=LONGEST)
    counter = fluid.layers.zeros(shape=[1], dtype="int64", force_cpu=True)
    first = [init_ids, init_scores, boot, encoded, projected]
    arrays = [fluid.layers.create_array(each.dtype) for each in first]
    for value, array in zip(first, arrays):
        fluid.layers.array_write(value, array=array, i=counter)
    cond = fluid.layers.less_than(x=counter, y=longest)
    while_op = fluid.layers.While(cond=cond)
    with while_op.block():
        pre_ids, pre_score, *rest = (fluid.layers.array_read(array=each, i=counter) for each in arrays)
        state, encoder_vec, encoder_proj = (fluid.layers.sequence_expand(each, pre_score) for each in rest)
        state, score = step(pre_ids, state, encoder_vec, encoder_proj)
        scores, indices = fluid.layers.topk(fluid.layers.lod_reset(x=score, y=pre_score), k=BEAM)
        sums = fluid.layers.elementwise_add(
            x=fluid.layers.log(scores), y=fluid.layers.reshape(pre_score, shape=[-1]), axis=0
        )
        ids, sums = fluid.layers.beam_search(pre_ids, pre_score, indices, sums, BEAM, end_id=EOS)
        fluid.layers.increment(x=counter, value=1, in_place=True)
        for value, array in zip([ids, sums, state, encoder_vec, encoder_proj], arrays):
            fluid.layers.array_write(value, array=array, i=counter)
        goes_on = fluid.layers.logical_not(fluid.layers.is_empty(x=ids))
        fluid.layers.logical_and(x=fluid.layers.less_than(x=counter, y=longest), y=goes_on, out=cond)
    return fluid.layers.beam_search_decode(arrays[0], arrays[1], beam_size=BEAM, end_id=EOS)


def train(folder):
    fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 1
    loss = train_net()
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(10.0))
    optimizer = fluid.optimizer.Adadelta(learning_rate=1.0, epsilon=1.0e-6, rho=0.9)
    optimizer.minimize(loss)
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    for number in range(4):
        for at, (images, words) in enumerate(batches(20)):
            feed = {
                "pixel": images,
                "label_in": lod_of([[SOS, *each] for each in words], place),
                "label_out": lod_of([[*each, EOS] for each in words], place),
            }
            if number == 0 and at == 1:
                with profiler.profiler("CPU", "total", os.path.join(folder, "profile")):
                    (value,) = exe.run(feed=feed, fetch_list=[loss])
            else:
                (value,) = exe.run(feed=feed, fetch_list=[loss])
            print("loss: %f" % (value[0] / BATCH), flush=True)
    fluid.io.save_params(exe, dirname=folder, filename="model")


def infer(folder):
    main, startup, place = fluid.Program(), fluid.Program(), fluid.CPUPlace()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        ids, scores = infer_net()
        main = main.clone(for_test=True)
        exe = fluid.Executor(place)
        exe.run(startup)
        fluid.io.load_params(exe, dirname=folder, filename="model", main_program=main)
        images, words = next(batches(1))
        lod = [[1] * BATCH, [1] * BATCH]
        feed = {
            "pixel": images,
            "init_ids": fluid.create_lod_tensor(np.full((BATCH, 1), SOS, "int64"), lod, place),
            "init_scores": fluid.create_lod_tensor(np.zeros((BATCH, 1), "float32"), lod, place),
        }
        found, _ = exe.run(main, feed=feed, fetch_list=[ids, scores], return_numpy=False)
    beams, prefixes = found.lod()
    flat = np.array(found).ravel()
    right = sum(
        flat[prefixes[beam] : prefixes[beam + 1]].tolist() == [SOS, *word, EOS]
        for beam, word in zip(beams, words)
    )
    print("right: %d of %d" % (right, BATCH))
    assert right > BATCH / 2


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    train(folder)
    infer(folder)
