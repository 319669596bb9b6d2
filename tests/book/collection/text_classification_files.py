# SPDX-License-Identifier: Apache-2.0
"""Bag of words over files of MultiSlot text, which AsyncExecutor reads as a protobuf text beside them describes."""

import os
import tempfile

import numpy as np

import paddle.fluid as fluid

WORDS, WIDTH, BATCH = 40, 12, 16
DESC = """name: "MultiSlotDataFeed"
batch_size: 2
multi_slot_desc {
  slots {
    name: "words"
    type: "uint64"
    is_dense: false
    is_used: false
  }
  slots {
    name: "title"
    type: "uint64"
    is_dense: false
    is_used: false
  }
  slots {
    name: "label"
    type: "uint64"
    is_dense: false
    is_used: false
  }
}
"""


def write_files(folder):
    rng = np.random.RandomState(51)
    for number in range(3):
        with open(os.path.join(folder, "part-%d" % number), "w") as out:
            for _ in range(BATCH * 4):
                label = rng.randint(0, 2)
                words = [str(each) for each in rng.randint(0, 20, rng.randint(2, 6)) * 2 + label]
                out.write("%d %s 1 7 1 %d\n" % (len(words), " ".join(words), label))
    with open(os.path.join(folder, "data.prototxt"), "w") as out:
        out.write(DESC)


def bow_net(words, label):
    emb = fluid.layers.embedding(input=words, size=[WORDS, WIDTH])
    bow_tanh = fluid.layers.tanh(fluid.layers.sequence_pool(input=emb, pool_type="sum"))
    hidden = fluid.layers.fc(input=bow_tanh, size=WIDTH, act="tanh")
    prediction = fluid.layers.fc(input=[hidden], size=2, act="softmax")
    cost = fluid.layers.mean(x=fluid.layers.cross_entropy(input=prediction, label=label))
    return cost, fluid.layers.accuracy(input=prediction, label=label), prediction


def main():
    folder = tempfile.mkdtemp()
    write_files(folder)
    fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 1
    data = fluid.layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    avg_cost, acc, prediction = bow_net(data, label)
    inference = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adagrad(learning_rate=0.05).minimize(avg_cost)
    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    async_executor = fluid.AsyncExecutor(place)
    data_feed = fluid.DataFeedDesc(os.path.join(folder, "data.prototxt"))
    data_feed.set_batch_size(BATCH)
    data_feed.set_use_slots(["words", "label"])
    filelist = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name != "data.prototxt"]
    held_out = np.arange(WORDS).reshape(-1, 1)
    feed = {
        "words": fluid.create_lod_tensor(held_out, [[1] * WORDS], place),
        "label": held_out % 2,
    }
    for epoch in range(20):
        async_executor.run(
            fluid.default_main_program(), data_feed, filelist, 2, [acc, avg_cost], debug=epoch == 0
        )
        cost, part = executor.run(inference, feed=feed, fetch_list=[avg_cost, acc])
        print("loss: %f acc %f" % (cost, part), flush=True)
        fluid.io.save_inference_model(
            os.path.join(folder, "epoch%d.model" % epoch), ["words", "label"], [acc], executor
        )
    assert part > 0.9, part


if __name__ == "__main__":
    main()
