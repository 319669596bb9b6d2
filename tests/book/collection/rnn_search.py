# SPDX-License-Identifier: Apache-2.0
"""Translation over padded boxes with lengths: StaticRNN with attention to train, a While of greedy steps to infer."""

import tempfile

import numpy as np

import paddle.fluid as fluid
import paddle.fluid.layers as layers
from paddle.fluid.layers.control_flow import StaticRNN

WORDS, HIDDEN, BATCH, LONGEST = 12, 16, 8, 5
START, END = 0, 1


def batches(count):
    rng = np.random.RandomState(41)
    for _ in range(count):
        lengths = rng.randint(1, LONGEST, BATCH).astype("int32")
        wide = lengths.max()
        src = rng.randint(2, WORDS, (BATCH, wide))
        tar = np.full((BATCH, wide + 2), END)
        tar[:, 0] = START
        for at, length in enumerate(lengths):
            src[at, length:] = END
            tar[at, 1 : length + 1] = src[at, :length]
        yield src[:, :, None], lengths, tar[:, :-1, None], tar[:, 1:, None], lengths + 1


def embedded(ids, name):
    uniform = fluid.initializer.UniformInitializer(low=-0.5, high=0.5)
    attr = fluid.ParamAttr(name=name, initializer=uniform)
    return layers.embedding(input=ids, size=[WORDS, HIDDEN], dtype="float32", param_attr=attr)


def cell(value, hidden, state, name):
    gate = layers.fc(
        input=layers.concat([value, hidden], axis=1),
        size=HIDDEN * 4,
        param_attr=fluid.ParamAttr(name=name + "_w", initializer=fluid.initializer.Uniform(-0.3, 0.3)),
        bias_attr=name + "_b",
    )
    i, j, f, o = layers.split(gate, num_or_sections=4, dim=-1)
    state = state * layers.sigmoid(f + 1.0) + layers.sigmoid(i) * layers.tanh(j)
    return layers.tanh(state) * layers.sigmoid(o), state


def encoder():
    src = layers.data(name="src", shape=[-1, 1, 1], dtype="int64")
    length = layers.data(name="src_sequence_length", shape=[-1], dtype="int32")
    mask = layers.sequence_mask(length, maxlen=layers.shape(src)[1], dtype="float32")
    rows = layers.transpose(embedded(src, "source_embedding"), perm=[1, 0, 2])
    steps = layers.transpose(mask, perm=[1, 0])
    rnn = StaticRNN()
    with rnn.step():
        value, goes_on = rnn.step_input(rows), rnn.step_input(steps)
        hidden = rnn.memory(shape=[-1, HIDDEN], batch_ref=rows, ref_batch_dim_idx=1)
        state = rnn.memory(shape=[-1, HIDDEN], batch_ref=rows, ref_batch_dim_idx=1)
        new_hidden, new_state = cell(value, hidden, state, "encoder")
        # beyond the end of a sentence its memories stay
        new_hidden, new_state = (
            layers.elementwise_mul(new, goes_on, axis=0) + layers.elementwise_mul(old, 1.0 - goes_on, axis=0)
            for new, old in ((new_hidden, hidden), (new_state, state))
        )
        rnn.update_memory(hidden, new_hidden)
        rnn.update_memory(state, new_state)
        rnn.step_output(new_hidden)
        rnn.step_output(new_state)
    outputs, states = rnn()
    last_hidden, last_state = (
        layers.reshape(layers.slice(each, axes=[0], starts=[-1], ends=[2**31 - 1]), shape=[-1, HIDDEN])
        for each in (outputs, states)
    )
    return layers.transpose(outputs, perm=[1, 0, 2]), mask, last_hidden, last_state


def decoded(word, hidden, state, context, memory, mask):
    hidden, state = cell(layers.concat([word, context], axis=1), hidden, state, "decoder")
    asked = layers.unsqueeze(layers.fc(hidden, size=HIDDEN, bias_attr=False, param_attr="query_w"), axes=[1])
    scores = layers.matmul(asked, memory, transpose_y=True)
    scores = layers.elementwise_add(layers.squeeze(scores, axes=[1]), (mask - 1.0) * 1e9)
    weights = layers.unsqueeze(layers.softmax(scores), axes=[1])
    found = layers.squeeze(layers.matmul(weights, memory), axes=[1])
    both = layers.concat([hidden, found], axis=1)
    context = layers.fc(both, size=HIDDEN, act="tanh", bias_attr=False, param_attr="mix_w")
    return hidden, state, context


