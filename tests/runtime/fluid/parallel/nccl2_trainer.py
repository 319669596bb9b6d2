# SPDX-License-Identifier: Apache-2.0
"""Small models of tests of nccl2 mode, and a trainer that prints its losses: `nccl2_trainer.py RANK ENDPOINTS`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import paddle.fluid as fluid

STEPS = 4
BATCH = 8
Feed = dict[str, Any]


def _mnist() -> Any:
    image, label = fluid.layers.data("image", [1, 28, 28]), fluid.layers.data("label", [1], dtype="int64")
    first = fluid.nets.simple_img_conv_pool(image, 4, 5, 2, 2, act="relu")
    second = fluid.nets.simple_img_conv_pool(first, 6, 5, 2, 2, act="relu")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(second, 10, act="softmax"), label))
    fluid.optimizer.Momentum(0.01, 0.9, regularization=fluid.regularizer.L2Decay(1e-3)).minimize(loss)
    return loss


def _word2vec() -> Any:
    words = [fluid.layers.data(f"word{at}", [1], dtype="int64") for at in range(4)]
    following = fluid.layers.data("next", [1], dtype="int64")
    rows = [fluid.layers.embedding(word, [50, 8], is_sparse=True, param_attr="shared_w") for word in words]
    hidden = fluid.layers.fc(fluid.layers.concat(rows, axis=1), 16, act="sigmoid")
    loss = fluid.layers.mean(
        fluid.layers.cross_entropy(fluid.layers.fc(hidden, 50, act="softmax"), following)
    )
    fluid.optimizer.Adagrad(0.05).minimize(loss)
    return loss


def _ctr() -> Any:
    dense, ids = fluid.layers.data("dense", [6]), fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
    click = fluid.layers.data("click", [1], dtype="int64")
    pooled = fluid.layers.sequence_pool(fluid.layers.embedding(ids, [40, 5], is_sparse=True), "sum")
    deep = fluid.layers.fc(
        fluid.layers.concat([pooled, fluid.layers.fc(dense, 8, act="relu")], axis=1), 8, act="relu"
    )
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(deep, 2, act="softmax"), click))
    fluid.optimizer.Adam(fluid.layers.exponential_decay(0.02, 2, 0.7)).minimize(loss)
    return loss


def _simnet() -> Any:
    def tower(name: str) -> Any:
        ids = fluid.layers.data(name, [1], dtype="int64", lod_level=1)
        rows = fluid.layers.embedding(ids, [30, 6], param_attr="words")
        pooled = fluid.layers.softsign(fluid.layers.sequence_pool(rows, "sum"))
        return fluid.layers.fc(pooled, 5, param_attr="q_w", bias_attr="q_b")

    query, good, bad = tower("query"), tower("good"), tower("bad")
    margin = fluid.layers.cos_sim(query, bad) - fluid.layers.cos_sim(query, good) + 0.3
    loss = fluid.layers.mean(fluid.layers.relu(margin))
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.05))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def _wide() -> Any:
    """More gradients than one bucket takes."""
    dense, click = fluid.layers.data("dense", [6]), fluid.layers.data("click", [1], dtype="int64")
    hidden = fluid.layers.fc(fluid.layers.fc(dense, 1100, act="relu"), 1100, act="tanh")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(hidden, 2, act="softmax"), click))
    fluid.optimizer.Momentum(0.01, 0.9).minimize(loss)
    return loss


def _two_losses() -> Any:
    """Minimize a second loss with the parameters that the first one has updated, at one rate."""
    dense, click = fluid.layers.data("dense", [6]), fluid.layers.data("click", [1], dtype="int64")
    hidden = fluid.layers.fc(fluid.layers.fc(dense, 8, act="tanh"), 8, act="tanh")
    first = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(hidden, 2, act="softmax"), click))
    rate = fluid.layers.exponential_decay(0.3, 2, 0.7)
    fluid.optimizer.SGD(rate).minimize(first)
    second = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 1)))
    fluid.optimizer.Momentum(rate, 0.5).minimize(second)
    return first


def _branches() -> Any:
    """Look rows up in a condition, and in one within another, only where a batch has a flag."""
    layers = fluid.layers
    x, flag, ids = layers.data("x", [4]), layers.data("flag", [1]), layers.data("ids", [1], dtype="int64")
    last, zero = layers.scale(x, 1.0), layers.zeros([1], "float32")

    def add_rows(table: str) -> None:
        with layers.ConditionalBlock([layers.less_than(zero, layers.mean(flag))], True).block():
            found = layers.embedding(ids, [9, 4], is_sparse=True, param_attr=table)
            layers.assign(layers.elementwise_add(last, layers.elementwise_mul(found, flag)), last)

    add_rows("outer")
    with layers.ConditionalBlock([layers.less_than(zero, layers.ones([1], "float32"))], True).block():
        add_rows("inner")
    loss = layers.mean(layers.square(layers.fc(last, 1)))
    fluid.optimizer.Adagrad(0.1).minimize(loss)
    return loss


def _sequences(rng: np.random.Generator, words: int) -> list[npt.NDArray[np.int64]]:
    return [rng.integers(0, words, (int(length), 1)) for length in rng.integers(1, 5, BATCH)]


def _mnist_batch(rng: np.random.Generator) -> Feed:
    return {
        "image": rng.standard_normal((BATCH, 1, 28, 28)).astype("f4"),
        "label": rng.integers(0, 10, (BATCH, 1)),
    }


def _word2vec_batch(rng: np.random.Generator) -> Feed:
    names = [*(f"word{at}" for at in range(4)), "next"]
    return {name: rng.integers(0, 50, (BATCH, 1)) for name in names}


def _ctr_batch(rng: np.random.Generator) -> Feed:
    dense = rng.standard_normal((BATCH, 6)).astype("f4")
    return {"dense": dense, "ids": _sequences(rng, 40), "click": rng.integers(0, 2, (BATCH, 1))}


def _wide_batch(rng: np.random.Generator) -> Feed:
    return {"dense": rng.standard_normal((BATCH, 6)).astype("f4"), "click": rng.integers(0, 2, (BATCH, 1))}


def _simnet_batch(rng: np.random.Generator) -> Feed:
    return {name: _sequences(rng, 30) for name in ("query", "good", "bad")}


def _branches_batch(rng: np.random.Generator) -> Feed:
    x, ids = rng.standard_normal((BATCH, 4)).astype("f4"), rng.integers(0, 9, (BATCH, 1))
    flags = np.repeat(rng.permutation([0, 1]), BATCH // 2)
    return {"x": x, "ids": ids, "flag": flags[:, None].astype("f4")}


MODELS: dict[str, tuple[Callable[[], Any], Callable[[np.random.Generator], Feed]]] = {
    "mnist": (_mnist, _mnist_batch),
    "word2vec": (_word2vec, _word2vec_batch),
    "ctr": (_ctr, _ctr_batch),
    "simnet": (_simnet, _simnet_batch),
    "wide": (_wide, _wide_batch),
    "branches": (_branches, _branches_batch),
    "two losses": (_two_losses, _wide_batch),
}


def losses(model: str, rank: int = 0, trainers: str = "") -> list[float]:
    """Train a model and return the loss of each step: of all samples, or of this rank's."""
    build, batch = MODELS[model]
    count = len(trainers.split(","))
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        fluid.default_startup_program().random_seed = 5 + rank  # all must begin with what rank 0 has
        loss = build()
        runner: Any = fluid.CompiledProgram(fluid.default_main_program())
        exe = fluid.Executor(fluid.CPUPlace())
        if trainers:
            config = fluid.DistributeTranspilerConfig()
            config.mode = "nccl2"
            current = trainers.split(",")[rank]
            transpiler = fluid.DistributeTranspiler(config=config)
            transpiler.transpile(rank, trainers=trainers, current_endpoint=current)
            runner.with_data_parallel(
                loss.name, num_trainers=count, trainer_id=rank, places=fluid.cpu_places(1)
            )
        exe.run(fluid.default_startup_program())
        found = []
        for step in range(STEPS):
            rng = np.random.default_rng(step % 2)  # each batch twice: the second time its loss must be less
            size = BATCH // count
            mine = slice(rank * size, (rank + 1) * size)
            feed = {name: _tensor(values[mine]) for name, values in batch(rng).items()}
            found.append(float(np.mean(exe.run(runner, feed, [loss.name])[0])))
        return found


def _tensor(values: Any) -> Any:
    if not isinstance(values, list):
        return values
    return fluid.create_lod_tensor(np.concatenate(values), [[len(each) for each in values]], fluid.CPUPlace())


if __name__ == "__main__":
    json.dump({model: losses(model, int(sys.argv[1]), sys.argv[2]) for model in MODELS}, sys.stdout)
