# SPDX-License-Identifier: Apache-2.0

"""Chapter 3 of Fluid's book: small pictures by groups of convolutions with batch norm, by a ParallelExecutor."""

import numpy
import roles

import paddle
import paddle.fluid as fluid

BATCH_SIZE = 64
fluid.default_startup_program().random_seed = 7
images = fluid.layers.data(name="pixel", shape=[3, 32, 32], dtype="float32")
label = fluid.layers.data(name="label", shape=[1], dtype="int64")


def conv_block(ipt, num_filter, groups, dropouts):
    return fluid.nets.img_conv_group(
        input=ipt,
        pool_size=2,
        pool_stride=2,
        conv_num_filter=[num_filter] * groups,
        conv_filter_size=3,
        conv_act="relu",
        conv_with_batchnorm=True,
        conv_batchnorm_drop_rate=dropouts,
        pool_type="max",
    )


def shortcut(ipt, ch_out):
    tmp = fluid.layers.conv2d(ipt, num_filters=ch_out, filter_size=3, padding=1, bias_attr=False)
    return fluid.layers.elementwise_add(x=fluid.layers.batch_norm(tmp), y=ipt, act="relu")


conv1 = conv_block(fluid.layers.pool2d(images, 2, "avg", 2), 16, 2, [0.1, 0])
conv2 = conv_block(shortcut(conv1, 16), 16, 1, [0])
drop = fluid.layers.dropout(x=conv2, dropout_prob=0.1)
predict = fluid.layers.fc(input=drop, size=10, act="softmax")
cost = fluid.layers.cross_entropy(input=predict, label=label)
avg_cost = fluid.layers.mean(cost)
acc = fluid.layers.accuracy(input=predict, label=label)
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.Adam(learning_rate=0.005).minimize(avg_cost)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
feeder = fluid.DataFeeder(place=place, feed_list=[images, label])


def train_loop(main_program):
    pe = fluid.ParallelExecutor(use_cuda=False, loss_name=avg_cost.name, main_program=main_program)
    train_reader = paddle.batch(roles.mine(paddle.dataset.cifar.train10()), batch_size=BATCH_SIZE)
    for pass_id in range(2 * roles.trainers):
        for data in train_reader():
            loss, accuracy = pe.run(fetch_list=[avg_cost.name, acc.name], feed=feeder.feed(data))
        print(f"Pass {pass_id}, cost {numpy.mean(loss):.3f}, accuracy {numpy.mean(accuracy):.3f}")
    if roles.trainer_id == 0:
        accuracies = []
        for data in paddle.batch(paddle.dataset.cifar.test10(), batch_size=BATCH_SIZE)():
            (value,) = exe.run(program=test_program, feed=feeder.feed(data), fetch_list=[acc])
            accuracies += [float(value)] * len(data)
        print(f"REACHED accuracy {numpy.mean(accuracies):.4f}")
        fluid.io.save_inference_model("output/model", ["pixel"], [predict], exe, main_program=test_program)
        infer()


def infer():
    samples = list(paddle.dataset.cifar.test10()())
    pixels = numpy.array([sample[0] for sample in samples], "float32").reshape(-1, 3, 32, 32)
    with fluid.scope_guard(fluid.core.Scope()):
        [program, feed_names, fetch_targets] = fluid.io.load_inference_model("output/model", exe)
        (results,) = exe.run(program, feed={feed_names[0]: pixels}, fetch_list=fetch_targets)
    right = results.argmax(1) == [sample[1] for sample in samples]
    print(f"INFERRED accuracy {right.mean():.4f}")


roles.run(exe, train_loop)
