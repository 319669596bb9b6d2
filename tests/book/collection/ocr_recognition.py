# SPDX-License-Identifier: Apache-2.0
"""Columns of images through two GRUs into CTC, with an average of the model and the edit distance."""

import numpy as np

import paddle.fluid as fluid
from paddle.fluid import ParamAttr
from paddle.fluid.clip import GradientClipByNorm
from paddle.fluid.initializer import Normal
from paddle.fluid.regularizer import L2Decay

CLASSES, HEIGHT, WIDE, BATCH = 4, 8, 24, 6


def batches():
    rng = np.random.RandomState(14)
    for _ in range(40):
        images = rng.rand(BATCH, 1, HEIGHT, WIDE).astype("float32") * 0.1
        labels = rng.randint(0, CLASSES, (BATCH, 3)).astype("int32")
        for at, label in enumerate(labels):
            for place, each in enumerate(label):
                images[at, 0, each * 2 : each * 2 + 2, place * 8 : place * 8 + 6] += 1
        yield images, labels


def conv_bn_pool(input, group, channels):
    tmp = input
    for out in channels:
        tmp = fluid.layers.conv2d(
            input=tmp,
            num_filters=out,
            filter_size=3,
            padding=1,
            param_attr=ParamAttr(initializer=Normal(0.0, 0.2)),
            act=None,
            use_cudnn=False,
        )
        tmp = fluid.layers.batch_norm(input=tmp, act="relu", is_test=0)
    return fluid.layers.pool2d(
        input=tmp, pool_size=2, pool_type="max", pool_stride=2, use_cudnn=True, ceil_mode=True
    )


def encoder(images, hidden=16):
    features = conv_bn_pool(images, 1, [8])
    sliced = fluid.layers.im2sequence(
        input=features, stride=[1, 1], filter_size=[features.shape[2], 1], padding=[0, 0, 0, 0]
    )
    attr = ParamAttr(
        regularizer=L2Decay(4e-4), gradient_clip=GradientClipByNorm(10.0), initializer=Normal(0.0, 0.1)
    )
    bias = ParamAttr(regularizer=L2Decay(4e-4), learning_rate=2.0)
    first = fluid.layers.fc(input=sliced, size=hidden * 3, param_attr=attr, bias_attr=False)
    second = fluid.layers.fc(input=sliced, size=hidden * 3, param_attr=attr, bias_attr=False)
    forward = fluid.layers.dynamic_gru(
        input=first, size=hidden, param_attr=attr, bias_attr=bias, candidate_activation="relu"
    )
    backward = fluid.layers.dynamic_gru(
        input=second,
        size=hidden,
        is_reverse=True,
        param_attr=attr,
        bias_attr=bias,
        candidate_activation="relu",
    )
    return fluid.layers.fc(
        input=[forward, backward], size=CLASSES + 1, param_attr=attr, bias_attr=ParamAttr(learning_rate=2.0)
    )


def main():
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    images = fluid.layers.data(name="pixel", shape=[1, HEIGHT, WIDE], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int32", lod_level=1)
    out = encoder(images)
    cost = fluid.layers.warpctc(input=out, label=label, blank=CLASSES, norm_by_times=True)
    loss = fluid.layers.reduce_sum(cost)
    decoded = fluid.layers.ctc_greedy_decoder(input=out, blank=CLASSES)
    casted = fluid.layers.cast(x=label, dtype="int64")
    evaluator = fluid.evaluator.EditDistance(decoded, casted)
    inference = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.01).minimize(loss)
    average = fluid.optimizer.ModelAverage(0.15, min_average_window=10, max_average_window=20)
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())

    def feed(batch):
        pixels, rows = batch
        return {"pixel": pixels, "label": fluid.create_lod_tensor(rows.reshape(-1, 1), [[3] * BATCH], place)}

    for _ in range(3):
        evaluator.reset(exe)
        for batch in batches():
            values = exe.run(feed=feed(batch), fetch_list=[loss, *evaluator.metrics])
            print("loss: %.4f" % values[0], flush=True)
    with average.apply(exe):
        evaluator.reset(exe)
        exe.run(inference, feed=feed(batch), fetch_list=[out], return_numpy=False)
    distance, error = evaluator.eval(exe)
    assert np.isfinite(distance).all() and np.isfinite(error).all()


if __name__ == "__main__":
    main()
