# SPDX-License-Identifier: Apache-2.0
"""Layers of rows with matrices of their own: tensor, selective_fc, conv_shift; repeat's activation; printer; names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput
from tests.runtime.v2.layers.gradient_check import check_closely
from tests.runtime.v2.layers.layer_cases import (
    ACTIVATIONS,
    OTHER,
    ROWS,
    act,
    attr,
    data_type,
    dense,
    layer,
    values,
)

rng = np.random.default_rng(11)
COLUMNS = [[1, 3], [0], [0, 1, 2]]
MASK = np.array([[0, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 0]], np.float32)


def test_tensor_has_a_matrix_for_each_column() -> None:
    x, y = dense("x", 4), dense("y", 4)
    out = layer.tensor(x, y, 3, name="t")
    weight = rng.normal(size=(3, 4, 4)).astype(np.float32)
    bias = np.array([[1.0, 2.0, 3.0]], np.float32)
    parameters = paddle.parameters.create(out)
    assert parameters.get_shape("_t.w0") == (4, 4, 3)
    given = {"_t.w0": weight.reshape(4, 4, 3), "_t.wbias": bias}
    expected = np.einsum("na,kab,nb->nk", ROWS, weight, OTHER) + bias
    np.testing.assert_allclose(values(out, ROWS, OTHER, parameters=given), expected, rtol=1e-5)


def test_conv_shift_goes_round() -> None:
    kernel = OTHER[:, :3]
    out = layer.conv_shift(dense("x", 4), dense("k", 3))
    expected = [
        [sum(a[(i + j) % 4] * b[j + 1] for j in (-1, 0, 1)) for i in range(4)]
        for a, b in zip(ROWS, kernel, strict=True)
    ]
    np.testing.assert_allclose(values(out, ROWS, kernel), expected, rtol=1e-5)
    with pytest.raises(UsageError, match="b must have an odd size of at most 4, got 2"):
        layer.conv_shift(dense("x2", 4), dense("k2", 2))


@pytest.mark.parametrize("kind", ["Tanh", "Softmax", "Linear", "Sigmoid"])
def test_of_selective_fc_only_selected_columns_count(kind: str) -> None:
    x, select = dense("x", 4), layer.data("s", data_type.sparse_binary_vector(4))
    activation = getattr(act, kind)()
    out = layer.selective_fc(x, 4, select, activation, name="f", bias_attr=False)
    weight = rng.normal(size=(4, 4)).astype(np.float32)
    linear = ROWS @ weight.T
    hidden = np.where(MASK > 0, linear, -np.inf) if kind == "Softmax" else linear
    expected = ACTIVATIONS[kind](hidden) * MASK
    found = values(out, ROWS, COLUMNS, parameters={"_f.w0": weight})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    whole = layer.selective_fc(x, 4, act=activation, param_attr=attr.Param(name="_f.w0"), bias_attr=False)
    found = values(whole, ROWS, parameters={"_f.w0": weight})
    np.testing.assert_allclose(found, ACTIVATIONS[kind](linear), rtol=1e-5)
    both = layer.selective_fc([x, x], 4, select, has_selected_colums=False, name="b", bias_attr=False)
    found = values(both, ROWS, parameters={"_b.w0": weight, "_b.w1": weight})
    np.testing.assert_allclose(found, np.tanh(2 * linear), rtol=1e-5)


CASES: dict[str, Callable[[LayerOutput, LayerOutput], LayerOutput]] = {
    "tensor": lambda x, y: layer.tensor(x, y, 3),
    "conv_shift": lambda x, y: layer.conv_shift(x, layer.fc(y, 3)),
    "selective_fc": lambda x, y: layer.selective_fc([x, y], 4, select(), act.Softmax()),
    "repeat": lambda x, y: layer.repeat(x, 2, act=act.Sigmoid()),
}


def select() -> LayerOutput:
    return layer.data("z", data_type.sparse_binary_vector(4))


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_row_layers(name: str) -> None:
    source = dense("source", 3)
    x, y = layer.fc(source, 4, act.Tanh()), layer.fc(source, 4, act.Tanh())
    cost = layer.sum_cost(layer.fc(CASES[name](x, y), 1, act.Tanh(), bias_attr=False))
    check_closely(cost, [*zip(rng.normal(size=(3, 3)), COLUMNS, strict=True)])


def test_repeat_has_an_activation() -> None:
    found = values(layer.repeat(dense("x", 4), 2, act=act.Sigmoid()), ROWS)
    np.testing.assert_allclose(found, ACTIVATIONS["Sigmoid"](np.tile(ROWS, 2)), rtol=1e-5)


def test_a_printer_prints_whenever_the_network_runs(capfd: pytest.CaptureFixture[str]) -> None:
    x = dense("x", 4)
    shown = layer.printer([x, layer.data("id", data_type.integer_value(9))], format="the %s:")
    cost = layer.sum_cost(layer.fc(x, 1))
    trainer = paddle.trainer.SGD(
        cost, paddle.parameters.create(cost), paddle.optimizer.Momentum(), extra_layers=shown
    )
    trainer.train(lambda: iter([[(ROWS[0], 7)]]))
    printed = capfd.readouterr().err
    assert "the x: shape: [1, 4] data: [ 0.5 ,-1.  , 2.  , 0.25]" in printed
    assert "the id: shape: [1, 1] data: [7]" in printed
    assert layer.print is layer.printer


def test_kinds_of_layers_have_the_originals_names() -> None:
    assert layer.LayerType.FC_LAYER == "fc"
    assert layer.LayerType.is_layer_type("seqlastins")
    assert not layer.LayerType.is_layer_type("FC_LAYER")


def test_a_function_says_which_settings_its_layer_supports() -> None:
    @layer.layer_support("drop_rate")
    def mine(input: LayerOutput, layer_attr: Any = None) -> str:
        """Declare nothing."""
        return "declared"

    x = dense("x", 4)
    assert (mine.__name__, mine.__doc__) == ("mine", "Declare nothing.")
    assert mine(x, attr.Extra(drop_rate=0.5, device=1)) == "declared"
    with pytest.raises(NotImplementedError, match="layer mine does not support error_clipping_threshold"):
        mine(x, layer_attr=attr.Extra(error_clipping_threshold=1.0))


def test_attributes_give_what_layers_ask_of_them() -> None:
    assert attr.Extra.to_kwargs(attr.Extra(drop_rate=0.5)) == {"drop_rate": 0.5}
    assert attr.Extra.to_kwargs(None) == {}
    given = attr.Param(learning_rate=2.0)
    assert attr.Param.to_bias(given) is given
    assert attr.Param.to_bias(None) is False
    given.set_default_parameter_name("first")
    given.set_default_parameter_name("second")
    assert given.name == "first"
