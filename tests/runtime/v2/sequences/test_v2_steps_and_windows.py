# SPDX-License-Identifier: Apache-2.0
"""Single steps of LSTM and GRU, windows of images, parts of sequences, rankings, and metrics over whole sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import paddle.v2 as paddle
from paddle.v2 import activation, attr, data_type, layer, networks
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput

_RNG = np.random.default_rng(8)
_COUNTS = (4, 1, 3)
Array = npt.NDArray[Any]


def _rows(size: int, name: str = "rows") -> LayerOutput:
    return layer.data(name, data_type.dense_vector_sequence(size))


def _sequences(size: int) -> list[Array]:
    return [_RNG.standard_normal((count, size)).astype(np.float32) for count in _COUNTS]


def _infer(out: Any, samples: list[Any], parameters: Any = None, **more: Any) -> Any:
    return paddle.infer(
        output_layer=out, parameters=parameters or paddle.parameters.create(out), input=samples, **more
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_a_group_of_lstm_steps_is_an_lstm(reverse: bool) -> None:
    rows = _rows(8)
    gates = attr.Param(name="gates", initial_std=0.5)
    peepholes = attr.Param(name="peepholes", initial_std=0.5)
    weight = attr.Param(name="w", initial_std=0.5)
    group = networks.lstmemory_group(
        rows,
        name="lstm",
        reverse=reverse,
        param_attr=weight,
        input_proj_bias_attr=gates,
        lstm_bias_attr=peepholes,
    )
    assert group.name == "lstm"
    whole = layer.lstmemory(
        rows, reverse=reverse, param_attr=attr.Param(name="w3"), bias_attr=attr.Param(name="bias")
    )
    parameters = paddle.parameters.create([whole, group])
    parameters["w3"] = parameters["w"].reshape(parameters.get_shape("w3"))
    parameters["bias"] = np.concatenate([parameters["gates"], parameters["peepholes"]], axis=1)
    samples = [(sample,) for sample in _sequences(8)]
    expected, found = _infer([whole, group], samples, parameters).reshape(2, -1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_group_of_gru_units_is_a_gru() -> None:
    rows = _rows(6)
    weight, bias = attr.Param(name="w", initial_std=0.5), attr.Param(name="b", initial_std=0.5)
    both = [
        networks.gru_group(rows, gru_param_attr=weight, gru_bias_attr=bias),
        layer.grumemory(rows, param_attr=weight, bias_attr=bias),
    ]
    found, expected = _infer(both, [(sample,) for sample in _sequences(6)]).reshape(2, -1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_another_output_than_a_layer_has_is_refused() -> None:
    with pytest.raises(UsageError, match=r"has no output 'state'; it has \['default'\]"):
        layer.get_output(_rows(3), "state")


def test_windows_of_images_are_rows_of_sequences() -> None:
    image = layer.data("image", data_type.dense_vector(2 * 4 * 6), height=4, width=6)
    out = layer.block_expand(image, block_x=2, block_y=4, stride_x=2, stride_y=1, num_channels=2)
    assert out.size == 2 * 4 * 2
    pixels = _RNG.normal(size=(3, 2, 4, 6)).astype(np.float32)
    found = _infer([layer.last_seq(out), layer.first_seq(out)], [(each.ravel(),) for each in pixels])
    want = [pixels[..., 4:].reshape(3, -1), pixels[..., :2].reshape(3, -1)]
    np.testing.assert_allclose(found, np.concatenate(want))


def test_parts_of_sequences_are_cut_out_by_integers_a_sample() -> None:
    kind = data_type.integer_value_sequence(1)
    offsets, sizes = layer.data("from", kind), layer.data("count", kind)
    out = layer.sub_seq(_rows(2), offsets=offsets, sizes=sizes, act=activation.Linear(), bias_attr=False)
    samples = _sequences(2)
    found = _infer(
        out,
        [
            (sample, [at], [count])
            for sample, (at, count) in zip(samples, [(1, 2), (0, 1), (2, 1)], strict=True)
        ],
        feeding={"rows": 0, "from": 1, "count": 2},
    )
    np.testing.assert_allclose(found, np.concatenate([samples[0][1:3], samples[1], samples[2][2:]]))


def test_a_row_convolution_looks_ahead() -> None:
    out = layer.row_conv(_rows(2), context_len=2, param_attr=attr.Param(name="w"))
    parameters = paddle.parameters.create(out)
    w, samples = parameters["w"], _sequences(2)
    found = _infer(out, [(sample,) for sample in samples], parameters)
    want = [w[0] * each + w[1] * np.concatenate([each[1:], np.zeros((1, 2))]) for each in samples]
    np.testing.assert_allclose(found, np.concatenate(want), rtol=1e-5, atol=1e-6)


def test_ids_are_drawn_by_their_chances() -> None:
    x = layer.data("x", data_type.dense_vector(3))
    drawn = layer.sampling_id(x)
    assert drawn.size == 3
    found = _infer(drawn, [([0.0, 1.0, 0.0],), ([0.0, 0.0, 1.0],)], field="id")
    assert found.tolist() == [1, 2]


def _gain(relevance: Array, top: int) -> float:
    return float(sum((2**r - 1) / np.log(place + 2) for place, r in enumerate(relevance[:top])))


def _lambdas(score: Array, relevance: Array, top: int) -> Array:
    """Pair by pair, as the formula is written."""
    order, found = np.argsort(-relevance, kind="stable"), np.zeros(len(score))
    for p, i in enumerate(order):
        for q, j in enumerate(order[p + 1 :], p + 1):
            change = abs(
                (2.0 ** relevance[i] - 2.0 ** relevance[j]) * (1 / np.log(p + 2) - 1 / np.log(q + 2))
            )
            pull = change / (1 + np.exp(score[i] - score[j])) / _gain(relevance[order], top)
            found[i] -= pull
            found[j] += pull
    return found


def test_lambda_cost_is_the_gain_of_the_order_and_pulls_by_pairs() -> None:
    score = layer.mixed(1, layer.dotmul_projection(_rows(1), param_attr=attr.Param(name="w")))
    relevance = _rows(1, "relevance")
    cost = layer.lambda_cost(score, relevance, NDCG_num=2)
    parameters = paddle.parameters.create(cost)
    parameters["w"] = np.ones((1, 1), np.float32)
    known = [np.array(each, np.float64) for each in ([0, 2, 1, 1], [1], [0, 0, 0])]
    samples = _sequences(1)
    batch = [(x, [[r] for r in each]) for x, each in zip(samples, known, strict=True)]
    feeding = {"rows": 0, "relevance": 1}
    values = _infer(cost, batch, parameters, feeding=feeding).ravel()
    want = []
    for x, each in zip(samples, known, strict=True):
        best = _gain(np.sort(each)[::-1], 2)
        gain = _gain(each[np.argsort(-x[:, 0], kind="stable")], 2) / best if best else 0.0
        want += [gain] * len(each)
    np.testing.assert_allclose(values, want, rtol=1e-5)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(momentum=0, learning_rate=0.0))
    seen: list[float] = []

    def handler(event: object) -> None:
        if isinstance(event, paddle.event.EndForwardBackward):
            seen.append(float(parameters.get_grad("w")[0, 0]))

    trainer.train(lambda: iter([batch]), event_handler=handler, feeding=feeding)
    pulls = [
        (x[:, 0] * _lambdas(x[:, 0], each, 2)).sum() for x, each in zip(samples[:1], known[:1], strict=True)
    ]
    assert seen[0] == pytest.approx(sum(pulls), rel=1e-4)


def _metrics(rows: LayerOutput, extra: Any, batch: list[Any], feeding: dict[str, int]) -> dict[str, float]:
    cost = layer.sum_cost(layer.fc(rows, 1))
    trainer = paddle.trainer.SGD(
        cost, paddle.parameters.create(cost), paddle.optimizer.Momentum(momentum=0), extra_layers=extra
    )
    found: dict[str, float] = trainer.test(lambda: iter([batch]), feeding=feeding).metrics
    return found


def test_chunks_are_counted_by_type_begin_and_end() -> None:
    """Tags are given; those that are found are the best columns of the rows. IOB: 2 * type + place; 4 is outside."""
    scores = _rows(5)
    label = layer.data("label", data_type.integer_value_sequence(5))
    best = layer.max_id(scores)
    paddle.evaluator.chunk(best, label, chunk_scheme="IOB", num_chunk_types=4 / 2, name="names")
    truth = [[0, 1, 4, 2], [2, 3, 3]]
    found = [[0, 1, 4, 0], [2, 3, 4]]
    batch = [(np.eye(5)[tags], labels) for tags, labels in zip(found, truth, strict=True)]
    metrics = _metrics(scores, [best, label], batch, {"rows": 0, "label": 1})
    assert metrics["names.precision"] == pytest.approx(1 / 3)
    assert metrics["names.recall"] == pytest.approx(1 / 3)
    assert metrics["names.F1-score"] == pytest.approx(1 / 3)
    with pytest.raises(UsageError, match="plain, IOB, IOE, IOBES, got 'BIO'"):
        paddle.evaluator.chunk(best, label, chunk_scheme="BIO", num_chunk_types=2)


def test_labels_without_places_are_compared_by_their_edit_distance() -> None:
    """Of the best columns repetitions and the last one, the blank, are left out: 0 0 2 1 is 0 1, and 0 2 0 is 0 0."""
    scores = _rows(3)
    label = layer.data("label", data_type.integer_value_sequence(2))
    paddle.evaluator.ctc_error(scores, label, name="error")
    found, truth = [[0, 0, 2, 1], [0, 2, 0], [2, 2]], [[0, 1], [0, 1, 1], [1]]
    batch = [(np.eye(3)[best], labels) for best, labels in zip(found, truth, strict=True)]
    assert _metrics(scores, label, batch, {"rows": 0, "label": 1})["error"] == pytest.approx(
        (0 + 2 / 3 + 1) / 3
    )
