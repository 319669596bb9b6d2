# SPDX-License-Identifier: Apache-2.0

"""Chapter 4 of Fluid's book: the fifth word from four that share a sparse table."""

import numpy
import roles

import paddle
import paddle.fluid as fluid

EMBED_SIZE = 32
HIDDEN_SIZE = 64
N = 5
BATCH_SIZE = 100

fluid.default_startup_program().random_seed = 7
word_dict = paddle.dataset.imikolov.build_dict()
dict_size = len(word_dict)
names = ["firstw", "secondw", "thirdw", "forthw", "nextw"]
words = [fluid.layers.data(name=name, shape=[1], dtype="int64") for name in names]
embeds = [
    fluid.layers.embedding(
        input=word, size=[dict_size, EMBED_SIZE], dtype="float32", is_sparse=True, param_attr="shared_w"
    )
    for word in words[:-1]
]
concat_embed = fluid.layers.concat(input=embeds, axis=1)
hidden1 = fluid.layers.fc(input=concat_embed, size=HIDDEN_SIZE, act="sigmoid")
predict_word = fluid.layers.fc(input=hidden1, size=dict_size, act="softmax")
cost = fluid.layers.cross_entropy(input=predict_word, label=words[-1])
avg_cost = fluid.layers.mean(cost)
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.Adagrad(learning_rate=0.05).minimize(avg_cost)

place = fluid.CPUPlace()
exe = fluid.Executor(place)


def train_loop(main_program):
    feeder = fluid.DataFeeder(feed_list=words, place=place)
    reader = roles.mine(paddle.dataset.imikolov.train(word_dict, N))
    batches = paddle.batch(paddle.reader.firstn(reader, 200 * BATCH_SIZE), BATCH_SIZE)
    for batch_id, data in enumerate(batches()):
        avg_cost_np = exe.run(main_program, feed=feeder.feed(data), fetch_list=[avg_cost])
        if batch_id % 50 == 0:
            print("Batch %d, cost %.2f" % (batch_id, avg_cost_np[0]))
    if roles.export(exe, main_program, names[:-1], [predict_word], test_program):
        infer()


def infer():
    samples = list(paddle.reader.firstn(paddle.dataset.imikolov.test(word_dict, N), 2000)())
    with fluid.scope_guard(fluid.core.Scope()):
        [program, feed_names, fetch_targets] = fluid.io.load_inference_model("output/model", exe)
        lod = [[1] * len(samples)]
        feed = {
            name: fluid.create_lod_tensor(numpy.array([[s[place_]] for s in samples], "int64"), lod, place)
            for place_, name in enumerate(feed_names)
        }
        results = exe.run(program, feed=feed, fetch_list=fetch_targets, return_numpy=False)
    probabilities = numpy.array(results[0])
    costs = -numpy.log(probabilities[numpy.arange(len(samples)), [s[-1] for s in samples]])
    print(f"REACHED cost {costs.mean():.4f} of {numpy.log(dict_size):.4f}")


roles.run(exe, train_loop)
