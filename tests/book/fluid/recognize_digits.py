# SPDX-License-Identifier: Apache-2.0

"""Chapter 2 of Fluid's book: digits by two convolutions, from a PyReader, as a compiled program."""

import numpy
import roles

import paddle
import paddle.fluid as fluid

BATCH_SIZE = 64
fluid.default_startup_program().random_seed = 7
img = fluid.layers.data(name="img", shape=[1, 28, 28], dtype="float32")
label = fluid.layers.data(name="label", shape=[1], dtype="int64")
conv_pool_1 = fluid.nets.simple_img_conv_pool(
    input=img, filter_size=5, num_filters=8, pool_size=2, pool_stride=2, act="relu"
)
conv_pool_1 = fluid.layers.batch_norm(conv_pool_1)
conv_pool_2 = fluid.nets.simple_img_conv_pool(
    input=conv_pool_1, filter_size=5, num_filters=16, pool_size=2, pool_stride=2, act="relu"
)
prediction = fluid.layers.fc(input=conv_pool_2, size=10, act="softmax")
loss = fluid.layers.cross_entropy(input=prediction, label=label)
avg_loss = fluid.layers.mean(loss)
acc = fluid.layers.accuracy(input=prediction, label=label)
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.Adam(learning_rate=0.003).minimize(avg_loss)

place = fluid.CPUPlace()
exe = fluid.Executor(place)


def train_loop(main_program):
    compiled = fluid.CompiledProgram(main_program).with_data_parallel(loss_name=avg_loss.name)
    reader = fluid.io.PyReader(feed_list=[img, label], capacity=4, iterable=True, return_list=False)
    batches = paddle.batch(
        paddle.reader.firstn(roles.mine(paddle.dataset.mnist.train()), 60 * BATCH_SIZE), BATCH_SIZE
    )
    reader.decorate_sample_list_generator(batches, places=fluid.cpu_places())
    for batch_id, data in enumerate(reader()):
        loss_value, acc_value = exe.run(compiled, feed=data, fetch_list=[avg_loss.name, acc.name])
        if batch_id % 10 == 0:
            print(f"Batch {batch_id}, cost {loss_value[0]:.4f}, accuracy {float(acc_value[0]):.3f}")
    if roles.trainer_id == 0:
        test()
        fluid.io.save_inference_model("output/model", ["img"], [prediction], exe, main_program=test_program)
        infer()


def test():
    feeder = fluid.DataFeeder(feed_list=[img, label], place=place)
    accuracies = []
    for data in paddle.batch(paddle.reader.firstn(paddle.dataset.mnist.test(), 1000), 100)():
        (acc_value,) = exe.run(test_program, feed=feeder.feed(data), fetch_list=[acc])
        accuracies.append(float(acc_value))
    print(f"REACHED accuracy {numpy.array(accuracies).mean():.4f}")


def infer():
    samples = list(paddle.reader.firstn(paddle.dataset.mnist.test(), 200)())
    images = numpy.array([sample[0] for sample in samples]).reshape(-1, 1, 28, 28).astype("float32")
    with fluid.scope_guard(fluid.core.Scope()):
        [program, feed_names, fetch_targets] = fluid.io.load_inference_model("output/model", exe)
        (probabilities,) = exe.run(program, feed={feed_names[0]: images}, fetch_list=fetch_targets)
    right = probabilities.argmax(axis=1) == numpy.array([sample[1] for sample in samples])
    print(f"INFERRED accuracy {right.mean():.4f}")


roles.run(exe, train_loop)
