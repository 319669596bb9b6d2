# SPDX-License-Identifier: Apache-2.0

"""Chapter 7 of Fluid's book: who does what to whom, by LSTMs to and fro under a conditional random field."""

import numpy
import roles

import paddle
import paddle.fluid as fluid
from paddle.dataset import conll05

WORD_DIM = 32
MARK_DIM = 5
HIDDEN_DIM = 64
DEPTH = 2

fluid.default_startup_program().random_seed = 7
word_dict, verb_dict, label_dict = conll05.get_dict()
names = ["word_data", "ctx_n2_data", "ctx_n1_data", "ctx_0_data", "ctx_p1_data", "ctx_p2_data"]
names += ["verb_data", "mark_data"]
inputs = [fluid.layers.data(name=name, shape=[1], dtype="int64", lod_level=1) for name in names]
target = fluid.layers.data(name="target", shape=[1], dtype="int64", lod_level=1)


def db_lstm():
    predicate, mark = inputs[6:]
    emb_layers = [
        fluid.layers.embedding(
            size=[len(word_dict), WORD_DIM],
            input=word,
            param_attr=fluid.ParamAttr(name="emb", trainable=False),
        )
        for word in inputs[:6]
    ]
    emb_layers.append(
        fluid.layers.embedding(
            input=predicate, size=[len(verb_dict), WORD_DIM], is_sparse=True, param_attr="vemb"
        )
    )
    emb_layers.append(fluid.layers.embedding(input=mark, size=[2, MARK_DIM], is_sparse=True))
    hidden_0 = fluid.layers.sums(
        [fluid.layers.fc(input=emb, size=HIDDEN_DIM, act="tanh") for emb in emb_layers]
    )
    lstm_0, _ = fluid.layers.dynamic_lstm(
        input=hidden_0,
        size=HIDDEN_DIM,
        candidate_activation="relu",
        gate_activation="sigmoid",
        cell_activation="sigmoid",
    )
    input_tmp = [hidden_0, lstm_0]
    for depth in range(1, DEPTH):
        mix_hidden = fluid.layers.sums(
            [fluid.layers.fc(input=each, size=HIDDEN_DIM, act="tanh") for each in input_tmp]
        )
        lstm, _ = fluid.layers.dynamic_lstm(
            input=mix_hidden,
            size=HIDDEN_DIM,
            candidate_activation="relu",
            gate_activation="sigmoid",
            cell_activation="sigmoid",
            is_reverse=depth % 2 == 1,
        )
        input_tmp = [mix_hidden, lstm]
    return fluid.layers.sums(
        [fluid.layers.fc(input=each, size=len(label_dict), act="tanh") for each in input_tmp]
    )


feature_out = db_lstm()
crf_cost = fluid.layers.linear_chain_crf(
    input=feature_out, label=target, param_attr=fluid.ParamAttr(name="crfw", learning_rate=0.5)
)
avg_cost = fluid.layers.mean(crf_cost)
crf_decode = fluid.layers.crf_decoding(input=feature_out, param_attr=fluid.ParamAttr(name="crfw"))
chunks = fluid.layers.chunk_eval(
    input=crf_decode, label=target, chunk_scheme="IOB", num_chunk_types=(len(label_dict) - 1) // 2
)
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.SGD(
    learning_rate=fluid.layers.exponential_decay(
        learning_rate=0.05, decay_steps=1000, decay_rate=0.5, staircase=True
    )
).minimize(avg_cost)

place = fluid.CPUPlace()
exe = fluid.Executor(place)


def load_parameter(file_name, h, w):
    with open(file_name, "rb") as f:
        f.read(16)  # the header
        return numpy.fromfile(f, dtype=numpy.float32).reshape(h, w)


def train_loop(main_program):
    feeder = fluid.DataFeeder(feed_list=[*inputs, target], place=place)
    embedding_param = fluid.global_scope().find_var("emb").get_tensor()
    embedding_param.set(load_parameter(conll05.get_embedding(), len(word_dict), WORD_DIM), place)
    kept = paddle.reader.firstn(conll05.test(), 300)
    train_data = paddle.batch(paddle.reader.shuffle(roles.mine(kept), buf_size=8192), batch_size=10)
    for pass_id in range(3 * roles.trainers):
        for data in train_data():
            cost = exe.run(main_program, feed=feeder.feed(data), fetch_list=[avg_cost])[0]
        print("Pass %d, avg_cost: %.4f" % (pass_id, cost))
    if roles.export(exe, main_program, names, [crf_decode], test_program):
        infer(list(conll05.test()())[300:])


def infer(samples):
    feeder = fluid.DataFeeder(feed_list=[*inputs, target], place=place)
    evaluator = fluid.metrics.ChunkEvaluator()
    with fluid.scope_guard(fluid.core.Scope()):
        fluid.io.load_persistables(exe, "output/parameters", test_program)
        counts = exe.run(test_program, feed=feeder.feed(samples), fetch_list=list(chunks[3:]))
        evaluator.update(*(count.item() for count in counts))
        precision, recall, f1 = evaluator.eval()
    print(f"CHUNKS precision {precision:.4f}, recall {recall:.4f}")
    with fluid.scope_guard(fluid.core.Scope()):
        [program, feed_names, fetch_targets] = fluid.io.load_inference_model("output/model", exe)
        fed = {name: value for name, value in feeder.feed(samples).items() if name in feed_names}
        (decoded,) = exe.run(program, feed=fed, fetch_list=fetch_targets, return_numpy=False)
    right = numpy.array(decoded).ravel() == numpy.concatenate([sample[-1] for sample in samples])
    print(f"INFERRED accuracy {right.mean():.4f}")
    print(f"REACHED accuracy {f1:.4f}")


roles.run(exe, train_loop)
