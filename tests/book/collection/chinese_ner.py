# SPDX-License-Identifier: Apache-2.0
"""Names in sentences: words and marks, GRUs both ways several layers deep, a CRF, run by one executor per device."""

import random
import tempfile

import numpy as np

import paddle
import paddle.fluid as fluid

WORDS, MARKS, TYPES, WIDTH, HIDDEN, BATCH = 40, 2, 2, 8, 8, 10
TAGS = TYPES * 2 + 1  # begin and inside of each, and outside


def reader():
    """A name is a word of the first ten, of a type by its parity, and those after it that carry a mark."""
    rng = np.random.RandomState(31)
    for _ in range(BATCH * 20):
        words, marks, tags = [], [], []
        while len(words) < 6:
            name = rng.rand() < 0.4
            words.append(int(rng.randint(0, 10) if name else rng.randint(10, WORDS)))
            marks.append(0)
            tags.append(words[-1] % TYPES * 2 if name else TAGS - 1)
            for _ in range(rng.randint(0, 3) if name else 0):
                words.append(int(rng.randint(10, WORDS)))
                marks.append(1)
                tags.append(tags[-1] | 1)
        yield words, marks, tags


def net_conf(word, mark, target):
    def bigru(input):
        attr = fluid.ParamAttr(
            initializer=fluid.initializer.Uniform(low=-0.2, high=0.2),
            regularizer=fluid.regularizer.L2DecayRegularizer(regularization_coeff=1e-4),
        )

        def one(is_reverse):
            gates = fluid.layers.fc(input=input, size=HIDDEN * 3, param_attr=attr)
            return fluid.layers.dynamic_gru(input=gates, size=HIDDEN, param_attr=attr, is_reverse=is_reverse)

        return fluid.layers.concat(input=[one(False), one(True)], axis=1)

    uniform = fluid.initializer.Uniform(low=-0.2, high=0.2)
    word_emb = fluid.layers.embedding(
        input=word,
        size=[WORDS, WIDTH],
        is_sparse=True,
        param_attr=fluid.ParamAttr(learning_rate=5.0, name="word_emb", initializer=uniform),
    )
    mark_emb = fluid.layers.embedding(
        input=mark, size=[MARKS, 4], is_sparse=True, param_attr=fluid.ParamAttr(initializer=uniform)
    )
    layer = fluid.layers.fc(input=[word_emb, mark_emb], size=HIDDEN, act="tanh")
    for _ in range(2):
        layer = bigru(layer)
    emission = fluid.layers.fc(
        input=layer, size=TAGS, param_attr=fluid.ParamAttr(name="emission.w", initializer=uniform)
    )
    crf_cost = fluid.layers.linear_chain_crf(
        input=emission, label=target, param_attr=fluid.ParamAttr(name="crfw", learning_rate=0.2)
    )
    return fluid.layers.mean(x=crf_cost), emission


def main():
    fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 1
    random.seed(1)  # the order of shuffle
    word, mark, target = (
        fluid.layers.data(name=name, shape=[1], dtype="int64", lod_level=1)
        for name in ("word", "mark", "target")
    )
    avg_cost, emission = net_conf(word, mark, target)
    fluid.optimizer.Adam(learning_rate=0.01).minimize(avg_cost)
    decode = fluid.layers.crf_decoding(input=emission, param_attr=fluid.ParamAttr(name="crfw"))
    _, _, _, found, there, right = fluid.layers.chunk_eval(
        input=decode, label=target, chunk_scheme="IOB", num_chunk_types=TYPES
    )
    chunk_evaluator = fluid.metrics.ChunkEvaluator()
    inference_program = fluid.default_main_program().clone(for_test=True)
    place = fluid.CPUPlace()
    feeder = fluid.DataFeeder(feed_list=[word, mark, target], place=place)
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    test_exe = exe
    train_exe = fluid.ParallelExecutor(loss_name=avg_cost.name, use_cuda=False)
    batches = paddle.batch(paddle.reader.shuffle(reader, 100), batch_size=BATCH)
    for _ in range(3):
        for data in batches():
            (cost,) = train_exe.run(fetch_list=[avg_cost.name], feed=feeder.feed(data))
            print("loss: %f" % np.array(cost).mean(), flush=True)
        chunk_evaluator.reset()
        for data in batches():
            counts = test_exe.run(inference_program, feed=feeder.feed(data), fetch_list=[found, there, right])
            chunk_evaluator.update(*(np.array(each) for each in counts))
        precision, recall, f1 = chunk_evaluator.eval()
        print("precision %f recall %f f1 %f" % (precision, recall, f1))
    assert f1 > 0.6, f1
    folder = tempfile.mkdtemp()
    fluid.io.save_inference_model(folder, ["word", "mark", "target"], [decode], exe)
    program, names, targets = fluid.io.load_inference_model(folder, exe)
    (tags,) = exe.run(
        program, feed=feeder.feed(data) if "target" in names else None, fetch_list=targets, return_numpy=False
    )
    lod = tags.lod()[0]
    assert lod[-1] == np.array(tags).shape[0] == sum(len(each[0]) for each in data)


if __name__ == "__main__":
    main()
