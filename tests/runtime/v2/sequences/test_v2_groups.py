# SPDX-License-Identifier: Apache-2.0
"""Recurrent groups give the numbers of layers that are whole, and learn; groups of layers: names, sizes, training."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import activation, data_type, layer, model, networks
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput
from paddle.v2.parameters import Parameters

_RNG = np.random.default_rng(8)
_SAMPLES = [(_RNG.standard_normal((count, 6)).tolist(),) for count in (4, 1, 3)]
_WORDS = 8


def _rows(name: str = "rows", size: int = 6) -> LayerOutput:
    return layer.data(name, data_type.dense_vector_sequence(size))


def _values(outs: list[LayerOutput], parameters: Any = None) -> tuple[Any, list[Any]]:
    parameters = parameters or paddle.parameters.create(outs)
    found = paddle.inference.Inference(parameters, outs).infer(_SAMPLES, flatten_result=False)
    return parameters, found


@pytest.mark.parametrize("reverse", [False, True])
def test_a_group_of_gru_steps_is_a_gru(reverse: bool) -> None:
    rows = _rows()
    shared, bias = paddle.attr.Param(name="w", initial_std=0.5), paddle.attr.Param(name="b", initial_std=0.5)
    whole = layer.grumemory(rows, reverse=reverse, param_attr=shared, bias_attr=bias)

    def step(row: LayerOutput) -> LayerOutput:
        before = layer.memory(name="state", size=2)
        return layer.gru_step(row, before, name="state", param_attr=shared, bias_attr=bias)

    group = layer.recurrent_group(step, rows, reverse=reverse)
    assert isinstance(group, LayerOutput)
    assert group.name == "state"
    _, (expected, found) = _values([whole, group])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_plain_recurrent_layer_is_its_formula(reverse: bool) -> None:
    rows = _rows()
    out = layer.recurrent(rows, name="r", reverse=reverse)
    parameters, (found,) = _values([out])
    w, expected = parameters.get("_r.w0"), []
    for (sample,) in _SAMPLES:
        h, steps = np.zeros(6), []
        for row in sample[::-1] if reverse else sample:
            h = np.tanh(np.array(row) + h @ w)
            steps.append(h)
        expected += steps[::-1] if reverse else steps
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_step_that_reads_a_layer_around_its_group_is_an_error_at_the_line_that_does_it() -> None:
    rows = _rows()
    around = layer.last_seq(rows)

    def step(row: LayerOutput) -> LayerOutput:
        with pytest.raises(
            UsageError, match=rf"reads '{around.name}' outside it: pass that layer to the group as an input"
        ):
            layer.addto([row, around])
        return layer.fc(row, 3)

    layer.recurrent_group(step, rows)


def test_steps_see_whole_rows_and_whole_sequences_and_begin_where_they_are_told() -> None:
    rows = _rows()
    pooled = layer.pooling(rows, paddle.pooling.Sum())

    def step(row: LayerOutput, same: LayerOutput, all_rows: LayerOutput) -> list[LayerOutput]:
        before = layer.memory(name="total", size=6, boot_layer=pooled)
        greatest = layer.pooling(all_rows)
        return [layer.addto([row, before], name="total"), layer.addto([same, greatest], name="constant")]

    inputs: list[Any] = [rows, layer.StaticInput(pooled), layer.StaticInput(rows, is_seq=True)]
    made = layer.recurrent_group(step, inputs, name="group")
    assert isinstance(made, list)
    _, (total, constant) = _values(made)
    running, same = [], []
    for (sample,) in _SAMPLES:
        whole = np.array(sample)
        running.append(whole.sum(axis=0) + np.cumsum(whole, axis=0))
        same += [whole.sum(axis=0) + whole.max(axis=0)] * len(whole)
    np.testing.assert_allclose(total, np.concatenate(running), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(constant, same, rtol=1e-4, atol=1e-5)


def _translations(batches: int) -> Iterator[list[tuple[list[int], list[int], list[int]]]]:
    """Sentences to be said backwards; word 0 begins what is said, word 1 ends it."""
    rng = np.random.default_rng(5)
    for _ in range(batches):
        batch = []
        for _ in range(16):
            source = rng.integers(2, _WORDS, rng.integers(1, 4)).tolist()
            said = source[::-1]
            batch.append((source, [0, *said], [*said, 1]))
        yield batch


def _decoder(generating: bool) -> LayerOutput:
    """The book's machine translation in small: training, or making sentences."""
    source = layer.data("source", data_type.integer_value_sequence(_WORDS))
    encoded = networks.bidirectional_gru(layer.embedding(source, 8), 8, return_seq=True)
    projected = layer.mixed(16, layer.full_matrix_projection(encoded))
    boot = layer.fc(layer.first_seq(encoded), 16)

    def step(all_encoded: LayerOutput, all_projected: LayerOutput, word: LayerOutput) -> LayerOutput:
        before = layer.memory(name="decoder", size=16, boot_layer=boot)
        context = networks.simple_attention(all_encoded, all_projected, before)
        terms = [layer.full_matrix_projection(context), layer.full_matrix_projection(word)]
        state = layer.gru_step(layer.mixed(48, terms), before, name="decoder")
        return layer.fc(state, _WORDS, activation.Softmax(), name="words")

    inputs: list[Any] = [layer.StaticInput(encoded, True), layer.StaticInput(projected, True)]
    if generating:
        inputs.append(layer.GeneratedInput(_WORDS, "said_table", 8))
        return layer.beam_search(
            step, inputs, bos_id=0, eos_id=1, beam_size=3, max_length=6, name="decoder_group"
        )
    said = layer.data("said", data_type.integer_value_sequence(_WORDS))
    inputs.append(layer.embedding(said, 8, param_attr=paddle.attr.Param(name="said_table")))
    found = layer.recurrent_group(step, inputs, name="decoder_group")
    assert isinstance(found, LayerOutput)
    return found


