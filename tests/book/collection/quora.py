# SPDX-License-Identifier: Apache-2.0
"""Pairs of questions in boxes of unknown sizes with masks; word vectors set through the scope after startup."""

import numpy as np

import paddle.fluid as fluid

WORDS, WIDTH, BATCH = 30, 8, 8


def pairs():
    rng = np.random.RandomState(17)
    for _ in range(40):
        kinds, others = rng.randint(0, 3, (2, BATCH))
        label = (kinds == others).astype("int64")[:, None]
        left, right = (
            of[:, None] * 10 + rng.randint(0, 10, (BATCH, rng.randint(2, 6))) for of in (kinds, others)
        )
        yield (
            left[:, :, None],
            np.ones(left.shape, "float32"),
            right[:, :, None],
            np.ones(right.shape, "float32"),
            label,
        )


def encoded(name):
    words = fluid.layers.data(name=name, shape=[-1, -1, 1], dtype="int64")
    mask = fluid.layers.data(name=name + "_mask", shape=[-1, -1], dtype="float32")
    emb = fluid.layers.embedding(input=words, size=[WORDS, WIDTH], param_attr=fluid.ParamAttr(name="emb.w"))
    hidden = fluid.layers.fc(
        input=emb, size=WIDTH, num_flatten_dims=2, act="relu", param_attr="fc.w", bias_attr="fc.b"
    )
    masked = fluid.layers.elementwise_mul(hidden, mask, axis=0)
    return fluid.layers.reduce_max(masked, dim=1)


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    q1, q2 = encoded("question1"), encoded("question2")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    both = fluid.layers.concat([q1, q2, fluid.layers.abs(q1 - q2), q1 * q2], axis=1)
    prediction = fluid.layers.fc(input=both, size=2, act="softmax")
    cost = fluid.layers.mean(x=fluid.layers.cross_entropy(input=prediction, label=label))
    acc = fluid.layers.accuracy(input=prediction, label=label)
    fluid.optimizer.Adam(learning_rate=0.02).minimize(cost)
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    vectors = np.random.RandomState(1).randn(WORDS, WIDTH).astype("float32")
    fluid.global_scope().find_var("emb.w").get_tensor().set(vectors, place)
    names = ["question1", "question1_mask", "question2", "question2_mask", "label"]
    for _ in range(3):
        costs = []
        for values in pairs():
            value, part = exe.run(feed=dict(zip(names, values)), fetch_list=[cost, acc])
            costs.append(value)
            print("loss: %f acc %f" % (value, part), flush=True)
        print("mean %f" % np.mean(costs, axis=0))


if __name__ == "__main__":
    main()
