# SPDX-License-Identifier: Apache-2.0
"""Small things that scripts of 2016 and 2017 do and take for granted."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import paddle.v2 as paddle
from paddle.errors import PaddleError
from paddle.v2 import activation, attr, data_type, layer
from paddle.v2.errors import UsageError

ROWS = np.array([[0.5, -1.0, 2.0], [1.5, 0.75, -0.5]], np.float32)


def _x() -> layer.LayerOutput:
    return layer.data("x", data_type.dense_vector(3))


def _costs(cost: layer.LayerOutput, values: dict[str, npt.NDArray[np.float32]], *columns: Any) -> Any:
    parameters = paddle.parameters.create(cost)
    for name, value in values.items():
        parameters[name] = value
    return paddle.infer(cost, parameters, list(zip(*columns, strict=True)))


def _noise_cost(
    scores: npt.NDArray[Any], true: list[int], drawn: int, count: int, chances: list[float]
) -> float:
    """-ln(o / (o + q)) of true classes, -ln(q / (o + q)) of `count` times the drawn one; q is chance times count."""
    o, q = 1 / (1 + np.exp(-scores)), count * np.array(chances)
    noise = -np.log(q[drawn] / (o[drawn] + q[drawn])) * count
    return float(noise - sum(np.log(o[k] / (o[k] + q[k])) for k in true))


@pytest.mark.parametrize("several", [False, True])
def test_nce_draws_by_the_chances_given_and_takes_one_true_class_or_several(several: bool) -> None:
    chances = [0.0, 1.0, 0.0, 0.0]
    labels: list[Any] = [[0, 3], [2]] if several else [3, 2]
    kind = data_type.sparse_binary_vector(4) if several else data_type.integer_value(4)
    cost = layer.nce(
        _x(),
        layer.data("label", kind),
        param_attr=attr.Param(name="w"),
        bias_attr=attr.Param(name="b"),
        num_neg_samples=5,
        neg_distribution=chances,
    )
    w = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)
    b = np.array([[0.1, -0.2, 0.3, 0.4]], np.float32)
    found = _costs(cost, {"w": w, "b": b}, ROWS, labels)
    trues = labels if several else [[label] for label in labels]
    want = [_noise_cost(w @ row + b[0], true, 1, 5, chances) for row, true in zip(ROWS, trues, strict=True)]
    np.testing.assert_allclose(found.ravel(), want, rtol=1e-5)


@pytest.mark.parametrize("label", [1, [0, 2]])
def test_gradients_of_nce_are_those_of_its_cost(label: Any) -> None:
    kind = data_type.integer_value(3) if isinstance(label, int) else data_type.sparse_binary_vector(3)
    cost = layer.nce(
        _x(),
        layer.data("label", kind),
        param_attr=attr.Param(name="w"),
        bias_attr=False,
        num_neg_samples=2,
        neg_distribution=[0.0, 1.0, 0.0],
    )
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(momentum=0, learning_rate=0.0))
    batch = [[(ROWS[0], label)]]
    seen: list[npt.NDArray[np.float32]] = []

    def handler(event: object) -> None:
        if isinstance(event, paddle.event.EndForwardBackward):
            seen.append(parameters.get_grad("w"))

    trainer.train(lambda: iter(batch), event_handler=handler)
    value = parameters["w"]
    for place in [(0, 0), (1, 2), (2, 1)]:
        moved = []
        for delta in (1e-2, -1e-2):
            other = value.copy()
            other[place] += delta
            parameters["w"] = other
            moved.append(trainer.test(lambda: iter(batch)).cost)
        assert seen[0][place] == pytest.approx((moved[0] - moved[1]) / 2e-2, rel=1e-2, abs=1e-4)


def test_chances_that_do_not_fit_the_classes_are_refused() -> None:
    label = layer.data("label", data_type.integer_value(4))
    with pytest.raises(UsageError, match="neg_distribution must be 4 probabilities"):
        layer.nce(_x(), label, neg_distribution=[0.5, 0.5])


def test_rank_cost_takes_integers_also_beyond_the_range_that_was_declared() -> None:
    left, right = (layer.data(name, data_type.dense_vector(1)) for name in ("left", "right"))
    label = layer.data("label", data_type.integer_value(1))
    found = _costs(layer.rank_cost(left, right, label), {}, [[2.0], [0.5]], [[1.0], [1.5]], [1, 0])
    o = np.array([1.0, -1.0])
    np.testing.assert_allclose(found.ravel(), np.log1p(np.exp(o)) - np.array([1, 0]) * o, rtol=1e-6)


def test_a_label_that_is_a_class_is_one_of_the_binary_labels() -> None:
    out = layer.addto(_x(), act=activation.Sigmoid())
    label = layer.data("label", data_type.integer_value(3))
    found = _costs(layer.multi_binary_label_cross_entropy_cost(out, label), {}, ROWS, [2, 0])
    o, t = 1 / (1 + np.exp(-ROWS)), np.eye(3)[[2, 0]]
    np.testing.assert_allclose(
        found.ravel(), -(t * np.log(o) + (1 - t) * np.log(1 - o)).sum(axis=1), rtol=1e-5
    )


def test_a_data_layer_takes_attributes_of_a_layer() -> None:
    x = layer.data("x", data_type.dense_vector(3), layer_attr=attr.ExtraAttr(device=-1))
    np.testing.assert_array_equal(_costs(layer.addto(x), {}, ROWS), ROWS)


def test_configurations_of_parameters_are_there_by_name() -> None:
    parameters = paddle.parameters.create(layer.fc(_x(), 2, name="f", param_attr=attr.Param(initial_std=0.5)))
    found = parameters.__param_conf__["_f.w0"]
    assert (found.dims, found.initial_std, found.initial_mean) == ((3, 2), 0.5, 0.0)


def test_a_layer_tells_its_names_outputs_depth_and_direction() -> None:
    x = layer.data("rows", data_type.dense_vector_sequence(3))
    backwards = layer.recurrent(x, name="r", reverse=True)
    assert (x.full_name, x.outputs, x.depth, x.reverse) == ("rows", ["default"], 1, None)
    assert backwards.reverse is True


def test_a_network_prints_as_the_text_of_messages() -> None:
    text = str(layer.parse_network(layer.fc(_x(), 2, name="f", layer_attr=attr.Extra(drop_rate=0.5))))
    assert text.startswith(
        'type: "nn"\nlayers {\n  name: "x"\n  type: "data"\n  size: 3\n  active_type: ""\n}\n'
    )
    assert "  drop_rate: 0.5\n" in text
    assert '  input_layer_name: "x"\n' in text
    assert '  input_parameter_name: "_f.w0"\n' in text.replace("    ", "  ")
    assert "  dims: 3\n  dims: 2\n" in text
    assert '\noutput_layer_names: "f"\nsub_models {\n  name: "root"\n  layer_names: "x"\n' in text


def test_a_topology_gives_the_layers_that_were_declared() -> None:
    x = _x()
    hidden = layer.fc(x, 2, name="hidden")
    extra = layer.fc(x, 2, name="extra")
    topology = paddle.topology.Topology(layer.fc(hidden, 2), extra_layers=extra)
    assert topology.get_layer("hidden") == hidden
    assert topology.get_layer("extra") == extra
    assert topology.get_layer("x") == x


def test_curves_are_read_under_the_name_that_scripts_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISABLE_PLOT", "True")
    ploter = paddle.plot.Ploter("train", "test")
    ploter.append("train", 3, 0.5)
    assert ploter.__plot_data__["train"].value == [0.5]
    assert ploter.__plot_data__["test"].step == []


def test_a_gpu_that_is_not_there_is_refused_by_init() -> None:
    with pytest.raises(PaddleError, match="GPU"):
        paddle.init(use_gpu=True, gpu_id=1000)


@pytest.mark.parametrize("name", ["", ".layers", ".executor"])
def test_fluid_within_v2_is_the_same_package(name: str) -> None:
    found = importlib.import_module(f"paddle.v2.fluid{name}")
    assert isinstance(found, ModuleType)
    assert found is importlib.import_module(f"paddle.fluid{name}")
    assert found.__spec__ is not None
    assert found.__spec__.name == f"paddle.fluid{name}"


def test_a_size_from_an_old_division_is_told_what_python_3_wants() -> None:
    with pytest.raises(
        UsageError, match=r"whole number, got 4\.5: `/` returns a float in Python 3; use `//`"
    ):
        layer.fc(_x(), 9 / 2)  # type: ignore[arg-type]


def test_images_of_a_dense_array_are_as_high_and_wide_as_the_samples() -> None:
    image = layer.data("image", data_type.dense_array(16))
    weight = attr.Param(name="w")
    out = layer.img_conv(
        image,
        3,
        1,
        num_channels=1,
        act=activation.Linear(),
        param_attr=weight,
        bias_attr=False,
        padding=(1, 0),
    )
    rows = layer.block_expand(out, block_x=1, block_y=2, stride_x=1, stride_y=1, num_channels=1)
    parameters = paddle.parameters.create(rows)
    parameters["w"] = np.array([[0, 0, 0, 0, 1, 0, 0, 0, 0]], np.float32)
    for width in (4, 7, 2):
        pixels = np.random.default_rng(width).normal(size=(2, 4, width)).astype(np.float32)
        found = paddle.infer(rows, parameters, [(each,) for each in pixels])
        np.testing.assert_array_equal(found, pixels[:, 1:3].transpose(0, 2, 1).reshape(-1, 2))
    flat = pixels.reshape(2, -1)[:, :1].repeat(16, axis=1)
    assert paddle.infer(rows, parameters, [(each,) for each in flat]).shape == (8, 2)
    with pytest.raises(UsageError, match=r"expected 16 numbers.* got 6"):
        paddle.infer(rows, parameters, [(each,) for each in flat[:, :6]])


def test_what_reads_images_of_another_size_as_rows_is_an_error_and_no_other_rows() -> None:
    image = layer.data("image", data_type.dense_array(16))
    out = layer.img_pool(image, 1, num_channels=1)
    pooled = layer.fc(out, 2, name="g")
    with pytest.raises(PaddleError, match="reshape"):
        paddle.infer(pooled, paddle.parameters.create(pooled), [(np.ones((4, 8)),)])


def test_a_part_of_each_image_is_scaled() -> None:
    image = layer.data("image", data_type.dense_vector(2 * 3 * 4), height=3, width=4)
    part = layer.data("part", data_type.dense_vector(6))
    out = layer.scale_sub_region(image, part, value=0.5)
    pixels = np.ones((2, 2, 3, 4), np.float32)
    found = paddle.infer(
        out,
        paddle.parameters.create(out),
        [(pixels[0].ravel(), [1, 1, 2, 3, 4, 4]), (pixels[1].ravel(), [2, 2, 1, 3, 1, 1])],
    )
    pixels[0, 0, 1:3, 3] = pixels[1, 1, :, 0] = 0.5
    np.testing.assert_array_equal(found, pixels.reshape(2, -1))


def test_gradients_are_scaled_where_the_images_are() -> None:
    image = layer.data("image", data_type.dense_vector(6), height=2, width=3)
    part = layer.data("part", data_type.dense_vector(6))
    weighted = layer.img_conv(
        image, 1, 1, num_channels=1, act=activation.Linear(), bias_attr=False, param_attr=attr.Param(name="w")
    )
    cost = layer.sum_cost(layer.scale_sub_region(weighted, part, value=3.0))
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(momentum=0, learning_rate=0.0))
    seen: list[float] = []

    def handler(event: object) -> None:
        if isinstance(event, paddle.event.EndForwardBackward):
            seen.append(float(parameters.get_grad("w")))

    pixels = np.arange(6, dtype=np.float32)
    trainer.train(lambda: iter([[(pixels, [1, 1, 2, 2, 1, 2])]]), event_handler=handler)
    assert seen == [pixels.sum() + 2 * (pixels[3] + pixels[4])]


def test_parameters_are_added_by_messages() -> None:
    config = importlib.import_module("paddle.proto.ParameterConfig_pb2").ParameterConfig()
    config.name, config.size = "w", 6
    config.dims.extend([3, 2])
    config.is_static = True
    added = paddle.parameters.Parameters()
    added.__append_config__(config)
    assert added.get_shape("w") == (3, 2)
    assert added.__param_conf__["w"].is_static
    with pytest.raises(ValueError, match="duplicated parameter w"):
        added.__append_config__(config)
    other = paddle.parameters.create(layer.fc(_x(), 2, name="f"))
    added.__append_config__(other.__param_conf__["_f.w0"])
    assert added.names() == ["w", "_f.w0"]


def test_layers_and_their_inputs_have_the_names_of_messages() -> None:
    made = layer.fc(_x(), 2, name="f", act=activation.Relu())
    config = paddle.topology.Topology(made).get_layer_proto("f")
    assert config is not None
    assert (config.active_type, config.bias_parameter_name) == ("relu", "_f.wbias")
    (link,) = config.inputs
    assert (link.input_layer_name, link.input_parameter_name) == ("x", "_f.w0")


def test_inference_yields_a_row_of_fields_for_each_output() -> None:
    first = layer.fc(_x(), 2, act=activation.Softmax())
    outs = [first, layer.fc(first, 3)]
    inference = paddle.inference.Inference(paddle.parameters.create(outs), outs)
    samples = [(row,) for row in ROWS]
    (result,) = inference.iter_infer(samples)
    assert [each["value"].shape for each in result] == [(2, 2), (2, 3)]
    found = [value.shape for (value,) in inference.iter_infer_field(field="value", input=samples)]
    assert found == [(2, 2), (2, 3)]


def test_a_network_is_written_as_text_or_for_inference(tmp_path: Path) -> None:
    made = layer.fc(_x(), 2, name="f")
    dump = importlib.import_module("paddle.utils.dump_v2_config").dump_v2_config
    dump(made, str(tmp_path / "text"))
    assert (tmp_path / "text").read_text() == f"{layer.parse_network(made)}\n"
    dump([made], str(tmp_path / "binary"), binary=True)
    parameters = paddle.parameters.create(made)
    with open(tmp_path / "binary", "rb") as file:
        inference = paddle.inference.Inference(parameters, fileobj=file)
    samples = [(row,) for row in ROWS]
    np.testing.assert_array_equal(inference.infer(samples), paddle.infer(made, parameters, samples))
    with pytest.raises(PaddleError, match="missing"):
        dump(made, str(tmp_path / "missing" / "text"))


def test_types_of_data_have_their_shorter_names() -> None:
    provider = importlib.import_module("paddle.trainer.PyDataProvider2")
    assert provider.integer_sub_sequence(3) == data_type.integer_value_sub_sequence(3)
    assert provider.sparse_vector_sequence(3) == data_type.sparse_float_vector_sequence(3)
    assert provider.sparse_vector_sub_sequence(3) == data_type.sparse_float_vector_sub_sequence(3)
