# SPDX-License-Identifier: Apache-2.0
"""A language model whose state is fed, persistable and assigned; its learning rate is fed each batch and fetched."""

import tempfile

import numpy as np

import paddle.fluid as fluid
import paddle.fluid.layers as layers
from paddle.fluid.layers.control_flow import StaticRNN as PaddingRNN

WORDS, HIDDEN, LAYERS, STEPS, BATCH = 20, 12, 2, 5, 4


def padding_rnn(inputs, init_hidden, init_cell):
    weights, biases, hiddens, cells = [], [], [], []
    uniform = fluid.initializer.UniformInitializer(low=-0.2, high=0.2)
    for at in range(LAYERS):
        weights.append(
            layers.create_parameter(
                [HIDDEN * 2, HIDDEN * 4],
                dtype="float32",
                name="fc_weight1_" + str(at),
                default_initializer=uniform,
            )
        )
        biases.append(
            layers.create_parameter(
                [HIDDEN * 4],
                dtype="float32",
                name="fc_bias1_" + str(at),
                default_initializer=fluid.initializer.Constant(0.0),
            )
        )
        hiddens.append(layers.slice(init_hidden, axes=[0], starts=[at], ends=[at + 1]))
        cells.append(layers.slice(init_cell, axes=[0], starts=[at], ends=[at + 1]))
    hiddens = [layers.reshape(each, shape=[-1, HIDDEN], inplace=True) for each in hiddens]
    cells = [layers.reshape(each, shape=[-1, HIDDEN], inplace=True) for each in cells]
    rnn = PaddingRNN()
    with rnn.step():
        value = rnn.step_input(inputs)
        for at in range(LAYERS):
            pre_hidden, pre_cell = rnn.memory(init=hiddens[at]), rnn.memory(init=cells[at])
            gate = layers.matmul(x=layers.concat([value, pre_hidden], 1), y=weights[at])
            gate = layers.elementwise_add(gate, biases[at])
            i, j, f, o = layers.split(gate, num_or_sections=4, dim=-1)
            cell = pre_cell * layers.sigmoid(f) + layers.sigmoid(i) * layers.tanh(j)
            hidden = layers.tanh(cell) * layers.sigmoid(o)
            rnn.update_memory(pre_hidden, hidden)
            rnn.update_memory(pre_cell, cell)
            rnn.step_output(hidden)
            rnn.step_output(cell)
            value = hidden
        rnn.step_output(value)
    outs = rnn()
    last_h = [layers.slice(outs[2 * at], axes=[0], starts=[STEPS - 1], ends=[STEPS]) for at in range(LAYERS)]
    last_c = [
        layers.slice(outs[2 * at + 1], axes=[0], starts=[STEPS - 1], ends=[STEPS]) for at in range(LAYERS)
    ]
    return (
        layers.transpose(outs[-1], perm=[1, 0, 2]),
        layers.concat(last_h, axis=0),
        layers.concat(last_c, axis=0),
    )


def lm_model():
    x = layers.data(name="x", shape=[BATCH, STEPS, 1], dtype="int64", append_batch_size=False)
    y = layers.data(name="y", shape=[BATCH * STEPS, 1], dtype="int64", append_batch_size=False)
    shape = [LAYERS, BATCH, HIDDEN]
    init_hidden = layers.data(name="init_hidden", shape=shape, dtype="float32", append_batch_size=False)
    init_cell = layers.data(name="init_cell", shape=shape, dtype="float32", append_batch_size=False)
    init_cell.persistable = True
    init_hidden.persistable = True
    emb = layers.embedding(
        input=x,
        size=[WORDS, HIDDEN],
        dtype="float32",
        is_sparse=False,
        param_attr=fluid.ParamAttr("embedding_para"),
    )
    emb = layers.dropout(emb, dropout_prob=0.0, dropout_implementation="upscale_in_train")
    rnn_out, last_hidden, last_cell = padding_rnn(
        layers.transpose(emb, perm=[1, 0, 2]), init_hidden, init_cell
    )
    rnn_out = layers.reshape(rnn_out, shape=[-1, HIDDEN], inplace=True)
    softmax_weight = layers.create_parameter([HIDDEN, WORDS], dtype="float32", name="softmax_weight")
    projection = layers.matmul(rnn_out, softmax_weight)
    loss = layers.softmax_with_cross_entropy(logits=projection, label=y, soft_label=False)
    loss = layers.reshape(loss, shape=[-1, STEPS], inplace=True)
    loss = layers.reduce_sum(layers.reduce_mean(loss, dim=[0]))
    loss.persistable = True
    layers.assign(input=last_cell, output=init_cell)
    layers.assign(input=last_hidden, output=init_hidden)
    return loss, last_hidden, last_cell


def main():
    main_program, startup = fluid.Program(), fluid.Program()
    main_program.random_seed = startup.random_seed = 1
    with fluid.program_guard(main_program, startup), fluid.unique_name.guard():
        loss, last_hidden, last_cell = lm_model()
        fluid.clip.set_gradient_clip(
            clip=fluid.clip.GradientClipByGlobalNorm(clip_norm=5.0), program=main_program
        )
        rate = layers.create_global_var(
            name="learning_rate", shape=[1], value=1.0, dtype="float32", persistable=True
        )
        fluid.optimizer.SGD(learning_rate=rate).minimize(loss)
    inference = main_program.clone(for_test=True)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    build = fluid.BuildStrategy()
    build.fuse_all_optimizer_ops = True
    execution = fluid.ExecutionStrategy()
    execution.num_iteration_per_drop_scope = 100
    compiled = fluid.compiler.CompiledProgram(main_program).with_data_parallel(
        loss_name=loss.name, build_strategy=build, exec_strategy=execution
    )
    for epoch in range(4):
        new_rate = np.array([1.0 / (1 + epoch)], dtype="float32")
        hidden = np.zeros((LAYERS, BATCH, HIDDEN), dtype="float32")
        cell = np.zeros((LAYERS, BATCH, HIDDEN), dtype="float32")
        for step in range(25):
            x = (np.arange(BATCH)[:, None] * 5 + np.arange(STEPS) + step) % WORDS
            feed = {"x": x[:, :, None], "y": ((x + 1) % WORDS).reshape(-1, 1), "learning_rate": new_rate}
            if step == 0:
                feed.update(init_hidden=hidden, init_cell=cell)
            fetched = exe.run(
                compiled,
                feed=feed,
                fetch_list=[loss.name, "learning_rate", last_hidden.name],
                use_program_cache=True,
            )
            assert np.array(fetched[1])[0] == new_rate[0]
            held = np.array(fluid.global_scope().find_var("init_hidden").get_tensor())
            np.testing.assert_array_equal(held, np.array(fetched[2]))
            ppl = np.exp(np.array(fetched[0]) / STEPS)
            print("loss: %.5f" % fetched[0], "ppl %.5f" % ppl[0], flush=True)
    assert len(inference.global_block().ops) == len(main_program.global_block().ops)
    folder = tempfile.mkdtemp()
    fluid.io.save_persistables(exe, folder, main_program)
    names = [each.name for each in main_program.global_block().all_parameters()]
    np.savez(
        folder + "/params.npz",
        **{name: np.array(fluid.global_scope().find_var(name).get_tensor()) for name in names},
    )


if __name__ == "__main__":
    main()
