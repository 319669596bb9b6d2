# SPDX-License-Identifier: Apache-2.0
"""What cannot be declared is refused in the user's words; what is missing says so."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.errors import PaddleError
from paddle.v2.network import Network
from paddle.v2.topology import Topology

layer, attr, data_type = paddle.layer, paddle.attr, paddle.data_type


def dense(name: str, dim: int) -> layer.LayerOutput:
    return layer.data(name, data_type.dense_vector(dim))


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda x: layer.fc("x", 3), "fc takes layers, got str: 'x'; pass the layer itself"),  # type: ignore[arg-type]
        (lambda x: layer.fc(None, 3), "fc takes layers, got NoneType"),  # type: ignore[arg-type]
        (lambda x: layer.fc(x, 3, act=paddle.activation.Relu), "instance"),  # type: ignore[arg-type]
        (lambda x: layer.fc(x, 3, param_attr="w"), "^param_attr takes paddle.attr.Param"),  # type: ignore[arg-type]
        (lambda x: layer.fc(x, 3, bias_attr="no"), "^bias_attr takes paddle.attr.Param"),  # type: ignore[arg-type]
        (lambda x: layer.concat(x, x), "act takes an instance.*pass several layers as one list"),
        (
            lambda x: layer.recurrent_group(lambda row, other: row, [x]),
            "step must take 1 arguments, one for each input: missing",
        ),
        (lambda x: layer.concat([x, layer.identity_projection(x)]), "either layers or"),
        (lambda x: layer.data("s", "dense"), "data_type"),  # type: ignore[arg-type]
        (lambda x: layer.mixed(input=x), r"'__mixed_0__' .*projections.*identity_projection\(layer\)"),
        (lambda x: layer.mixed(input=[x]), "full_matrix_projection"),
        (lambda x: layer.pooling(x, "max"), r"pooling: pooling_type takes an instance .*, got 'max'"),
        (
            lambda x: layer.img_pool(x, 2, pool_type=paddle.pooling.Avg),
            "img_pool: pool_type takes an instance",
        ),
        (
            lambda x: layer.img_conv(x, filter_szie=3, num_filters=2),
            r"img_conv\(\).* did you mean 'filter_size'",
        ),
    ],
)
def test_wrong_types_are_named(declare, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TypeError, match=says):
        declare(dense("x", 4))


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda x: attr.Param(initial_std="big"), "initial_std"),  # type: ignore[arg-type]
        (lambda x: attr.Param(initial_max=1), "both initial_min"),
        (lambda x: attr.Extra(drop_rate=-0.1), "drop_rate"),
        (
            lambda x: layer.fc(x, 3, paddle.activation.Softmax(), layer_attr=attr.Extra(drop_rate=0.5)),
            "softmax",
        ),
        (lambda x: layer.classification_cost(x, layer.data("l", data_type.integer_value(4))), "Softmax"),
        (
            lambda x: layer.classification_cost(layer.data("l", data_type.integer_value(4)), x),
            "Softmax: input is the prediction, and label the data layer",
        ),
        (lambda x: layer.cross_entropy_cost(x, x), "integer_value"),
        (lambda x: layer.lstmemory(dense("s", 30)), "30; expected 4 times the size: project it first"),
        (
            lambda x: layer.mixed(6, [layer.full_matrix_projection(x), layer.identity_projection(x)]),
            "size 6, .* has size 4: identity projections keep",
        ),
        (
            lambda x: layer.img_conv(
                layer.data("p", data_type.dense_vector(3072), height=32, width=32), 3, 8, num_channels=1
            ),
            "32x32 pixels; 3072 = 3 x 32 x 32: num_channels=3",
        ),
        (lambda x: layer.square_error_cost(x, dense("y", 5)), "same size"),
        (lambda x: layer.img_conv(x, 3, 3), "num_channels"),
        (lambda x: layer.img_conv(dense("y", 12), 2, 3, num_channels=1), "not a square image of 1 channels"),
        (
            lambda x: layer.img_conv(dense("y", 784), 5, 3, num_channels=3),
            "not a square image of 3 channels; 784 = 1 x 28 x 28: num_channels=1",
        ),
        (lambda x: layer.scaling(x, x), "expected 1"),
        (lambda x: layer.img_pool(x, 2, num_channels=1, pool_type=paddle.pooling.Sum()), "Max, Avg"),
        (
            lambda x: layer.img_pool(x, 2, num_channels=1, stride=0),
            r"stride must be at least 1, got \(0, 0\)",
        ),
        (lambda x: layer.img_pool(x, 2, num_channels=1, padding_y=-1), "padding must be at least 0"),
        (lambda x: layer.img_conv(x, 2, 3, num_channels=1, stride=(1, 0)), "stride must be at least 1"),
        (lambda x: layer.img_conv(x, 2.5, 3, num_channels=1), "filter_size must be a whole number, got 2.5"),
        (lambda x: layer.img_conv(x, (2, 2, 2), 3, num_channels=1), r"pair, got \(2, 2, 2\)"),
        (lambda x: layer.img_conv(x, 2, 3, num_channels=1, groups=0), "groups"),
        (lambda x: layer.fc(x, 7 / 2), "must be a whole number, got 3.5"),  # type: ignore[arg-type]
        (lambda x: layer.fc(x, "3"), "must be a whole number, got '3'"),  # type: ignore[arg-type]
        (lambda x: layer.resize(x, 2.0), "size of layer '__resize_0__' must be a whole number"),
        (lambda x: layer.embedding(x, 3), "'x' is .*Dense.*; declare it as integer_value"),
        (lambda x: layer.data("y", data_type.dense_vector(4.0)), "dimension .* must be a whole number"),  # type: ignore[arg-type]
    ],
)
def test_wrong_values_are_named(declare, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=says):
        declare(dense("x", 4))


def _labels(size: int) -> Any:
    return layer.data("tags", data_type.integer_value_sequence(size))


@pytest.mark.parametrize("declare", [layer.crf, lambda x, tags: layer.crf_decoding(x, 4, label=tags)])
def test_tags_beyond_the_size_of_a_crf_are_refused_where_it_is_declared(declare: Any) -> None:
    x = layer.data("x", data_type.dense_vector_sequence(4))
    with pytest.raises(ValueError, match=r"label 'tags' must be .* integers below 4.*dim=5"):
        declare(x, _labels(5))
    with pytest.raises(ValueError, match=r"label 'x' must be .* integers below 4"):
        declare(x, x)


@pytest.mark.parametrize(
    "cost",
    [
        lambda x, tags: layer.warp_ctc(layer.fc(x, 4, act=paddle.activation.Linear()), tags, name="cost"),
        lambda x, tags: layer.cross_entropy_cost(
            layer.fc(x, 4, act=paddle.activation.Softmax()), tags, "cost"
        ),
        lambda x, tags: layer.nce(x, tags, num_classes=4, name="cost"),
        lambda x, tags: layer.hsigmoid(x, tags, num_classes=4, name="cost"),
    ],
)
def test_a_label_beyond_the_classes_is_named_with_its_sample_and_layer(cost: Any) -> None:
    x = layer.data("x", data_type.dense_vector_sequence(4))
    out = cost(x, _labels(9))
    parameters = paddle.parameters.create(out)
    trainer = paddle.trainer.SGD(out, parameters, paddle.optimizer.Momentum())
    rows = np.zeros((3, 4), np.float32)
    wrong = r"sample 1 of the batch, row 4 of Label: label 7 is not in \[0, 4\).*; created by layer 'cost' at .*py:\d"
    with pytest.raises(PaddleError, match=wrong):
        trainer.train(lambda: iter([[(rows, [1, 2, 3]), (rows, [2, 7, 1])]]))


def test_a_network_of_static_parameters_computes_and_changes_nothing() -> None:
    kept = attr.Param(name="w", is_static=True)
    out = layer.sum_cost(layer.fc(dense("x", 4), 2, param_attr=kept, bias_attr=False), name="cost")
    parameters = paddle.parameters.create(out)
    weights = parameters.get("w")
    with pytest.warns(UserWarning, match=r"static: \['w'\]"):
        trainer = paddle.trainer.SGD(out, parameters, paddle.optimizer.Momentum(learning_rate=1.0))
    rows = np.random.default_rng(5).random((3, 4), np.float32)
    costs: list[float] = []
    trainer.train(
        lambda: iter([[(row,) for row in rows]]),
        num_passes=2,
        event_handler=lambda event: costs.append(getattr(event, "cost", -1.0)),
    )
    expected = np.tanh(rows @ weights).sum() / 3
    assert [cost for cost in costs if cost != -1.0] == pytest.approx([expected] * 2, rel=1e-5)
    assert (parameters.get("w") == weights).all()
    assert not parameters.get_grad("w").any()
    with pytest.warns(UserWarning, match="static"):
        remote = paddle.trainer.SGD(out, parameters, paddle.optimizer.Momentum(), is_local=False)
    with pytest.raises(ValueError, match="is_local=False: all parameters are static"):
        remote.train(lambda: iter([[(rows[0],)]]))


def test_a_cost_that_no_trainable_parameter_affects_is_refused() -> None:
    kept = attr.Param(name="w", is_static=True)
    x = dense("x", 4)
    out = layer.sum_cost(layer.fc(x, 2, param_attr=kept, bias_attr=False), name="cost")
    other = layer.fc(x, 2, name="other")
    parameters = paddle.parameters.create([out, other])
    with pytest.raises(ValueError, match=r"\['cost'\]; \['w'\] are static"):
        paddle.trainer.SGD(out, parameters, paddle.optimizer.Momentum(), extra_layers=other)


@pytest.mark.parametrize("setting", ["drop_rate", "error_clipping_threshold"])
@pytest.mark.parametrize(
    ("kind", "declare"),
    [
        ("sum_cost", lambda x, tags, extra: layer.sum_cost(x, layer_attr=extra)),
        ("cost", lambda x, tags, extra: layer.classification_cost(x, tags, layer_attr=extra)),
        ("crf", lambda x, tags, extra: layer.crf(x, tags, layer_attr=extra)),
        ("crf_decoding", lambda x, tags, extra: layer.crf_decoding(x, 4, layer_attr=extra)),
        ("ctc", lambda x, tags, extra: layer.ctc(x, tags, layer_attr=extra)),
        ("warp_ctc", lambda x, tags, extra: layer.warp_ctc(layer.fc(x, 4), tags, layer_attr=extra)),
        ("hsigmoid", lambda x, tags, extra: layer.hsigmoid(x, tags, layer_attr=extra)),
        ("nce", lambda x, tags, extra: layer.nce(x, tags, layer_attr=extra)),
    ],
)
def test_costs_refuse_settings_of_the_layer_below(setting: str, kind: str, declare: Any) -> None:
    x = layer.fc(layer.data("x", data_type.dense_vector_sequence(4)), 4, act=paddle.activation.Softmax())
    tags, given = _labels(4), {setting: 0.5}
    extra = attr.Extra(given.get("error_clipping_threshold"), given.get("drop_rate"))
    with pytest.raises(ValueError, match=f"^{kind} .*{setting}"):
        declare(x, tags, extra)
    declare(x, tags, attr.Extra(device=-1))


def test_a_pooling_that_returns_positions_is_refused() -> None:
    rows = layer.data("x", data_type.dense_vector_sequence(4))
    with pytest.raises(ValueError, match=r"output_max_index.* 'x'"):
        layer.pooling(rows, paddle.pooling.Max(output_max_index=True))


@pytest.mark.parametrize(
    ("late", "names"),
    [
        ({"is_static": True}, "is_static"),
        ({"learning_rate": 2.0, "l2_rate": 0.5, "initial_std": 1.0}, "initial_std, l2_rate, learning_rate"),
        ({"sparse_update": True, "initializer": lambda name: np.zeros((4, 2))}, "sparse_update, initializer"),
        (
            {"update_hooks": attr.Hook("pruning", 0.5), "initial_max": 1.0, "initial_min": 0.0},
            "initial_max, .*hooks",
        ),
        ({"initial_std": 0.0}, "initial_std"),
        ({}, ""),
        ({"learning_rate": 1.0, "l2_rate": 0.0, "momentum": 0.25}, ""),
    ],
)
def test_settings_of_a_shared_parameter_that_come_too_late_are_reported(late: Any, names: str) -> None:
    x = dense("x", 4)
    layer.fc(x, 2, param_attr=attr.Param(name="w", momentum=0.25))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        layer.fc(x, 2, param_attr=attr.Param(name="w", **late))
    assert len(found) == bool(names)
    assert re.search(names and f"'w' .* of {names}$", "".join(str(each.message) for each in found))


def test_sizes_of_numpy_are_sizes() -> None:
    size: Any = np.int64(3)
    out = layer.fc(layer.data("x", data_type.dense_vector(size)), size)
    written = Topology(out).network.to_json()
    assert Network.from_json(written).to_json() == written


def test_an_integer_label_of_a_regression_is_named_with_its_declaration_and_line() -> None:
    label = layer.data("y", data_type.integer_value(1))
    cost = layer.square_error_cost(layer.fc(dense("x", 4), 1), label)
    with pytest.raises(
        PaddleError, match=r"'y' is integer_value\(1\): declare it as dense_vector\(1\).*created at /"
    ):
        paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum())


def test_a_misspelt_layer_gets_a_hint() -> None:
    with pytest.raises(AttributeError, match="did you mean 'square_error_cost'"):
        _ = layer.square_error_cots


def test_input_types_print_as_in_the_original() -> None:
    assert (
        repr(data_type.integer_value_sequence(9))
        == "InputType(dim=9, seq_type=SequenceType.SEQUENCE, type=DataType.Index)"
    )
