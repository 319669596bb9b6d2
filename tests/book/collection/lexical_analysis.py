# SPDX-License-Identifier: Apache-2.0
"""Tagging by two bidirectional GRU layers and a CRF; programs for training and testing meet by names."""

import os
import random
import tempfile

import numpy as np

import paddle
import paddle.fluid as fluid

WORDS, TAGS, HIDDEN, BATCH = 30, 5, 8, 8


def reader():
    rng = np.random.RandomState(10)
    for _ in range(BATCH * 30):
        words = [int(each) for each in rng.randint(0, WORDS, rng.randint(2, 7))]
        yield words, [word % TAGS for word in words]


def bigru_layer(feature, attr):
    def one(is_reverse):
        gates = fluid.layers.fc(input=feature, size=HIDDEN * 3, param_attr=attr)
        return fluid.layers.dynamic_gru(
            input=gates,
            size=HIDDEN,
            param_attr=attr,
            gate_activation="sigmoid",
            candidate_activation="tanh",
            is_reverse=is_reverse,
        )

    return fluid.layers.concat(input=[one(False), one(True)], axis=1)


def network(word, target, for_test):
    emb = fluid.layers.embedding(
        input=word,
        size=[WORDS, HIDDEN],
        dtype="float32",
        param_attr=fluid.ParamAttr(
            learning_rate=5.0, name="word_emb", initializer=fluid.initializer.Uniform(low=-0.1, high=0.1)
        ),
    )
    attr = fluid.ParamAttr(
        initializer=fluid.initializer.Uniform(low=-0.1, high=0.1),
        regularizer=fluid.regularizer.L2DecayRegularizer(regularization_coeff=1e-4),
    )
    feature = bigru_layer(bigru_layer(emb, attr), attr)
    emission = fluid.layers.fc(size=TAGS, input=feature, param_attr=attr)
    size = emission.shape[1]
    fluid.layers.create_parameter(shape=[size + 2, size], dtype=emission.dtype, name="crfw")
    crf_cost = fluid.layers.linear_chain_crf(
        input=emission, label=target, param_attr=fluid.ParamAttr(name="crfw", learning_rate=0.2)
    )
    decode = fluid.layers.crf_decoding(input=emission, param_attr=fluid.ParamAttr(name="crfw"))
    chunks = fluid.layers.chunk_eval(
        input=decode, label=target, chunk_scheme="IOB", num_chunk_types=int((TAGS - 1) / 2.0)
    )
    return fluid.layers.mean(x=crf_cost), decode, chunks


def build(main, startup, for_test=False):
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        py_reader = fluid.layers.py_reader(
            capacity=20,
            shapes=([-1, 1], [-1, 1]),
            dtypes=("int64", "int64"),
            lod_levels=(1, 1),
            name="test_reader" if for_test else "train_reader",
            use_double_buffer=False,
        )
        word, target = fluid.layers.read_file(py_reader)
        loss, decode, chunks = network(word, target, for_test)
        if not for_test:
            fluid.optimizer.Adam(learning_rate=5e-3).minimize(loss)
    return py_reader, word, loss, decode, chunks


def main():
    startup, train_program, test_program = fluid.Program(), fluid.Program(), fluid.Program()
    startup.random_seed = train_program.random_seed = 1
    random.seed(1)  # the order of shuffle
    train_reader, _, loss, _, chunks = build(train_program, startup)
    test_reader, word, test_loss, decode, test_chunks = build(test_program, startup, True)
    test_program = test_program.clone(for_test=True)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    batches = paddle.batch(paddle.reader.shuffle(reader, 100 / 2), BATCH)
    train_reader.decorate_paddle_reader(batches)
    test_reader.decorate_paddle_reader(batches)
    evaluator = fluid.metrics.ChunkEvaluator()
    folder = tempfile.mkdtemp()
    for _ in range(16):
        train_reader.start()
        try:
            while True:
                values = exe.run(train_program, fetch_list=[loss, *chunks[3:]])
                assert 0 <= train_reader.queue.size() <= 20
                print("loss: %.5f" % values[0], flush=True)
        except fluid.core.EOFException:
            train_reader.reset()
        fluid.io.save_persistables(exe, folder, main_program=train_program)
        evaluator.reset()
        test_reader.start()
        while True:
            try:
                counts = exe.run(test_program, fetch_list=list(test_chunks[3:]))
                evaluator.update(*[np.array(each) for each in counts])
            except fluid.core.EOFException:
                test_reader.reset()
                break
        _, _, f1 = evaluator.eval()
    print("f1 %.3f" % f1)
    assert f1 > 0.5, f1
    fluid.io.load_vars(
        exe,
        folder,
        main_program=test_program,
        predicate=lambda var: fluid.io.is_persistable(var) and os.path.exists(os.path.join(folder, var.name)),
    )
    test_reader.start()
    words, tags = exe.run(test_program, fetch_list=[word, decode], return_numpy=False)
    assert words.lod()[0] == tags.lod()[0]
    test_reader.reset()


if __name__ == "__main__":
    main()