def test_a_decoder_with_attention_learns_and_makes_sentences() -> None:
    decoder = _decoder(generating=False)
    cost = layer.classification_cost(decoder, layer.data("next", data_type.integer_value_sequence(_WORDS)))
    parameters = paddle.parameters.create(cost)
    assert any(name.endswith("@decoder_group.w0") for name in parameters.names())
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Adam(learning_rate=0.03))
    trainer.train(lambda: _translations(80), num_passes=1)
    tested = trainer.test(lambda: _translations(4))
    assert tested.metrics["classification_error_evaluator"] < 0.25
    stream = io.BytesIO()
    paddle.topology.Topology(decoder).serialize_for_inference(stream)
    samples = next(_translations(1))
    again = paddle.inference.Inference(parameters, fileobj=io.BytesIO(stream.getvalue())).infer(samples)
    np.testing.assert_allclose(
        again, paddle.infer(output_layer=decoder, parameters=parameters, input=samples), rtol=1e-6
    )
    with model.fresh():
        sentences = _decoder(generating=True)
        sources = [(source,) for source, _, _ in samples]
        prob, ids = paddle.infer(
            output_layer=sentences, parameters=parameters, input=sources, field=["prob", "id"]
        )
    assert prob.shape == (16, 3)
    assert (np.diff(prob, axis=1) <= 0).all()
    ends = np.flatnonzero(ids == -1)
    results = [part[part != -1] for part in np.split(ids, ends[:-1] + 1)]
    assert [len(result) - 1 for result in results] == [result[0] for result in results]
    best = [result[1:].tolist() for result in results[::3]]
    right = sum(found == [*source[::-1], 1] for found, (source,) in zip(best, sources, strict=True))
    assert right >= 8


