# SPDX-License-Identifier: Apache-2.0
"""Skip-gram with negative samples; the trainer runs the default program, which the transpiler changed."""

import os

import numpy as np

import paddle.fluid as fluid

WORDS, WIDTH, NEGATIVES, BATCH = 60, 16, 5, 32


def batches(trainer, trainers):
    def provide():
        rng = np.random.RandomState(1)
        for _ in range(30):
            words = rng.randint(0, WORDS, (BATCH, 1))
            near = (words + 1) % WORDS
            far = rng.randint(0, WORDS, (BATCH, NEGATIVES))
            tensors = []
            for each in (words, near, far):
                tensor = fluid.Tensor()
                tensor.set(each[trainer::trainers].astype("int64"), fluid.CPUPlace())
                tensors.append(tensor)
            yield tensors

    return provide


def skip_gram():
    data = [
        fluid.layers.data(name="input_word", shape=[1], dtype="int64"),
        fluid.layers.data(name="true_label", shape=[1], dtype="int64"),
        fluid.layers.data(name="neg_label", shape=[NEGATIVES], dtype="int64"),
    ]
    reader = fluid.layers.create_py_reader_by_data(
        capacity=64, feed_list=data, name="py_reader", use_double_buffer=True
    )
    word, true, negative = fluid.layers.read_file(reader)
    bound = 0.5 / WIDTH
    emb = fluid.layers.embedding(
        input=word,
        is_sparse=True,
        size=[WORDS, WIDTH],
        param_attr=fluid.ParamAttr(name="emb", initializer=fluid.initializer.Uniform(-bound, bound)),
    )
    true_w = fluid.layers.embedding(
        input=true,
        is_sparse=True,
        size=[WORDS, WIDTH],
        param_attr=fluid.ParamAttr(name="emb_w", initializer=fluid.initializer.Constant(value=0.0)),
    )
    true_b = fluid.layers.embedding(
        input=true,
        is_sparse=True,
        size=[WORDS, 1],
        param_attr=fluid.ParamAttr(name="emb_b", initializer=fluid.initializer.Constant(value=0.0)),
    )
    flat = fluid.layers.reshape(negative, shape=[-1, 1], inplace=False)
    flat.stop_gradient = True
    neg_w = fluid.layers.embedding(
        input=flat,
        is_sparse=True,
        size=[WORDS, WIDTH],
        param_attr=fluid.ParamAttr(name="emb_w", learning_rate=1.0),
    )
    neg_w = fluid.layers.reshape(neg_w, shape=[-1, NEGATIVES, WIDTH], inplace=False)
    neg_b = fluid.layers.embedding(
        input=flat,
        is_sparse=True,
        size=[WORDS, 1],
        param_attr=fluid.ParamAttr(name="emb_b", learning_rate=1.0),
    )
    neg_b = fluid.layers.reshape(neg_b, shape=[-1, NEGATIVES])
    true_logits = fluid.layers.elementwise_add(
        fluid.layers.reduce_sum(fluid.layers.elementwise_mul(emb, true_w), dim=1, keep_dim=True), true_b
    )
    emb_re = fluid.layers.reshape(emb, shape=[-1, 1, WIDTH], inplace=False)
    neg_matmul = fluid.layers.reshape(
        fluid.layers.matmul(emb_re, neg_w, transpose_y=True), shape=[-1, NEGATIVES], inplace=False
    )
    neg_logits = fluid.layers.elementwise_add(neg_matmul, neg_b)
    ones = fluid.layers.fill_constant_batch_size_like(true_logits, shape=[-1, 1], value=1.0, dtype="float32")
    zeros = fluid.layers.fill_constant_batch_size_like(
        true_logits, shape=[-1, NEGATIVES], value=0.0, dtype="float32"
    )
    cost = fluid.layers.elementwise_add(
        fluid.layers.reduce_sum(fluid.layers.sigmoid_cross_entropy_with_logits(true_logits, ones), dim=1),
        fluid.layers.reduce_sum(fluid.layers.sigmoid_cross_entropy_with_logits(neg_logits, zeros), dim=1),
    )
    return fluid.layers.reduce_mean(cost), reader


def train(loss, reader, trainer, trainers):
    exe = fluid.Executor(fluid.CPUPlace())
    reader.decorate_tensor_provider(batches(trainer, trainers))
    exe.run(fluid.default_startup_program())
    for _ in range(2):
        reader.start()
        try:
            while True:
                loss_val = exe.run(fetch_list=[loss.name])
                assert reader.queue.size() >= 0
                print("loss: %f" % loss_val[0], flush=True)
        except fluid.core.EOFException:
            reader.reset()
    if trainer == 0 and os.getenv("MODEL_DIR"):
        fluid.io.save_params(exe, os.environ["MODEL_DIR"])
    exe.close()


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    loss, reader = skip_gram()
    rate = fluid.layers.exponential_decay(
        learning_rate=2.0, decay_steps=100000, decay_rate=0.999, staircase=True
    )
    fluid.optimizer.SGD(learning_rate=rate).minimize(loss)
    role, trainer = os.getenv("TRAINING_ROLE"), int(os.getenv("PADDLE_TRAINER_ID", "0"))
    trainers = int(os.getenv("PADDLE_TRAINERS_NUM", "1"))
    if role is not None:
        t = fluid.DistributeTranspiler()
        t.transpile(trainer, pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"], trainers=trainers)
        if role == "PSERVER":
            current = os.environ["PADDLE_CURRENT_ENDPOINT"]
            exe = fluid.Executor(fluid.CPUPlace())
            prog, startup = t.get_pserver_programs(current)
            exe.run(startup)
            exe.run(prog)
            return
        t.get_trainer_program()
    train(loss, reader, trainer, trainers)


if __name__ == "__main__":
    main()
