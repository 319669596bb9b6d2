# SPDX-License-Identifier: Apache-2.0
"""Two trainers and two servers of a transpiled program follow the program for one machine, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from tests.runtime.fluid.transpiled_job import Feed, TranspiledJob, built, halves, one_process

STEPS, BATCH = 4, 8
_TWO = ["fc_1.w_0", "fc_0.b_0"]


def digits(optimizer: Callable[[], Any]) -> Callable[[], Any]:
    """A small net of convolutions, with a bias and a weight that is large enough to be cut."""

    def net() -> Any:
        image = fluid.layers.data("image", [1, 12, 12])
        label = fluid.layers.data("label", [1], dtype="int64")
        pooled = fluid.nets.simple_img_conv_pool(image, 8, 3, 2, 2, act="relu")
        hidden = fluid.layers.fc(pooled, 128, act="tanh")
        guess = fluid.layers.fc(hidden, 10, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(guess, label))
        optimizer().minimize(loss)
        return loss

    return net


def words(optimizer: Callable[[], Any]) -> Callable[[], Any]:
    """Four words, one sparse table, the next word."""

    def net() -> Any:
        ids = [fluid.layers.data(f"word{at}", [1], dtype="int64") for at in range(4)]
        rows = [
            fluid.layers.embedding(each, [1100, 16], is_sparse=True, param_attr="shared_w") for each in ids
        ]
        hidden = fluid.layers.fc(fluid.layers.concat(rows, axis=1), 32, act="sigmoid")
        guess = fluid.layers.fc(hidden, 1100, act="softmax")
        label = fluid.layers.data("next", [1], dtype="int64")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(guess, label))
        optimizer().minimize(loss)
        return loss

    return net


def pairs(optimizer: Callable[[], Any]) -> Callable[[], Any]:
    """Bags of words of a query and a title, their likeness against a margin."""

    def side(name: str) -> Any:
        ids = fluid.layers.data(name, [1], dtype="int64", lod_level=1)
        rows = fluid.layers.embedding(ids, [1024, 16], is_sparse=True, param_attr="words")
        bag = fluid.layers.softsign(fluid.layers.sequence_pool(rows, "sum"))
        return fluid.layers.fc(bag, 16, param_attr=f"{name[0]}_w", bias_attr=f"{name[0]}_b")

    def net() -> Any:
        likeness = fluid.layers.cos_sim(side("query"), side("title"))
        wanted = fluid.layers.data("wanted", [1])
        loss = fluid.layers.mean(fluid.layers.square_error_cost(likeness, wanted))
        optimizer().minimize(loss)
        return loss

    return net


def digit_batches() -> list[Feed]:
    rng = np.random.default_rng(1)
    return [
        {
            "image": rng.standard_normal((BATCH, 1, 12, 12)).astype("float32"),
            "label": rng.integers(0, 10, (BATCH, 1)),
        }
        for _ in range(STEPS)
    ]


def word_batches() -> list[Feed]:
    rng = np.random.default_rng(2)
    names = [*(f"word{at}" for at in range(4)), "next"]
    return [{name: rng.integers(0, 1100, (BATCH, 1)) for name in names} for _ in range(STEPS)]


def classes(layer: str) -> Callable[[], Any]:
    """Two words, and the next one by a loss whose weights get gradients of rows and whose bias does not."""

    def net() -> Any:
        ids = [fluid.layers.data(f"word{at}", [1], dtype="int64") for at in range(4)]
        hidden = fluid.layers.concat([fluid.layers.embedding(each, [1100, 8]) for each in ids], axis=1)
        label = fluid.layers.data("next", [1], dtype="int64")
        if layer == "nce":
            every = {"sampler": "custom_dist", "custom_dist": [1.0] + [0.0] * 1099}
            cost = fluid.layers.nce(hidden, label, 1100, is_sparse=True, **every)
        else:
            cost = fluid.layers.hsigmoid(hidden, label, 1100, is_sparse=True)
        loss = fluid.layers.mean(cost)
        fluid.optimizer.Momentum(0.1, 0.9, regularization=fluid.regularizer.L2Decay(1e-3)).minimize(loss)
        return loss

    return net


def stepping() -> Any:
    return fluid.layers.piecewise_decay([1, 3], [0.1, 0.05, 0.01])


def decaying() -> Any:
    return fluid.layers.exponential_decay(0.05, 2, 0.5)


def mixed(optimizer: Callable[[], Any]) -> Callable[[], Any]:
    """Numbers and a sparse table into one layer."""

    def net() -> Any:
        ids = fluid.layers.data("ids", [1], dtype="int64")
        x, y = fluid.layers.data("x", [128]), fluid.layers.data("y", [1])
        rows = fluid.layers.embedding(ids, [3000, 8], is_sparse=True, param_attr="table")
        hidden = fluid.layers.fc([x, rows], 128, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        optimizer().minimize(loss)
        return loss

    return net


class Scaled(fluid.optimizer.SGD):  # type: ignore[misc]  # fluid is untyped here
    """Halves and bounds gradients by operators of the script, those of rows, too."""

    def apply_gradients(self, params_grads: Any) -> Any:
        halved = [(p, fluid.layers.clip(fluid.layers.scale(g, 0.5), -1e3, 1e3)) for p, g in params_grads]
        return super().apply_gradients(halved)


def mixed_batches() -> list[Feed]:
    rng = np.random.default_rng(8)
    made = []
    for _ in range(STEPS):
        x = rng.standard_normal((BATCH, 128)).astype("float32")
        made.append({"ids": rng.integers(0, 3000, (BATCH, 1)), "x": x, "y": x[:, :1] * 2})
    return made


def pair_batches() -> list[Feed]:
    rng = np.random.default_rng(3)
    made = []
    for _ in range(STEPS):
        feed: Feed = {"wanted": rng.choice([0.0, 1.0], (BATCH, 1)).astype("float32")}
        for name in ("query", "title"):
            lengths = [3, 1, 2, 4] * (BATCH // 4)
            ids = rng.integers(0, 1024, (sum(lengths), 1))
            feed[name] = fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace())
        made.append(feed)
    return made


def clipped_momentum() -> Any:
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(0.5), ["fc_1.w_0"])
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(0.01), ["fc_0.w_0"])
    return fluid.optimizer.Momentum(decaying(), 0.9, regularization=fluid.regularizer.L2Decay(1e-3))


def clipped_together(*groups: tuple[float, str, list[str] | None]) -> Callable[[], Any]:
    """Return a maker of an optimizer whose gradients are clipped by norms of groups: (norm, group, its parameters)."""

    def optimizer() -> Any:
        for norm, group, names in groups:
            fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(norm, group), names)
        return fluid.optimizer.Adam(decaying(), regularization=fluid.regularizer.L2Decay(1e-3))

    return optimizer


@pytest.mark.parametrize(
    ("net", "batches", "cut"),
    [
        (digits(clipped_momentum), digit_batches, True),
        (digits(lambda: fluid.optimizer.Adam(0.01)), digit_batches, False),
        (words(lambda: fluid.optimizer.SGD(0.5)), word_batches, True),
        (words(lambda: fluid.optimizer.Adam(decaying())), word_batches, False),
        (pairs(lambda: fluid.optimizer.Adagrad(0.05)), pair_batches, True),
        (mixed(lambda: fluid.optimizer.RMSProp(0.001, centered=True)), mixed_batches, True),
        (mixed(lambda: fluid.optimizer.SGD(stepping())), mixed_batches, True),
        (mixed(clipped_together((0.1, "all", None))), mixed_batches, True),
        (mixed(clipped_together((0.1, "all", None))), mixed_batches, False),
        (digits(clipped_together((0.1, "one", ["fc_0.w_0"]), (0.01, "two", _TWO))), digit_batches, True),
        (words(clipped_together((1e-3, "words", ["shared_w"]))), word_batches, True),
        (mixed(lambda: Scaled(stepping())), mixed_batches, True),
        (classes("nce"), word_batches, True),
        (classes("hsigmoid"), word_batches, True),
    ],
    ids=[
        "digits momentum, clips, L2, decay, cut",
        "digits adam",
        "words sgd, cut",
        "words adam, decay",
        "pairs adagrad, cut",
        "mixed rmsprop, cut",
        "mixed sgd in steps, cut",
        "mixed, clipped together, cut",
        "mixed, clipped together",
        "digits, two groups, cut",
        "words, a table clipped by its norm, cut",
        "mixed, scaled by the script, cut",
        "sparse nce, cut",
        "sparse hsigmoid, cut",
    ],
)
def test_synchronous_training_follows_one_machine(
    net: Callable[[], Any], batches: Callable[[], list[Feed]], cut: bool
) -> None:
    feeds = batches()
    expected, first = one_process(net, feeds)
    job = TranspiledJob(net, config=fluid.DistributeTranspilerConfig(slice_var_up=cut), first=first)
    losses = job.run(lambda at: job.train(at, [halves(feed, at, 2) for feed in feeds]))
    np.testing.assert_allclose(np.mean(losses, axis=0), expected, rtol=1e-5)


@pytest.mark.parametrize(("servers", "places"), [(2, 2), (1, 0)])
def test_gradients_clipped_together_follow_one_machine_whoever_computes_them(
    servers: int, places: int
) -> None:
    feeds = mixed_batches()
    net = mixed(clipped_together((0.1, "all", None)))
    expected, first = one_process(net, feeds)
    job = TranspiledJob(net, servers=servers, first=first)
    losses = job.run(lambda at: job.train(at, [halves(feed, at, 2) for feed in feeds], places))
    np.testing.assert_allclose(np.mean(losses, axis=0), expected, rtol=1e-5)


@pytest.mark.parametrize("groups", [((0.1, "all", None),), ()], ids=["clipped together", "decay alone"])
@pytest.mark.parametrize("sync", [True, False])
def test_a_trainer_alone_follows_one_machine(sync: bool, groups: Any) -> None:
    feeds = mixed_batches()
    net = mixed(clipped_together(*groups))
    expected, first = one_process(net, feeds)
    job = TranspiledJob(net, trainers=1, sync=sync, first=first)
    (losses,) = job.run(lambda at: job.train(at, feeds))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_trainers_with_several_places_each_follow_one_machine() -> None:
    feeds = word_batches()
    net = words(lambda: fluid.optimizer.SGD(0.5))
    expected, first = one_process(net, feeds)
    job = TranspiledJob(net, first=first)
    losses = job.run(lambda at: job.train(at, [halves(feed, at, 2) for feed in feeds], places=2))
    np.testing.assert_allclose(np.mean(losses, axis=0), expected, rtol=1e-5)


def averaged() -> Any:
    """A net whose parameters are averaged over steps, with a decay that depends on the schedule's counter."""
    ids, x = fluid.layers.data("ids", [1], dtype="int64"), fluid.layers.data("x", [128])
    rows = fluid.layers.embedding(ids, [3000, 8], is_sparse=True, param_attr="table")
    hidden = fluid.layers.fc([x, rows], 128, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(hidden, fluid.layers.data("y", [1])))
    counter = fluid.layers.learning_rate_scheduler._decay_step_counter()
    fluid.optimizer.Adam(decaying()).minimize(loss)
    fluid.optimizer.ModelAverage(0.5, min_average_window=2, max_average_window=3)
    fluid.optimizer.ExponentialMovingAverage(0.9, counter).update()
    return loss