def test_what_a_group_cannot_do_is_told() -> None:
    rows = _rows()
    with pytest.raises(UsageError, match="only the step of a recurrent_group can have memories"):
        layer.memory(name="state", size=2)
    with pytest.raises(UsageError, match="StaticInputs alone have no steps"):
        layer.recurrent_group(lambda row: row, layer.StaticInput(rows))

    def forgets(row: LayerOutput) -> LayerOutput:
        layer.memory(name="state", size=6)
        return layer.addto([row], name="other")

    with pytest.raises(UsageError, match="layer 'state'"):
        layer.recurrent_group(forgets, rows)

    def begins(row: LayerOutput) -> LayerOutput:
        return layer.memory(name="state", size=6, boot_with_const_id=3, boot_bias=True)

    with pytest.raises(UsageError, match="boot_layer, boot_bias and boot_with_const_id"):
        layer.recurrent_group(begins, rows)

    def unnamed(row: LayerOutput) -> LayerOutput:
        layer.memory(name=None, size=6)
        return layer.addto([row])

    with pytest.raises(UsageError, match="has neither a name nor an input"):
        layer.recurrent_group(unnamed, rows)
    word, whole = layer.GeneratedInput(5, "table", 2), layer.StaticInput(layer.pooling(rows))
    with pytest.raises(UsageError, match="needs a StaticInput"):
        layer.beam_search(lambda last: layer.fc(last, 5, activation.Softmax()), word, 0, 1, 2)
    with pytest.raises(UsageError, match="must return a layer with Softmax"):
        layer.beam_search(lambda same, last: layer.fc(last, 5), [whole, word], 0, 1, 2)
    with pytest.raises(TypeError, match="one GeneratedInput"):
        layer.beam_search(lambda same: same, [whole, whole], 0, 1, 2)
    pooled = layer.pooling(rows)
    with pytest.raises(UsageError, match=r"to the group as an input, in StaticInput"):
        layer.recurrent_group(lambda row: layer.addto([row, pooled]), rows)


def picture(channels: int, side: int) -> LayerOutput:
    return layer.data("picture", data_type.dense_vector(channels * side * side), height=side, width=side)


def count(parameters: Parameters) -> int:
    return sum(int(np.prod(parameters.get_shape(name))) for name in parameters)


def test_vgg_16_has_its_138_million_weights() -> None:
    out = networks.vgg_16_network(picture(3, 224), 3)
    parameters = paddle.parameters.create(out)
    assert (out.size, len(parameters), count(parameters)) == (1000, 32, 138_357_544)


def test_small_vgg_has_eleven_normalisations_and_learns() -> None:
    out = networks.small_vgg(picture(3, 32), 3, 10)
    cost = layer.classification_cost(out, layer.data("label", data_type.integer_value(10)))
    parameters = paddle.parameters.create(cost)
    # Weights of 10 convolutions, their biases, 4 numbers for each of their channels, then fc, norm, fc.
    assert count(parameters) == 7_632_576 + 2_688 + 4 * 2_688 + 262_656 + 2_048 + 5_130
    assert sum(name.endswith(".w2") for name in parameters) == 11
    before = parameters["___conv_0__.w0"]
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(learning_rate=1e-4))
    pixels = np.random.default_rng(0).normal(size=(2, 3072))
    trainer.train(lambda: iter([[(pixels[0], 1), (pixels[1], 2)]]))
    assert (parameters["___conv_0__.w0"] != before).mean() > 0.9


def test_img_conv_bn_pool_names_its_layers_and_activates_after_the_normalisation() -> None:
    out = networks.img_conv_bn_pool(
        picture(1, 4), 3, 2, 2, name="block", conv_padding=1, pool_stride=2, act=paddle.activation.Relu()
    )
    found = paddle.topology.Topology(out).proto().layers
    assert {config.name: config.active_type for config in found} == {
        "picture": "",
        "block_conv": "",
        "block_bn": "relu",
        "block_pool": "",
    }
    assert (out.num_filters, out.height, out.width) == (2, 2, 2)


def test_settings_of_a_group_go_to_one_convolution_each() -> None:
    out = networks.img_conv_group(
        picture(1, 8),
        [4, 6],
        2,
        num_channels=1,
        conv_filter_size=[3, 1],
        conv_padding=[1, 0],
        conv_with_batchnorm=[True, False],
        conv_batchnorm_drop_rate=[0.3, 0],
        pool_stride=2,
    )
    layers = paddle.topology.Topology(out).proto().layers
    assert [(config.type, config.active_type, config.drop_rate) for config in layers] == [
        ("data", "", 0.0),
        ("exconv", "", 0.0),
        ("batch_norm", "relu", 0.3),
        ("exconv", "relu", 0.0),
        ("pool", "", 0.0),
    ]
    assert (out.num_filters, out.height, out.width) == (6, 4, 4)
    with pytest.raises(ValueError, match=r"conv_padding: .* 2 convolutions.*\[1, 1, 1\]"):
        networks.img_conv_group(out, [4, 6], 2, conv_padding=[1, 1, 1])
