# SPDX-License-Identifier: Apache-2.0
"""Models of the book that read sequences learn small synthetic tasks; blocks do what they say."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers

Variable = fluid.framework.Variable
_WORDS = 20


def _embedded() -> Variable:
    words = layers.data("words", [1], dtype="int64", lod_level=1)
    return layers.embedding(words, [_WORDS, 8])


def conv_net() -> Variable:
    hidden = layers.sequence_conv(_embedded(), 8, 3, act="tanh")
    return layers.sequence_pool(hidden, "max")


def stacked_lstm() -> Variable:
    hidden, _ = layers.dynamic_lstm(layers.fc(_embedded(), 32), 32, use_peepholes=True)
    backward, _ = layers.dynamic_lstm(layers.fc([_embedded(), hidden], 32), 32, is_reverse=True)
    return layers.concat([layers.sequence_pool(hidden, "max"), layers.sequence_pool(backward, "max")], axis=1)


def gru() -> Variable:
    return layers.sequence_last_step(layers.dynamic_gru(layers.fc(_embedded(), 24), 8))


def dynamic_rnn() -> Variable:
    rnn = layers.DynamicRNN()
    embedded = _embedded()
    with rnn.block():
        word = rnn.step_input(embedded)
        before = rnn.memory(shape=[8], value=0.0)
        after = layers.fc([word, before], 8, act="tanh")
        rnn.update_memory(before, after)
        rnn.output(after)
    out = rnn()
    assert isinstance(out, Variable)
    return layers.sequence_last_step(out)


def _sentences(batches: int) -> list[list[tuple[list[int], int]]]:
    """Sentences whose class is whether a word below 10 comes more often than others."""
    rng = np.random.default_rng(1)
    result = []
    for _ in range(batches):
        batch = []
        for _ in range(16):
            kind = int(rng.integers(0, 2))
            words = rng.integers(0, 10, rng.integers(1, 7)) + 10 * kind
            batch.append((words.tolist(), kind))
        result.append(batch)
    return result


@pytest.mark.parametrize("net", [conv_net, stacked_lstm, gru, dynamic_rnn])
def test_a_net_learns_what_sentences_are_about(net: Callable[[], Variable]) -> None:
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 3
    label = layers.data("label", [1], dtype="int64")
    prediction = layers.fc(net(), 2, act="softmax")
    loss = layers.mean(layers.cross_entropy(prediction, label))
    fluid.optimizer.Adam(0.02).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(["words", "label"], fluid.CPUPlace())
    losses = [float(exe.run(feed=feeder.feed(each), fetch_list=[loss])[0][0]) for each in _sentences(30)]
    assert losses[-1] < 0.2 * losses[0]


def test_a_crf_learns_to_tag_words() -> None:
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 3
    target = layers.data("target", [1], dtype="int64", lod_level=1)
    emission = layers.fc(_embedded(), 3)
    cost = layers.linear_chain_crf(emission, target, param_attr=fluid.ParamAttr(name="crfw"))
    path = layers.crf_decoding(emission, param_attr=fluid.ParamAttr(name="crfw"))
    loss = layers.mean(cost)
    fluid.optimizer.Adam(0.05).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(["words", "target"], fluid.CPUPlace())
    rng = np.random.default_rng(2)
    for _ in range(40):
        sentences = [rng.integers(0, _WORDS, rng.integers(1, 6)).tolist() for _ in range(8)]
        batch = [(words, [word % 3 for word in words]) for words in sentences]
        value, found = exe.run(feed=feeder.feed(batch), fetch_list=[loss, path], return_numpy=False)
    assert float(np.asarray(value)[0]) < 0.5
    assert np.asarray(found)[:, 0].tolist() == [word % 3 for words in sentences for word in words]


def test_a_static_rnn_runs_over_the_first_dimension() -> None:
    x = layers.data("x", [4, 2, 3], append_batch_size=False)
    rnn = layers.StaticRNN()
    with rnn.step():
        step = rnn.step_input(x)
        total = rnn.memory(shape=[-1, 3], batch_ref=step)
        after = layers.elementwise_add(total, step)
        rnn.update_memory(total, after)
        rnn.step_output(after)
    exe = fluid.Executor(fluid.CPUPlace())
    values = np.arange(24, dtype="float32").reshape(4, 2, 3)
    result = rnn()
    assert isinstance(result, Variable)
    (out,) = exe.run(feed={"x": values}, fetch_list=[result])
    np.testing.assert_allclose(out, values.cumsum(axis=0))


def test_a_while_counts_and_writes_an_array() -> None:
    i = layers.fill_constant([1], "int64", 0)
    limit = layers.fill_constant([1], "int64", 5)
    total = layers.fill_constant([1], "float32", 1.0)
    array = layers.create_array("float32")
    cond = layers.less_than(i, limit)
    loop = layers.While(cond)
    with loop.block():
        layers.assign(layers.scale(total, scale=2.0), total)
        layers.array_write(total, i, array)
        layers.increment(i)
        layers.less_than(i, limit, cond=cond)
    third, length = (
        layers.array_read(array, layers.fill_constant([1], "int64", 2)),
        layers.array_length(array),
    )
    results = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[total, i, third, length])
    assert [each.tolist() for each in results] == [[32.0], [5], [8.0], [5]]


@pytest.mark.parametrize(("step", "rate"), [(0.0, 1.0), (5.0, 0.5), (20.0, 0.1)])
def test_a_switch_runs_the_first_case_that_holds(step: float, rate: float) -> None:
    x = layers.data("x", [1], append_batch_size=False)
    out = layers.create_global_var([1], 7.0, "float32", persistable=True)
    with layers.Switch() as switch:
        for bound, value in ((3.0, 1.0), (10.0, 0.5)):
            with switch.case(layers.less_than(x, layers.fill_constant([1], "float32", bound))):
                layers.assign(layers.fill_constant([1], "float32", value), out)
        with switch.default():
            layers.assign(layers.fill_constant([1], "float32", 0.1), out)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    (got,) = exe.run(feed={"x": np.array([step], "float32")}, fetch_list=[out])
    np.testing.assert_allclose(got, [rate])


_THREE = np.array([[1], [2], [1], [5], [3]])


def test_values_as_many_as_sequences_start_a_memory_like_one_without_init() -> None:
    words = layers.data("words", [1], dtype="int64", lod_level=1)
    embedded = layers.embedding(words, [_WORDS, 4], param_attr="table")
    start = layers.fill_constant_batch_size_like(embedded, [-1, 4], "float32", 0.5)
    start.stop_gradient = False
    last = []
    for given in ({"init": start}, {"shape": [4], "value": 0.5}):
        rnn = layers.DynamicRNN()
        with rnn.block():
            before = rnn.memory(**given) if "init" in given else None
            word = rnn.step_input(embedded)
            before = rnn.memory(**given) if before is None else before
            after = layers.fc([word, before], 4, act="tanh", param_attr=["a", "b"], bias_attr="c")
            rnn.update_memory(before, after)
            rnn.output(after)
        out = rnn()
        assert isinstance(out, Variable)
        last.append(layers.sequence_last_step(out))
    fluid.optimizer.SGD(0.1).minimize(layers.mean(last[0]))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    handle = fluid.global_scope().find_var("table")
    assert handle
    table = np.array(handle.get_tensor())
    feed = {"words": fluid.create_lod_tensor(_THREE, [[2, 2, 1]], fluid.CPUPlace())}
    filled, one, other = exe.run(feed=feed, fetch_list=[start, *last])
    assert (filled == np.full((3, 4), 0.5)).all()
    np.testing.assert_array_equal(one, other)
    moved = np.array(handle.get_tensor()) != table
    assert np.flatnonzero(moved.any(axis=1)).tolist() == [1, 2, 3, 5]


def test_a_number_on_the_left_of_sequences_is_one_for_each_row() -> None:
    x = layers.data("x", [2], lod_level=1)
    rows = np.array([[1, -2], [4, 8], [0.5, 2]], "float32")
    feed = {"x": fluid.create_lod_tensor(rows, [[2, 1]], fluid.CPUPlace())}
    wanted = [1.0 - x, 2 / x, 2.0**x, -x]
    got = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=wanted, return_numpy=False)
    for tensor, expected in zip(got, (1 - rows, 2 / rows, 2.0**rows, -rows), strict=True):
        np.testing.assert_allclose(np.array(tensor), expected, rtol=1e-6)
        assert tensor.recursive_sequence_lengths() == [[2, 1]]


def test_a_number_on_the_left_of_images_of_unknown_size_is_one_for_each_pixel() -> None:
    x = layers.data("x", [-1, 1, -1, -1])
    pixels = np.arange(12, dtype="float32").reshape(2, 1, 2, 3)
    (out,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": pixels}, fetch_list=[1.0 - x])
    np.testing.assert_array_equal(out, 1 - pixels)


def test_rows_go_their_own_way_and_come_back_in_order() -> None:
    x = layers.data("x", [1])
    ways = layers.IfElse(
        layers.less_than(x, layers.fill_constant_batch_size_like(x, [-1, 1], "float32", 0.0))
    )
    with ways.true_block():
        ways.output(layers.scale(ways.input(x), scale=-1.0))
    with ways.false_block():
        ways.output(layers.scale(ways.input(x), scale=10.0))
    feed: dict[str, Any] = {"x": np.array([[1], [-2], [3], [-4]], "float32")}
    (out,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=ways())
    assert out[:, 0].tolist() == [10, 2, 30, 4]


@pytest.mark.parametrize("layer", ["nce", "hsigmoid"])
def test_sampled_losses_fall(layer: str) -> None:
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 3
    word, label = layers.data("word", [1], dtype="int64"), layers.data("label", [1], dtype="int64")
    hidden = layers.embedding(word, [_WORDS, 16])
    cost = layers.nce(hidden, label, _WORDS) if layer == "nce" else layers.hsigmoid(hidden, label, _WORDS)
    loss = layers.mean(cost)
    fluid.optimizer.Adam(0.05).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    rng, losses = np.random.default_rng(0), []
    for _ in range(60):
        words = rng.integers(0, _WORDS, (32, 1))
        losses.append(
            float(exe.run(feed={"word": words, "label": (words + 1) % _WORDS}, fetch_list=[loss])[0][0])
        )
    assert np.mean(losses[-5:]) < 0.6 * losses[0]


def test_a_decoder_searches_beams_in_a_loop() -> None:
    """Word w is followed by w + 1 (chance 0.6) or w + 2 (0.4); 0 ends a sentence, and so does what is over 4."""
    beam, end = 2, 0
    chances = np.full((6, 6), 1e-6, "float32")
    for word in range(1, 6):
        chances[word, word + 1 if word + 1 < 6 else end] += 0.6
        chances[word, word + 2 if word + 2 < 6 else end] += 0.4
    fluid.default_startup_program().random_seed = 1
    init_ids = layers.data("init_ids", [1], dtype="int64", lod_level=2)
    init_scores = layers.data("init_scores", [1], lod_level=2)
    counter, limit = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 8)
    ids, scores = layers.create_array("int64"), layers.create_array("float32")
    layers.array_write(init_ids, counter, ids)
    layers.array_write(init_scores, counter, scores)
    cond = layers.less_than(counter, limit)
    loop = layers.While(cond)
    table = fluid.ParamAttr(name="table", initializer=fluid.initializer.NumpyArrayInitializer(chances))
    with loop.block():
        pre_ids, pre_score = layers.array_read(ids, counter), layers.array_read(scores, counter)
        chance = layers.lod_reset(layers.embedding(pre_ids, [6, 6], param_attr=table), pre_score)
        best, places = layers.topk(chance, k=beam)
        total = layers.elementwise_add(layers.log(best), layers.reshape(pre_score, [-1]), axis=0)
        chosen, values = layers.beam_search(pre_ids, pre_score, places, total, beam, end)
        layers.increment(counter)
        layers.array_write(chosen, counter, ids)
        layers.array_write(values, counter, scores)
        layers.logical_and(
            layers.less_than(counter, limit), layers.logical_not(layers.is_empty(chosen)), out=cond
        )
    words, values = layers.beam_search_decode(ids, scores, beam, end)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {
        "init_ids": fluid.create_lod_tensor(np.array([[1], [3]]), [[1, 1], [1, 1]], fluid.CPUPlace()),
        "init_scores": fluid.create_lod_tensor(
            np.zeros((2, 1), "float32"), [[1, 1], [1, 1]], fluid.CPUPlace()
        ),
    }
    got, score = exe.run(feed=feed, fetch_list=[words, values], return_numpy=False)
    lengths = got.recursive_sequence_lengths()
    assert lengths[0] == [2, 2]
    flat, ends = np.asarray(got)[:, 0].tolist(), np.cumsum(lengths[1])
    sentences = [flat[stop - length : stop] for length, stop in zip(lengths[1], ends, strict=True)]
    for sentence, value in zip(sentences, np.asarray(score)[ends - 1, 0].tolist(), strict=True):
        np.testing.assert_allclose(
            value, sum(np.log(chances[a, b]) for a, b in pairwise(sentence)), rtol=1e-4
        )
        assert (sentence[0], sentence[-1]) in {(1, end), (3, end)}
    assert np.asarray(score)[ends[0] - 1, 0] >= np.asarray(score)[ends[1] - 1, 0]


def test_a_row_norm_learns_scale_and_shift() -> None:
    x = layers.data("x", [6])
    out = layers.layer_norm(x)
    loss = layers.mean(layers.square(out))
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"x": np.random.default_rng(0).standard_normal((4, 6)).astype("float32")}
    first, last = (exe.run(feed=feed, fetch_list=[loss])[0][0] for _ in range(2))
    assert last < first


def test_distances_leave_out_ignored_tokens() -> None:
    a, b = (layers.data(name, [1], dtype="int64", lod_level=1) for name in "ab")
    distance, count = layers.edit_distance(a, b, normalized=False, ignored_tokens=[9])
    place = fluid.CPUPlace()
    feed = {
        "a": fluid.create_lod_tensor(np.array([[1], [9], [2], [3]]), [[3, 1]], place),
        "b": fluid.create_lod_tensor(np.array([[1], [2], [4]]), [[2, 1]], place),
    }
    got, pairs = fluid.Executor(place).run(feed=feed, fetch_list=[distance, count])
    assert (got[:, 0].tolist(), pairs.tolist()) == ([0.0, 1.0], [2])


def test_a_row_convolution_takes_false_for_its_default_parameter() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        rows = layers.data("rows", [3], lod_level=1)
        layers.row_conv(rows, 2, param_attr=False)
        (weight,) = fluid.default_main_program().global_block().all_parameters()
    assert tuple(weight.shape) == (3, 3)


def test_a_memory_without_init_has_one_row_for_each_outer_sequence() -> None:
    x = fluid.layers.data("x", [1], lod_level=2)
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        inner = rnn.step_input(x)
        total = rnn.memory(shape=[1], value=0.5)
        after = fluid.layers.elementwise_add(total, fluid.layers.sequence_pool(inner, "sum"))
        rnn.update_memory(total, after)
        rnn.output(after)
    rows = np.arange(6, dtype=np.float32).reshape(6, 1)
    fed = fluid.create_lod_tensor(rows, [[2, 1], [1, 2, 3]], fluid.CPUPlace())
    out: Any = rnn()
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": fed}, fetch_list=[out], return_numpy=False)
    assert (np.array(found).tolist(), found.lod()) == ([[0.5], [3.5], [12.5]], [[0, 2, 3]])


def test_a_fetched_array_is_a_list_of_its_values() -> None:
    x = fluid.layers.data("x", [2])
    at = fluid.layers.fill_constant([1], "int64", 0)
    array = fluid.layers.array_write(x, at)
    fluid.layers.array_write(x * 2.0, fluid.layers.increment(at), array=array)
    run = fluid.Executor(fluid.CPUPlace()).run
    fed = {"x": np.ones((1, 2), np.float32)}
    assert [each.tolist() for each in run(feed=fed, fetch_list=[array])[0]] == [[[1, 1]], [[2, 2]]]
    tensors = run(feed=fed, fetch_list=[array], return_numpy=False)[0]
    assert [np.array(each).tolist() for each in tensors] == [[[1, 1]], [[2, 2]]]


@pytest.mark.parametrize(
    "over_rows",
    [
        layers.mean,
        layers.reduce_sum,
        lambda x: layers.reduce_max(x, dim=[0, 1]),
        lambda x: layers.reduce_mean(x, dim=0, keep_dim=True),
        lambda x: layers.accuracy(x, layers.zeros([1, 1], "int64")),
        lambda x: layers.reduce_sum(x, dim=-2),
        lambda x: layers.argmax(x, axis=0),
        lambda x: layers.argmin(x, axis=-2),
        lambda x: layers.transpose(x, perm=[1, 0]),
        lambda x: layers.slice(x, axes=[0], starts=[0], ends=[1]),
        lambda x: layers.slice(x, axes=[-2], starts=[0], ends=[1]),
        lambda x: layers.stack([x], axis=0),
        lambda x: layers.stack([x], axis=-3),
    ],
)
def test_a_result_over_all_rows_has_no_sequences_even_for_one_row(
    over_rows: Callable[[Variable], Variable],
) -> None:
    x = layers.data("x", [1], lod_level=1)
    feed = {"x": fluid.create_lod_tensor(np.ones((1, 1), "float32"), [[1]])}
    (found,) = fluid.Executor().run(feed=feed, fetch_list=[over_rows(x)])
    assert found.size == 1