@pytest.mark.parametrize("places", [0, 2])
def test_trainers_average_the_parameters_that_they_receive(places: int) -> None:
    feeds = mixed_batches()
    main, startup, _ = built(averaged)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    job = TranspiledJob(averaged, first={name: np.array(scope.get(name)) for name in scope.names()})
    for feed in feeds:
        exe.run(main, feed, scope=scope)
    job.run(lambda at: job.train(at, [halves(feed, at, 2) for feed in feeds], places))
    names = [name for name in scope.names() if "_average_" in name or "ema" in name]
    assert len(names) == 4 * 7 + 1
    for name in names:
        got = job.scopes["trainer 1"].get(name)
        # Adam turns the rounding of a gradient near its epsilon into a part of a step of 0.05: on some CPUs 2e-5.
        np.testing.assert_allclose(got, scope.get(name), rtol=1e-4, atol=1e-4, err_msg=name)


def rows_of_all() -> Any:
    """All rows of the table of `words`, as a program for evaluation finds them."""
    ids = fluid.layers.data("ids", [1], dtype="int64")
    return fluid.layers.embedding(ids, [1100, 16], is_sparse=True, param_attr="shared_w")


def test_a_table_that_trainers_look_up_on_servers_is_read_as_it_is_there() -> None:
    feeds, everything = word_batches(), {"ids": np.arange(1100)[:, None]}
    net = words(lambda: fluid.optimizer.Adam(0.01))
    main, startup, _ = built(net)
    reading, _, rows = built(rows_of_all)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    job = TranspiledJob(net, first={name: np.array(scope.get(name)) for name in scope.names()})
    expected = []
    for feed in feeds:
        exe.run(main, feed, scope=scope)
        expected.append(scope.get("shared_w").copy())

    def work(at: int) -> list[Any]:
        _, program, first, _ = job.transpiled(at)
        own, runner = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        runner.run(first, scope=own)
        found = []
        for feed in feeds:
            runner.run(program, halves(feed, at, 2), scope=own)
            found.append(runner.run(reading, everything, [rows], scope=own)[0])
            np.testing.assert_array_equal(found[-1], own.get("shared_w"))
        runner.run(program, halves(feeds[0], at, 2), scope=own)
        runner.close()
        with pytest.raises(RuntimeError, match=r"'shared_w'.* Executor.close"):
            own.get("shared_w")
        return found

    for found in job.run(work):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def test_two_synchronous_runs_end_with_the_same_bits() -> None:
    feeds = digit_batches()
    net = digits(lambda: fluid.optimizer.Adam(0.01))
    runs = []
    for _ in range(2):
        job = TranspiledJob(net, trainers=3)
        job.run(lambda at, job=job: job.train(at, [halves(feed, at, 4) for feed in feeds]))  # type: ignore[misc]
        runs.append([job.scopes[f"trainer {at}"].get("fc_1.w_0") for at in range(3)])
    for other in [*runs[0][1:], *runs[1]]:
        np.testing.assert_array_equal(runs[0][0], other)