def project(context, dims=1):
    return layers.fc(
        context, size=WORDS, num_flatten_dims=dims, bias_attr=False, param_attr=fluid.ParamAttr("output_w")
    )


def training():
    memory, mask, last_hidden, last_state = encoder()
    tar = layers.data(name="tar", shape=[-1, 1, 1], dtype="int64")
    label = layers.data(name="label", shape=[-1, 1, 1], dtype="int64")
    length = layers.data(name="tar_sequence_length", shape=[-1], dtype="int32")
    rows = layers.transpose(embedded(tar, "target_embedding"), perm=[1, 0, 2])
    rnn = StaticRNN()
    with rnn.step():
        word = rnn.step_input(rows)
        hidden, state = rnn.memory(init=last_hidden), rnn.memory(init=last_state)
        context = rnn.memory(shape=[-1, HIDDEN], batch_ref=rows)
        outs = decoded(word, hidden, state, context, memory, mask)
        for before, after in zip((hidden, state, context), outs):
            rnn.update_memory(before, after)
        rnn.step_output(outs[-1])
    logits = project(layers.transpose(rnn(), perm=[1, 0, 2]), dims=2)
    loss = layers.softmax_with_cross_entropy(logits=logits, label=label, soft_label=False)
    loss = layers.squeeze(loss, axes=[2])
    loss = loss * layers.sequence_mask(length, maxlen=layers.shape(tar)[1], dtype="float32")
    return layers.reduce_sum(layers.reduce_mean(loss, dim=[0]))


def inference():
    memory, mask, hidden, state = encoder()
    first = layers.fill_constant_batch_size_like(hidden, shape=[-1, 1], dtype="int64", value=START)
    context = layers.fill_constant_batch_size_like(hidden, shape=[-1, HIDDEN], dtype="float32", value=0.0)
    at = layers.fill_constant(shape=[1], dtype="int64", value=0)
    longest = layers.fill_constant(shape=[1], dtype="int64", value=LONGEST)
    said = layers.create_array("int64")
    # numbers from Python, as a constant of the program
    bias = layers.create_tensor("float32")
    layers.assign(np.array([-1e9] + [0.0] * (WORDS - 1), "float32"), bias)
    cond = layers.less_than(x=at, y=longest)
    loop = layers.While(cond)
    with loop.block():
        word = layers.reshape(embedded(first, "target_embedding"), shape=[-1, HIDDEN])
        outs = decoded(word, hidden, state, context, memory, mask)
        _, best = layers.topk(layers.elementwise_add(project(outs[-1]), bias), k=1)
        layers.array_write(best, i=at, array=said)
        for value, into in zip((best, *outs), (first, hidden, state, context)):
            layers.assign(value, into)
        layers.increment(x=at, value=1, in_place=True)
        layers.less_than(x=at, y=longest, cond=cond)
    return [layers.array_read(said, layers.fill_constant([1], "int64", step)) for step in range(LONGEST)]


def main():
    startup, train_program = fluid.Program(), fluid.Program()
    startup.random_seed = train_program.random_seed = 1
    with fluid.program_guard(train_program, startup), fluid.unique_name.guard():
        loss = training()
        fluid.clip.set_gradient_clip(clip=fluid.clip.GradientClipByGlobalNorm(clip_norm=5.0))
        fluid.optimizer.Adam(0.02).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    names = ["src", "src_sequence_length", "tar", "label", "tar_sequence_length"]
    compiled = fluid.CompiledProgram(train_program).with_data_parallel(loss_name=loss.name)
    for _ in range(8):
        words = total = 0.0
        for values in batches(25):
            (value,) = exe.run(compiled, feed=dict(zip(names, values)), fetch_list=[loss.name])
            total += np.mean(value) * BATCH
            words += np.sum(values[-1])
            print("loss: %f" % (np.mean(value) * BATCH / np.sum(values[-1])), flush=True)
        print("ppl %f" % np.exp(total / words))
    folder = tempfile.mkdtemp()
    fluid.io.save_params(exe, folder, main_program=train_program)
    infer_program, infer_startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(infer_program, infer_startup), fluid.unique_name.guard():
        steps = inference()
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_params(exe, folder, main_program=infer_program)
        values = next(batches(1))
        found = exe.run(infer_program, feed=dict(zip(names[:2], values)), fetch_list=steps)
    found = np.concatenate(found, axis=1)
    right = sum(
        row[:length].tolist() == label[:length, 0].tolist()
        for row, label, length in zip(found, values[3], values[4])
    )
    print("right: %d of %d" % (right, BATCH))
    assert right > BATCH / 2


if __name__ == "__main__":
    main()
