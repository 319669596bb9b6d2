# SPDX-License-Identifier: Apache-2.0
"""Predicts a word from the four preceding words; trains alone or as one trainer of a cluster.

In a cluster (PADDLE_CLUSTER_TRAIN is true), paddle.init() reads its settings from PADDLE_INIT_*, and each trainer
reads its own pieces of train.txt and test.txt. Alone, it reads both files whole. Trainer 0 writes
output/pass-NNNNN/params.tar.gz after every pass, and prints the nearest neighbors of some words at the end.

    --manual_settings   use the settings of PaddlePaddle's manual, which learn more slowly
"""

import gzip
import math
import os
import pickle
import random
import sys
from glob import glob
from typing import NamedTuple

import numpy as np

import paddle.v2 as paddle


class Settings(NamedTuple):
    hidden_size: int
    batch_size: int
    learning_rate: float
    l2_rate: float
    drop_rate: float
    initial_std: float


QUICK = Settings(128, 64, learning_rate=0.05, l2_rate=0.0, drop_rate=0.0, initial_std=0.1)
MANUAL = Settings(256, 32, learning_rate=3e-3, l2_rate=8e-4, drop_rate=0.5, initial_std=0.001)
settings = MANUAL if "--manual_settings" in sys.argv[1:] else QUICK

EMBEDDING_SIZE = 32
WORDS = ("firstw", "secondw", "thirdw", "fourthw", "nextw")
# words whose nearest neighbors are printed at the end: the first three that the dictionary contains
SHOWN = ("must", "is", "when", "he", "in", "the")

cluster_train_file = "./train.txt"
cluster_test_file = "./test.txt"
word_dict_file = "./word_dict.pickle"
cluster = os.getenv("PADDLE_CLUSTER_TRAIN", "") in ("true", "True", "TRUE", "1", "yes", "Yes", "YES")


def own_files(name, trainer_id, trainers):
    """Return the pieces whose number modulo `trainers` is this trainer's id, or the whole file outside a cluster."""
    if not cluster:
        return [name]
    pieces = sorted(
        path for path in glob(name + "-" + "[0-9]" * 5) if int(path[-5:]) % trainers == trainer_id
    )
    if not pieces:
        raise FileNotFoundError(
            f"trainer {trainer_id} of {trainers} has no piece {name}-{trainer_id:05d} in {os.getcwd()}: "
            f"run prepare.py --split_count={trainers} in the workspace, then submit it again"
        )
    return pieces


def reader(paths):
    """Return a reader of samples, one per line: the ids of five words."""

    def read():
        for path in paths:
            with open(path) as lines:
                for line in lines:
                    yield tuple(map(int, line.split(",")))

    return read


def embedding(word):
    return paddle.layer.table_projection(
        input=word,
        size=EMBEDDING_SIZE,
        param_attr=paddle.attr.Param(
            name="_proj", initial_std=settings.initial_std, learning_rate=1, l2_rate=0, sparse_update=True
        ),
    )


def network(dict_size):
    """Return the cost of predicting the fifth word."""
    words = [paddle.layer.data(name=name, type=paddle.data_type.integer_value(dict_size)) for name in WORDS]
    context = paddle.layer.concat(input=[embedding(word) for word in words[:-1]])
    hidden = paddle.layer.fc(
        input=context,
        size=settings.hidden_size,
        act=paddle.activation.Sigmoid(),
        layer_attr=paddle.attr.Extra(drop_rate=settings.drop_rate),
        bias_attr=paddle.attr.Param(learning_rate=2),
        param_attr=paddle.attr.Param(initial_std=1 / math.sqrt(EMBEDDING_SIZE * 8), learning_rate=1),
    )
    predicted = paddle.layer.fc(
        input=hidden,
        size=dict_size,
        bias_attr=paddle.attr.Param(learning_rate=2),
        act=paddle.activation.Softmax(),
    )
    return paddle.layer.classification_cost(input=predicted, label=words[-1])


def save(trainer, pass_id):
    """Save the model under output/ by a rename, so that readers never see an incomplete file."""
    folder = f"output/pass-{pass_id:05d}"
    os.makedirs(folder, exist_ok=True)
    with gzip.open("params.tar.gz.part", "wb") as file:
        trainer.save_parameter_to_tar(file)
    os.replace("params.tar.gz.part", f"{folder}/params.tar.gz")
    return f"{folder}/params.tar.gz"


def print_neighbors(word_dict, model):
    """Print the nearest neighbors of some words: words in similar contexts have embeddings in similar directions."""
    with gzip.open(model) as file:
        vectors = paddle.parameters.Parameters.from_tar(file).get("_proj")  # (words, EMBEDDING_SIZE)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    names = {number: word for word, number in word_dict.items()}
    for word in [word for word in SHOWN if word in word_dict][:3]:
        order = np.argsort(-vectors @ vectors[word_dict[word]])
        near = [names[number] for number in order if number != word_dict[word] and names[number].isalpha()]
        print(f"Nearest to {word!r}: {', '.join(near[:5])}")


def main():
    node_id = os.getenv("OMPI_COMM_WORLD_RANK", "" if cluster else "0")
    if not node_id:
        raise OSError("OMPI_COMM_WORLD_RANK must hold this trainer's id, from 0; paddle.py and mpirun set it")
    trainer_id = int(node_id)
    trainers = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))

    if cluster:
        paddle.init()
    else:
        paddle.init(use_gpu=False, trainer_count=1)

    with open(word_dict_file, "rb") as file:
        word_dict = pickle.load(file)
    cost = network(len(word_dict))
    parameters = paddle.parameters.create(cost)
    adagrad = paddle.optimizer.AdaGrad(
        learning_rate=settings.learning_rate,
        regularization=paddle.optimizer.L2Regularization(settings.l2_rate),
    )
    trainer = paddle.trainer.SGD(cost, parameters, adagrad, is_local=not cluster)

    random.seed(trainer_id)  # the order of shuffle, the same in every run
    train_files = own_files(cluster_train_file, trainer_id, trainers)
    test_files = own_files(cluster_test_file, trainer_id, trainers)
    train_batches = paddle.batch(paddle.reader.shuffle(reader(train_files), 10000), settings.batch_size)
    test_batches = paddle.batch(reader(test_files), settings.batch_size)
    costs, models = [], []

    def event_handler(event):
        if isinstance(event, paddle.event.BeginPass) and event.pass_id == 0:
            print(f"Before training, Test cost {trainer.test(test_batches).cost:f}")
        if isinstance(event, paddle.event.EndIteration):
            costs.append(event.cost)
        if isinstance(event, paddle.event.EndPass):
            result = trainer.test(test_batches)
            print(f"Pass {event.pass_id}, Train cost {sum(costs) / len(costs):f}, Test cost {result.cost:f}")
            costs.clear()
            if trainer_id == 0:
                models.append(save(trainer, event.pass_id))

    trainer.train(
        reader=train_batches,
        num_passes=int(os.getenv("PADDLE_INIT_NUM_PASSES", "5")),
        event_handler=event_handler,
        feeding={name: column for column, name in enumerate(WORDS)},
    )
    if models:
        print_neighbors(word_dict, models[-1])


if __name__ == "__main__":
    main()
