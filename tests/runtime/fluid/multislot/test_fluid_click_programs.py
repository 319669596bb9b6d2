# SPDX-License-Identifier: Apache-2.0
"""Nets of public click programs, small and on made-up data, trained from datasets alone and by two trainers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from tests.runtime.fluid.transpiled_job import TranspiledJob, built

L = fluid.layers
FIELDS, IDS, WIDTH = 6, 40, 4
BATCH = 16


def slots_of_contexts() -> tuple[list[Any], Callable[[np.random.Generator], str]]:
    """Three numbers, contexts of one or more ids each, and a label: the slots of the KDD program."""
    dense = L.data("dense_input", [3])
    contexts = [L.data(f"context{at}", [1], dtype="int64", lod_level=1) for at in range(FIELDS)]
    wide = L.data("context_fm", [1], dtype="int64", lod_level=1)
    taste = np.random.default_rng(7).standard_normal(IDS)

    def line(rng: np.random.Generator) -> str:
        ids = [rng.integers(0, IDS, rng.integers(1, 3)).tolist() for _ in range(FIELDS)]
        click = int(taste[ids[0]].sum() > 0)
        every = [each for part in ids for each in part]
        parts = [rng.standard_normal(3).round(3).tolist(), *ids, every, [click]]
        return " ".join(str(token) for part in parts for token in (len(part), *part))

    return [dense, *contexts, wide, L.data("label", [1], dtype="int64")], line


def slots_of_features() -> tuple[list[Any], Callable[[np.random.Generator], str]]:
    """An id and a value for each field, and a float label: the slots of deepfm and xdeepfm."""
    taste = np.random.default_rng(7).standard_normal(IDS)

    def line(rng: np.random.Generator) -> str:
        ids = rng.integers(1, IDS, FIELDS).tolist()
        values = rng.uniform(0.5, 1.5, FIELDS).round(3).tolist()
        parts = [ids, values, [int(taste[ids[0]] > 0)]]
        return " ".join(str(token) for part in parts for token in (len(part), *part))

    ids = L.data("feat_idx", [-1, FIELDS, 1], dtype="int64", append_batch_size=False)
    values = L.data("feat_value", [-1, FIELDS], append_batch_size=False)
    return [ids, values, L.data("label", [-1, 1], dtype="int64", append_batch_size=False)], line


def uniform(scale: float, seed: int) -> fluid.initializer.Initializer:
    return fluid.initializer.Uniform(-scale, scale, seed=seed)


def kdd() -> tuple[Any, Any]:
    slots, _ = slots_of_contexts()
    dense, *contexts, wide, label = slots

    def embedded(ids: Any, width: int, name: str) -> Any:
        table = fluid.ParamAttr(name, uniform(0.1, 1))
        return L.sequence_pool(L.embedding(ids, [IDS, width], is_sparse=True, param_attr=table), "average")

    parts = [embedded(ids, WIDTH, "contexts") for ids in contexts]
    deep = L.concat([*parts, dense, embedded(wide, WIDTH, "wide")], axis=1)
    normal = L.batch_norm(deep, name="bn", epsilon=1e-4)
    attr = fluid.ParamAttr("deep_w", uniform(0.3, 2), learning_rate=0.5)
    hidden = L.fc(normal, 8, act="relu", param_attr=attr)
    predict = L.fc(hidden, 2, act="softmax", param_attr=fluid.ParamAttr("out_w", uniform(0.3, 3)))
    cost = L.mean(L.cross_entropy(predict, label))
    area = L.auc(predict, label, num_thresholds=2**12, slide_steps=20)[0]
    fluid.optimizer.SGD(1.0).minimize(cost)
    return cost, area


def first_and_second_order(ids: Any, values: Any) -> tuple[Any, Any, Any]:
    """Return what is linear in the features, what is of products of two, and the embeddings times values."""
    weight = L.reshape(values, [-1, FIELDS, 1])
    single = L.embedding(ids, [IDS, 1], padding_idx=0, param_attr=fluid.ParamAttr("first", uniform(0.1, 1)))
    linear = L.reduce_sum(L.reshape(single, [-1, FIELDS, 1]) * weight, 1)
    decay = fluid.regularizer.L1DecayRegularizer(1e-4)
    table = fluid.ParamAttr("second", uniform(0.3, 2), regularizer=decay)
    vectors = L.reshape(L.embedding(ids, [IDS, WIDTH], padding_idx=0, param_attr=table), [-1, FIELDS, WIDTH])
    scaled = vectors * weight
    squared_sum = L.square(L.reduce_sum(scaled, 1))
    sum_of_squares = L.reduce_sum(L.square(scaled), 1)
    return linear, 0.5 * L.reduce_sum(squared_sum - sum_of_squares, 1, keep_dim=True), scaled


def judged(logit: Any, label: Any) -> tuple[Any, Any]:
    predict = L.sigmoid(logit)
    cost = L.reduce_mean(L.log_loss(predict, L.cast(label, "float32"), epsilon=1e-7))
    both = L.concat([1 - predict, predict], axis=1)
    area = L.auc(both, label, slide_steps=0)[0]
    fluid.optimizer.SGD(1.0, regularization=fluid.regularizer.L2DecayRegularizer(1e-4)).minimize(cost)
    return cost, area


def deepfm() -> tuple[Any, Any]:
    (ids, values, label), _ = slots_of_features()
    linear, pairs, scaled = first_and_second_order(ids, values)
    deep = L.reshape(scaled, [-1, FIELDS * WIDTH])
    for seed in (3, 4):
        deep = L.fc(deep, 8, act="relu", param_attr=fluid.ParamAttr(initializer=uniform(0.3, seed)))
    deep = L.fc(deep, 1, param_attr=fluid.ParamAttr("deep_w", uniform(0.3, 5)))
    return judged(linear + pairs + deep, label)


def xdeepfm() -> tuple[Any, Any]:
    """Products of fields are compressed by a convolution of 1 x 1, layer by layer (Lian et al., 2018)."""
    (ids, values, label), _ = slots_of_features()
    linear, _, scaled = first_and_second_order(ids, values)
    zero = L.transpose(scaled, [0, 2, 1])
    last, sums = zero, []
    for seed, width in ((3, 5), (4, 4)):
        product = L.matmul(
            L.reshape(zero, [-1, WIDTH, FIELDS, 1]), L.reshape(last, [-1, WIDTH, 1, last.shape[2]])
        )
        flat = L.transpose(L.reshape(product, [-1, WIDTH, 1, FIELDS * last.shape[2]]), [0, 3, 2, 1])
        attr = fluid.ParamAttr(initializer=uniform(0.3, seed))
        made = L.conv2d(flat, num_filters=width, filter_size=1, param_attr=attr, bias_attr=False)
        last = L.transpose(L.reshape(made, [-1, width, WIDTH]), [0, 2, 1])
        sums.append(L.reduce_sum(last, 1))
    joined = L.fc(L.concat(sums, axis=1), 1, param_attr=fluid.ParamAttr("deep_w", uniform(0.3, 5)))
    return judged(linear + joined, label)


PROGRAMS = {kdd: slots_of_contexts, deepfm: slots_of_features, xdeepfm: slots_of_features}


def written(tmp_path: Path, net: Any, files: int, lines: int) -> list[str]:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        line = PROGRAMS[net]()[1]
    rng = np.random.default_rng(1)
    paths = []
    for number in range(files):
        paths.append(tmp_path / f"part-{number}")
        paths[-1].write_text("".join(line(rng) + "\n" for _ in range(lines)))
    return [str(path) for path in paths]


def dataset(program: fluid.Program, net: Any, paths: list[str], size: int) -> Any:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        names = [variable.name for variable in PROGRAMS[net]()[0]]
    made = fluid.DatasetFactory().create_dataset()
    made.set_use_var([program.global_block().var(name) for name in names])
    made.set_batch_size(size)
    made.set_filelist(paths)
    return made


@pytest.mark.parametrize("net", PROGRAMS, ids=lambda net: net.__name__)
def test_a_program_learns_from_a_dataset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], net: Any
) -> None:
    paths = written(tmp_path, net, 2, 320)
    cost, area = net()
    main = fluid.default_main_program()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    for _ in range(4):
        made = dataset(main, net, paths, BATCH)
        exe.train_from_dataset(
            main, made, fetch_list=[cost, area], fetch_info=["cost", "area"], print_period=39
        )
    told = re.findall(
        r"^batch (\d+): cost: \[([\d.e-]+)\], area: \[([\d.]+)\]", capsys.readouterr().out, re.MULTILINE
    )
    assert [batch for batch, _, _ in told] == ["0", "39"] * 4
    assert float(told[-1][1]) < 0.75 * float(told[0][1])
    assert float(told[-1][2]) > 0.75


@pytest.mark.parametrize("net", PROGRAMS, ids=lambda net: net.__name__)
def test_two_trainers_and_two_servers_do_what_one_process_does(tmp_path: Path, net: Any) -> None:
    paths = written(tmp_path, net, 2, 4 * BATCH)
    # Each trainer normalises by the statistics of its own part of a batch: both have the same one.
    halves = [paths[0]] * 2 if net is kdd else paths
    job = TranspiledJob(lambda: net()[0])

    def work(trainer: int) -> Any:
        _, main, startup, _ = job.transpiled(trainer)
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        exe.run(startup, scope=scope)
        for _ in range(2):
            exe.train_from_dataset(main, dataset(main, net, [halves[trainer]], BATCH), scope=scope)
        held = np.array(scope.get("deep_w"))
        exe.close()
        return held

    trained = job.run(work)

    main, startup, _ = built(lambda: net()[0])
    lines = [Path(path).read_text().splitlines(keepends=True) for path in halves]
    merged = tmp_path / "merged"
    merged.write_text(
        "".join("".join(part[at : at + BATCH]) for at in range(0, 4 * BATCH, BATCH) for part in lines)
    )
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    first = np.array(scope.get("deep_w"))
    for _ in range(2):
        exe.train_from_dataset(main, dataset(main, net, [str(merged)], 2 * BATCH), scope=scope)
    alone = np.array(scope.get("deep_w"))
    assert np.abs(alone - first).max() > 0.01
    np.testing.assert_array_equal(trained[0], trained[1])
    np.testing.assert_allclose(trained[0], alone, atol=2e-5)
