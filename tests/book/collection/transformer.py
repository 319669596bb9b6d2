# SPDX-License-Identifier: Apache-2.0
"""A small Transformer: nine inputs from a table, lengths per batch, positions fed as parameters in the first step.

Trainers that are started by a launcher without servers, as its variables say, agree among themselves.
"""

import os

import numpy as np

import paddle.fluid as fluid
import paddle.fluid.layers as layers

WORDS, MODEL, HEADS, LONGEST, BATCH = 20, 16, 2, 24, 8
SIZES = {
    "src_word": [(-1, LONGEST, 1), "int64", 2],
    "src_pos": [(-1, LONGEST, 1), "int64"],
    "src_slf_attn_bias": [(-1, HEADS, LONGEST, LONGEST), "float32"],
    "trg_word": [(-1, LONGEST, 1), "int64", 2],
    "trg_pos": [(-1, LONGEST, 1), "int64"],
    "trg_slf_attn_bias": [(-1, HEADS, LONGEST, LONGEST), "float32"],
    "trg_src_attn_bias": [(-1, HEADS, LONGEST, LONGEST), "float32"],
    "lbl_word": [(-1 * LONGEST, 1), "int64"],
    "lbl_weight": [(-1 * LONGEST, 1), "float32"],
}


def positions():
    place = np.arange(LONGEST + 1)[:, None] / np.power(10000, np.arange(MODEL) // 2 * 2 / MODEL)
    return np.where(np.arange(MODEL) % 2, np.cos(place), np.sin(place)).astype("float32")


def attention(queries, keys, bias):
    keys = queries if keys is None else keys

    def split(x, size):
        x = layers.reshape(x=x, shape=[0, 0, HEADS, size // HEADS], inplace=True)
        return layers.transpose(x=x, perm=[0, 2, 1, 3])

    q, k, v = (
        split(layers.fc(input=each, size=MODEL, bias_attr=False, num_flatten_dims=2), MODEL)
        for each in (queries, keys, keys)
    )
    product = layers.matmul(x=q, y=k, transpose_y=True, alpha=(MODEL // HEADS) ** -0.5)
    if bias:
        product += bias
    out = layers.matmul(layers.softmax(product), v)
    out = layers.reshape(x=layers.transpose(out, perm=[0, 2, 1, 3]), shape=[0, 0, MODEL], inplace=True)
    return layers.fc(input=out, size=MODEL, bias_attr=False, num_flatten_dims=2)


def normed(previous, out):
    return layers.layer_norm(
        out + previous,
        begin_norm_axis=2,
        param_attr=fluid.initializer.Constant(1.0),
        bias_attr=fluid.initializer.Constant(0.0),
    )


def feed_forward(x):
    hidden = layers.fc(input=x, size=MODEL * 2, num_flatten_dims=2, act="relu")
    return layers.fc(input=hidden, size=MODEL, num_flatten_dims=2)


def embedded(word, pos, side):
    emb = layers.embedding(
        word,
        size=[WORDS, MODEL],
        padding_idx=0,
        param_attr=fluid.ParamAttr(
            name=side + "_emb", initializer=fluid.initializer.Normal(0.0, MODEL**-0.5)
        ),
    )
    emb = layers.scale(x=emb, scale=MODEL**0.5)
    enc = layers.embedding(
        pos, size=[LONGEST + 1, MODEL], param_attr=fluid.ParamAttr(name=side + "_pos_enc", trainable=False)
    )
    enc.stop_gradient = True
    return emb + enc


def network():
    data = {
        name: layers.data(
            name=name, shape=each[0], dtype=each[1], lod_level=(each[2:] or [0])[0], append_batch_size=False
        )
        for name, each in SIZES.items()
    }
    enc = embedded(data["src_word"], data["src_pos"], "src")
    enc = normed(enc, attention(enc, None, data["src_slf_attn_bias"]))
    enc = normed(enc, feed_forward(enc))
    dec = embedded(data["trg_word"], data["trg_pos"], "trg")
    dec = normed(dec, attention(dec, None, data["trg_slf_attn_bias"]))
    dec = normed(dec, attention(dec, enc, data["trg_src_attn_bias"]))
    dec = normed(dec, feed_forward(dec))
    logits = layers.fc(layers.reshape(dec, shape=[-1, MODEL], inplace=True), size=WORDS, bias_attr=False)
    label = layers.label_smooth(label=layers.one_hot(input=data["lbl_word"], depth=WORDS), epsilon=0.1)
    cost = layers.softmax_with_cross_entropy(logits=logits, label=label, soft_label=True)
    weighted = cost * fluid.default_main_program().global_block().var("lbl_weight")
    sum_cost = layers.reduce_sum(weighted)
    token_num = layers.reduce_sum(data["lbl_weight"])
    token_num.stop_gradient = True
    return sum_cost / token_num, token_num


def batches(trainer, trainers):
    rng = np.random.RandomState(9)
    for _ in range(30):
        length = rng.randint(3, 8)
        src = rng.randint(2, WORDS, (BATCH, length))
        trg = np.concatenate([np.ones((BATCH, 1), int), src[:, ::-1]], axis=1)[trainer::trainers]
        src = src[trainer::trainers]
        count, wide = len(src), length + 1
        causal = np.triu(np.full((wide, wide), -1e9), 1)
        yield {
            "src_word": src[:, :, None],
            "src_pos": np.tile(np.arange(length)[None, :, None], (count, 1, 1)),
            "src_slf_attn_bias": np.zeros((count, HEADS, length, length), "float32"),
            "trg_word": trg[:, :, None],
            "trg_pos": np.tile(np.arange(wide)[None, :, None], (count, 1, 1)),
            "trg_slf_attn_bias": np.tile(causal, (count, HEADS, 1, 1)).astype("float32"),
            "trg_src_attn_bias": np.zeros((count, HEADS, wide, length), "float32"),
            "lbl_word": np.concatenate([trg[:, 1:], np.zeros((count, 1), int)], axis=1).reshape(-1, 1),
            "lbl_weight": np.ones((count * wide, 1), "float32"),
        }


def train(program, loss, token_num, trainer, trainers, **parallel):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    pe = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name, main_program=program, **parallel)
    first = True
    for _ in range(3):
        for feed in batches(trainer, trainers):
            if first:
                feed.update({name: positions() for name in ("src_pos_enc", "trg_pos_enc")})
                first = False
            outs = pe.run(fetch_list=[loss.name, token_num.name], feed=[feed])
            total, tokens = np.array(outs[0]), np.array(outs[1])
            print("loss: %f" % total.sum(), "tokens %d" % tokens.sum(), flush=True)
    table = np.array(fluid.global_scope().find_var("src_pos_enc").get_tensor())
    np.testing.assert_array_equal(table, positions())


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    loss, token_num = network()
    with fluid.default_main_program()._lr_schedule_guard():
        rate = layers.learning_rate_scheduler.noam_decay(MODEL, 20) * 0.5
    fluid.optimizer.Adam(learning_rate=rate, beta1=0.9, beta2=0.997, epsilon=1e-9).minimize(loss)
    fluid.memory_optimize(fluid.default_main_program())
    endpoints = os.getenv("PADDLE_TRAINER_ENDPOINTS", "")
    role, trainer = os.getenv("TRAINING_ROLE"), int(os.getenv("PADDLE_TRAINER_ID", "0"))
    trainers = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
    if len(endpoints.split(",")) > 1:
        config = fluid.DistributeTranspilerConfig()
        config.mode = "nccl2"
        t = fluid.DistributeTranspiler(config=config)
        current = os.environ["PADDLE_CURRENT_ENDPOINT"]
        t.transpile(trainer, trainers=endpoints, current_endpoint=current)
        ranks = {"num_trainers": trainers, "trainer_id": trainer}
        train(fluid.default_main_program(), loss, token_num, trainer, trainers, **ranks)
        return
    if role is None:
        train(fluid.default_main_program(), loss, token_num, 0, 1)
        return
    t = fluid.DistributeTranspiler()
    t.transpile(trainer, pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"], trainers=trainers)
    if role == "PSERVER":
        current = os.environ["PADDLE_CURRENT_ENDPOINT"]
        exe = fluid.Executor(fluid.CPUPlace())
        prog = t.get_pserver_program(current)
        exe.run(t.get_startup_program(current, prog))
        exe.run(prog)
    else:
        train(t.get_trainer_program(), loss, token_num, trainer, trainers)


if __name__ == "__main__":
    main()
