# SPDX-License-Identifier: Apache-2.0
"""Triplets and pairs of embeddings in plain layers; the test program is built of its own data."""

import numpy as np

import paddle.fluid as fluid
import paddle.fluid.layers as layers

WIDTH, BATCH = 8, 12


class TripletLoss:
    def __init__(self, margin=0.1):
        self.margin = margin

    def loss(self, input):
        fea_dim = input.shape[1]
        output = layers.reshape(input, shape=[-1, 3, fea_dim])
        output = layers.l2_normalize(output, axis=2)
        anchor, positive, negative = layers.split(output, num_or_sections=3, dim=1)
        anchor, positive, negative = (
            layers.reshape(x, shape=[-1, fea_dim]) for x in (anchor, positive, negative)
        )
        a_p = layers.reduce_sum(layers.square(anchor - positive), dim=1)
        a_n = layers.reduce_sum(layers.square(anchor - negative), dim=1)
        return layers.reduce_mean(layers.relu(a_p + self.margin - a_n))


class NpairsLoss:
    def loss(self, input, label):
        a, p = input[0::1], layers.reverse(input, axis=[0])
        product = layers.matmul(a, p, False, True)
        same = layers.cast(
            layers.equal(
                layers.expand(label, [1, BATCH]),
                layers.transpose(layers.expand(layers.reverse(label, axis=[0]), [1, BATCH]), perm=[1, 0]),
            ),
            "float32",
        )
        count = layers.reduce_sum(same, dim=1, keep_dim=True)
        target = layers.elementwise_div(same, count, axis=0)
        target.stop_gradient = True
        cost = layers.softmax_with_cross_entropy(logits=product, label=target, soft_label=True)
        return layers.mean(cost) + 0.001 * layers.reduce_mean(layers.reduce_sum(layers.square(input), 1))


def embed(image):
    hidden = layers.fc(image, size=16, act="relu", name="hidden")
    return layers.fc(hidden, size=WIDTH, name="embedding")


def triplets(rng):
    kinds = rng.randint(0, 4, BATCH // 3)
    rows = []
    for kind in kinds:
        for each in (kind, kind, (kind + 1) % 4):
            row = rng.rand(8) * 0.6
            row[each * 2 : each * 2 + 2] += 1
            rows.append(row)
    return np.array(rows, "float32")


def main():
    rng = np.random.RandomState(13)
    startup, train_prog, test_prog = fluid.Program(), fluid.Program(), fluid.Program()
    startup.random_seed = train_prog.random_seed = 1
    with fluid.program_guard(train_prog, startup), fluid.unique_name.guard():
        image = layers.data(name="image", shape=[8], dtype="float32")
        loss = TripletLoss().loss(embed(image))
        fluid.optimizer.Momentum(
            learning_rate=layers.piecewise_decay([60], [0.2, 0.02]),
            momentum=0.9,
            regularization=fluid.regularizer.L2Decay(5e-4),
        ).minimize(loss)
    with fluid.program_guard(test_prog, startup), fluid.unique_name.guard():
        image = layers.data(name="image", shape=[8], dtype="float32")
        out = embed(image)
    test_prog = test_prog.clone(for_test=True)
    fluid.memory_optimize(train_prog, skip_opt_set={loss.name})
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    for _ in range(80):
        (value,) = exe.run(train_prog, feed={"image": triplets(rng)}, fetch_list=[loss.name])
        print("loss: %f" % value, flush=True)
    (found,) = exe.run(test_prog, feed={"image": triplets(rng)}, fetch_list=[out])
    assert found.shape == (BATCH, WIDTH)
    pairs, pair_startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(pairs, pair_startup), fluid.unique_name.guard():
        image = layers.data(name="image", shape=[BATCH, 8], dtype="float32", append_batch_size=False)
        label = layers.data(name="label", shape=[BATCH, 1], dtype="int64", append_batch_size=False)
        cost = NpairsLoss().loss(embed(image), label)
        fluid.optimizer.Adam(1e-2).minimize(cost)
    exe.run(pair_startup)
    label = np.arange(BATCH)[:, None] % 4
    feed = {"image": np.eye(8, dtype="float32")[label[:, 0]], "label": label}
    costs = [float(exe.run(pairs, feed=feed, fetch_list=[cost])[0]) for _ in range(30)]
    assert costs[-1] < costs[0]


if __name__ == "__main__":
    main()
