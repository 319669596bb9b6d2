# SPDX-License-Identifier: Apache-2.0
"""Names, sizes and initial values that declarations give; what the documentation lists, and what importing costs."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import model
from paddle.v2.attr import ParameterAttribute
from paddle.v2.topology import Topology

layer, attr, data_type = paddle.layer, paddle.attr, paddle.data_type
ROOT = Path(__file__).resolve().parents[4]


def dense(name: str, dim: int) -> layer.LayerOutput:
    return layer.data(name, data_type.dense_vector(dim))


def test_unnamed_layers_count_per_kind() -> None:
    x, ids = dense("x", 4), layer.data("ids", data_type.integer_value(7))
    image = layer.data("image", data_type.dense_vector(12), height=2, width=2)
    label = layer.data("label", data_type.integer_value(3))
    names = [
        layer.fc(x, 3).name,
        layer.fc(x, 3, name="mine").name,
        layer.fc(x, 3).name,
        layer.embedding(ids, 5).name,
        layer.mixed(input=[layer.identity_projection(x)]).name,
        layer.concat([x, x]).name,
        layer.addto(x).name,
        layer.dropout(x, 0.5).name,
        layer.img_conv(image, 1, 2).name,
        layer.img_pool(image, 2).name,
        layer.batch_norm(image).name,
        layer.img_cmrnorm(image, 3).name,
        layer.max_id(x).name,
        layer.scaling(x, dense("one", 1)).name,
        layer.slope_intercept(x).name,
        layer.classification_cost(layer.fc(x, 3, paddle.activation.Softmax()), label).name,
        layer.square_error_cost(x, x).name,
        layer.cross_entropy_cost(x, label).name,
        layer.cos_sim(x, x).name,
    ]
    assert names == [
        "__fc_layer_0__",
        "mine",
        "__fc_layer_1__",
        "__embedding_0__",
        "__mixed_0__",
        "__concat_0__",
        "__addto_0__",
        "__dropout_0__",
        "__conv_0__",
        "__pool_0__",
        "__batch_norm_0__",
        "__crmnorm_0__",
        "__maxid_layer_0__",
        "__scaling_layer_0__",
        "__slope_intercept_layer_0__",
        "__cost_0__",
        "__square_error_cost_0__",
        "__cross_entropy_0__",
        "__cos_sim_0__",
    ]


def test_a_name_can_be_used_once() -> None:
    dense("x", 4)
    with pytest.raises(ValueError, match="duplicate layer name 'x'"):
        dense("x", 4)


def test_parameters_have_the_names_and_dims_of_the_original(space: model.Model) -> None:
    x, ids = dense("x", 4), layer.data("ids", data_type.integer_value(7))
    image = layer.data("image", data_type.dense_vector(3 * 6 * 6), height=6, width=6)
    layer.fc([x, x], 5)
    layer.embedding(ids, 6)
    layer.mixed(
        4,
        [
            layer.full_matrix_projection(x),
            layer.trans_full_matrix_projection(x),
            layer.dotmul_projection(x),
            layer.scaling_projection(x),
        ],
        bias_attr=True,
    )
    layer.img_conv(image, 3, 8, padding=1)
    layer.batch_norm(image)
    layer.prelu(x, partial_sum=2)
    layer.scale_shift(x)
    layer.factorization_machine(x, 2)
    shapes = {name: (config.dims, config.shape) for name, config in space.parameters.items()}
    assert shapes == {
        "___fc_layer_0__.w0": ((4, 5), (4, 5)),
        "___fc_layer_0__.w1": ((4, 5), (4, 5)),
        "___fc_layer_0__.wbias": ((1, 5), (1, 5)),
        "___embedding_0__.w0": ((7, 6), (7, 6)),
        "___mixed_0__.w0": ((4, 4), (4, 4)),
        "___mixed_0__.w1": ((4, 4), (4, 4)),
        "___mixed_0__.w2": ((1, 4), (1, 4)),
        "___mixed_0__.w3": ((1, 1), (1, 1)),
        "___mixed_0__.wbias": ((1, 4), (1, 4)),
        "___conv_0__.w0": ((), (1, 8 * 3 * 3 * 3)),
        "___conv_0__.wbias": ((8, 1), (8, 1)),
        "___batch_norm_0__.w0": ((), (1, 3)),
        "___batch_norm_0__.w1": ((1, 3), (1, 3)),
        "___batch_norm_0__.w2": ((1, 3), (1, 3)),
        "___batch_norm_0__.wbias": ((1, 3), (1, 3)),
        "___prelu_layer_0__.w0": ((1, 2), (1, 2)),
        "___scale_shift_0__.w0": ((1, 1), (1, 1)),
        "___scale_shift_0__.wbias": ((1, 1), (1, 1)),
        "___factorization_machine_0__.w0": ((4, 2), (4, 2)),
    }


@pytest.mark.parametrize(
    ("given", "mean", "std", "strategy", "smart"),
    [
        (attr.Param(), 0, 1 / math.sqrt(100), 0, True),
        (attr.Param(learning_rate=2), 0, 1 / math.sqrt(100), 0, True),
        (attr.Param(initial_std=0.5), 0, 0.5, 0, False),
        (attr.Param(initial_mean=2), 2, 0.01, 0, False),
        (attr.Param(initial_min=-1, initial_max=3), 1, 2, 1, False),
    ],
)
def test_initial_values_follow_the_attribute(
    space: model.Model, given: ParameterAttribute, mean: float, std: float, strategy: int, smart: bool
) -> None:
    layer.fc(dense("x", 100), 200, name="out", param_attr=given)
    config = space.parameters["_out.w0"]
    assert (config.initial_mean, config.initial_strategy, config.initial_smart) == (mean, strategy, smart)
    assert config.initial_std == pytest.approx(std)
    value = paddle.parameters.create(
        layer.addto(layer.fc(dense("y", 100), 200, name="two", param_attr=given))
    )["_two.w0"]
    if strategy == 0:
        assert value.mean() == pytest.approx(mean, abs=0.03)
        assert value.std() == pytest.approx(std, rel=0.05)
    else:
        assert -1 <= value.min() < -0.99
        assert 2.99 < value.max() <= 3


def test_a_bias_starts_at_zero_unless_the_user_describes_it(space: model.Model) -> None:
    x = dense("x", 4)
    out = layer.fc(layer.fc(x, 2000, name="a"), 2000, name="b", bias_attr=attr.Param(learning_rate=2))
    layer.fc(x, 3, name="c", bias_attr=False)
    parameters = paddle.parameters.create(out)
    assert not parameters["_a.wbias"].any()
    assert parameters["_b.wbias"].std() == pytest.approx(1, rel=0.05)
    assert "_c.wbias" not in space.parameters


def test_a_convolution_starts_by_its_fan_in_and_leaves_the_attribute_alone(space: model.Model) -> None:
    image = layer.data("image", data_type.dense_vector(3 * 64), height=8, width=8)
    shared = attr.Param()
    layer.img_conv(image, 3, 4, name="a", param_attr=shared)
    layer.img_conv(image, 5, 4, name="b", param_attr=shared)
    assert space.parameters["_a.w0"].initial_std == pytest.approx(math.sqrt(2 / (9 * 3)))
    assert space.parameters["_b.w0"].initial_std == pytest.approx(math.sqrt(2 / (25 * 3)))
    assert not space.parameters["_a.w0"].initial_smart


def test_first_values_depend_on_seed_and_name_alone() -> None:
    def value(seed: int, extra: bool) -> np.ndarray:
        with model.fresh():
            paddle.init(seed=seed)
            x = dense("x", 4)
            if extra:
                layer.fc(x, 3, name="other")
            return paddle.parameters.create(layer.fc(x, 3, name="out"))["_out.w0"]

    assert value(1, False).tolist() == value(1, True).tolist()
    assert value(1, False).tolist() != value(2, False).tolist()


def test_an_initializer_gives_the_first_value() -> None:
    given = attr.Param(initializer=lambda name: np.full((4, 3), len(name), np.float32))
    out = layer.fc(dense("x", 4), 3, name="out", param_attr=given)
    assert (paddle.parameters.create(out)["_out.w0"] == len("_out.w0")).all()


def test_an_initializer_must_give_the_right_shape() -> None:
    given = attr.Param(initializer=lambda name: np.zeros((3, 4), np.float32))
    out = layer.fc(dense("x", 4), 3, name="out", param_attr=given)
    with pytest.raises(ValueError, match=r"\(3, 4\).* \(4, 3\)"):
        paddle.parameters.create(out)


def test_one_name_is_one_parameter_if_the_dims_agree(space: model.Model) -> None:
    shared = attr.Param(name="shared")
    x, y = dense("x", 4), dense("y", 5)
    layer.fc(x, 3, param_attr=shared, bias_attr=False)
    layer.fc(x, 3, param_attr=shared, bias_attr=False)
    assert list(space.parameters) == ["shared"]
    with pytest.raises(ValueError, match=r"'shared'.*\(4, 3\) before, \(5, 3\) now"):
        layer.fc(y, 3, param_attr=shared)


def test_one_named_attribute_cannot_serve_two_inputs() -> None:
    x = dense("x", 4)
    with pytest.raises(ValueError, match="2 inputs cannot share"):
        layer.fc([x, x], 3, param_attr=attr.Param(name="w"))
    with pytest.raises(ValueError, match=r"expected 2 .* got 1"):
        layer.fc([x, x], 3, param_attr=[attr.Param()])


def test_image_sizes_round_down_for_convolution_and_up_for_pooling() -> None:
    image = layer.data("image", data_type.dense_vector(3 * 32 * 32))
    conv = layer.img_conv(image, 5, 8, num_channels=3, stride=2, padding=1)
    assert (conv.num_filters, conv.height, conv.width, conv.size) == (8, 15, 15, 8 * 15 * 15)
    assert layer.img_pool(conv, 2, stride=2).height == 8
    assert layer.img_pool(conv, 2, stride=2, ceil_mode=False).height == 7


def test_a_topology_keeps_what_its_outputs_need_in_order_of_creation() -> None:
    b, a = dense("b", 4), dense("a", 4)
    layer.fc(a, 9, name="unused")
    out = layer.addto([a, b], name="out")
    topology = Topology(out)
    assert [config.name for config in topology.proto().layers] == ["b", "a", "out"]
    assert topology.data_type() == [("b", data_type.dense_vector(4)), ("a", data_type.dense_vector(4))]
    assert topology.get_layer("out").size == 4
    with pytest.raises(ValueError, match="unused"):
        topology.get_layer("unused")
    with pytest.raises(ValueError, match="expected layers"):
        Topology("out")  # type: ignore[arg-type]


def test_arithmetic_on_layers_declares_layers() -> None:
    x, one = dense("x", 4), dense("one", 1)
    kinds = {
        (x + 1).layer_type: (x + 1).config.attrs["intercept"],
        (x - 1).name: (x - 1).config.attrs["intercept"],
        (1 - x).name: (1 - x).config.attrs["slope"],
        (x * 3).name: (3 * x).config.attrs["slope"],
    }
    assert list(kinds.values()) == [1, -1, -1, 3]
    assert (x + x).layer_type == "mixed"
    assert (one + x).size == 4
    assert (one * x).layer_type == "scaling"
    with pytest.raises(ValueError, match="sizes must be equal"):
        x + dense("y", 5)
    with pytest.raises(TypeError):
        x + "1"  # type: ignore[operator]


def test_a_mixed_layer_takes_projections_inside_its_block_only() -> None:
    x = dense("x", 4)
    with layer.mixed(size=3) as m:
        m += layer.full_matrix_projection(x)
    assert (m.size, m.parents) == (3, [x])
    with pytest.raises(ValueError, match="finished"):
        m += layer.full_matrix_projection(x)


@pytest.mark.parametrize("module", [paddle, paddle.layer, paddle.networks, paddle.optimizer])
def test_every_public_name_says_what_it_is(module: Any) -> None:
    assert [name for name in module.__all__ if not inspect.getdoc(getattr(module, name))] == []


ORIGINAL = """optimizer layer activation parameters init trainer event data_type attr pooling dataset reader topology
    networks evaluator minibatch inference op infer batch"""


def test_the_names_of_the_original_package_are_there() -> None:
    assert [name for name in ORIGINAL.split() if not hasattr(paddle, name)] == []


def test_local_training_needs_no_zmq() -> None:
    script = "import sys, paddle.v2.trainer; sys.exit('zmq' in sys.modules or 'cupy' in sys.modules)"
    subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=60, env={"PYTHONPATH": str(ROOT / "runtime")}
    )


@pytest.mark.parametrize("none", [False, 0, "", None])
def test_an_empty_bias_attribute_of_pooling_means_no_bias(none: Any) -> None:
    rows = layer.data("rows", data_type.dense_vector_sequence(3))
    parameters = paddle.parameters.create(layer.pooling(layer.fc(rows, 2, bias_attr=False), bias_attr=none))
    assert len(parameters.names()) == 1
