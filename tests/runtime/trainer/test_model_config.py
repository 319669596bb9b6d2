# SPDX-License-Identifier: Apache-2.0
"""Networks are read from the original's messages: the layers are those that the message describes."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.errors import ModelFileError, PaddleError
from paddle.proto import ModelConfig_pb2, TrainerConfig_pb2
from paddle.trainer.config_parser import parse_config
from paddle.utils import merge_model
from paddle.utils.dump_v2_config import dump_v2_config
from paddle.utils.model_config import network_in
from paddle.v2 import activation as act
from paddle.v2 import data_type, layer, networks, pooling
from paddle.v2.layer.output import LayerOutput
from paddle.v2.network import NetworkMessage

Messages: Any = ModelConfig_pb2
DIM = 8


def images() -> LayerOutput:
    image = layer.data("image", data_type.dense_vector(3 * 8 * 8), height=8, width=8)
    group = networks.img_conv_group(
        image, [4, 4], 2, 3, pool_stride=2, conv_with_batchnorm=True, conv_batchnorm_drop_rate=[0.25, 0]
    )
    grown = layer.img_conv(group, 3, 2, trans=True, stride=2, padding=1, act=act.Linear())
    normed = layer.img_cmrnorm(grown, 3)
    pooled = layer.img_pool(normed, 3, stride=2, pool_type=pooling.Avg(), ceil_mode=False, exclude_mode=False)
    return layer.fc([layer.maxout(pooled, 2), layer.spp(normed, pyramid_height=2)], 5, act.Softmax())


def sequences() -> LayerOutput:
    words = layer.embedding(layer.data("words", data_type.integer_value_sequence(20)), DIM)
    cells = [networks.simple_lstm(words, DIM, reverse=True), networks.simple_gru(words, DIM)]
    cells.append(layer.recurrent(words, act=act.Relu()))
    ends = [
        layer.first_seq(cells[0]),
        layer.last_seq(cells[1]),
        layer.pooling(cells[2], pooling.SquareRootN()),
    ]
    conv = networks.sequence_conv_pool(words, 3, 4)
    return layer.concat([*ends, layer.pooling(words, pooling.Sum()), conv])


def terms() -> LayerOutput:
    x, y = (layer.data(name, data_type.dense_vector(DIM)) for name in "xy")
    mixed = layer.mixed(
        DIM,
        [
            layer.full_matrix_projection(x),
            layer.dotmul_operator(x, y, scale=0.5),
            layer.trans_full_matrix_projection(y),
            layer.dotmul_projection(x),
            layer.scaling_projection(y),
            layer.slice_projection(layer.concat([x, y]), [(1, 5), (9, 13)]),
        ],
        act=act.Tanh(),
        bias_attr=True,
    )
    return layer.concat([layer.identity_projection(mixed), layer.full_matrix_projection(x, 3)])


def groups() -> LayerOutput:
    words = layer.embedding(layer.data("nested", data_type.integer_value_sub_sequence(20)), DIM)
    boot = layer.fc(layer.data("boot", data_type.dense_vector(3)), DIM)

    def word(row: LayerOutput, whole: LayerOutput) -> LayerOutput:
        before = layer.memory("state", DIM, boot_bias=True)
        return layer.fc([row, before, whole], DIM, name="state")

    def sentence(rows: LayerOutput, same: LayerOutput) -> LayerOutput:
        before = layer.memory("sentence", DIM, boot_layer=boot)
        inner = layer.recurrent_group(word, [rows, layer.StaticInput(same)], reverse=True, name="inner")
        return layer.addto([layer.first_seq(inner), before], name="sentence")

    inputs = [layer.SubsequenceInput(words), layer.StaticInput(boot)]
    return layer.last_seq(layer.recurrent_group(sentence, inputs, name="outer"))


def volumes() -> LayerOutput:
    volume = layer.data("volume", data_type.dense_vector(2 * 4 * 7 * 6), depth=4, height=7, width=6)
    conv = layer.img_conv3d(volume, 3, 4, num_channels=2, padding=(1, 1, 0))
    pooled = layer.img_pool3d(conv, 2, stride=2)
    return layer.fc(layer.img_conv3d(pooled, 2, 3, stride=2, trans=True, shared_biases=False), 3)


def detectors() -> list[LayerOutput]:
    image = layer.data("image", data_type.dense_vector(3 * 16 * 16), height=16, width=16)
    maps = layer.img_conv(image, 3, 4, num_channels=3, padding=1, stride=2)
    prior = layer.priorbox(maps, image, [2.0], [0.125, 0.125, 0.25, 0.25], [4], [8])
    sides = [[layer.img_conv(maps, 3, 4 * each, padding=1, act=act.Linear())] for each in (4, 3)]
    label = layer.data("label", data_type.dense_vector_sequence(6))
    found = layer.detection_output(*sides, prior, 3, nms_threshold=0.5, confidence_threshold=0.0625)
    regions = layer.data("regions", data_type.dense_vector_sequence(5))
    return [
        layer.multibox_loss(*sides, prior, label, 3, neg_pos_ratio=2.0),
        found,
        layer.roi_pool(maps, regions, 2, 3, 0.5),
    ]


def selections() -> list[LayerOutput]:
    rows = layer.data("rows", data_type.dense_vector_sequence(1))
    starts, ends = (layer.data(each, data_type.dense_vector(2)) for each in ("starts", "ends"))
    nested = layer.data("nested", data_type.dense_vector_sub_sequence(1))
    kept = layer.kmax_seq_score(rows, beam_size=2)
    beam = layer.BeamInput(rows, kept, layer.data("right", data_type.integer_value(5)))
    image = layer.data("image", data_type.dense_vector(3 * 8 * 8), height=8, width=8)
    conv = layer.img_conv(image, 3, 3, num_channels=3, padding=1)
    return [
        layer.seq_slice(rows, starts, ends),
        layer.seq_slice(rows, starts, None),
        layer.seq_slice(rows, None, ends),
        layer.sub_nested_seq(nested, starts),
        layer.cross_entropy_over_beam([beam]),
        layer.crop(conv, [1, 2], shape=[1, 3, 5, 4]),
        layer.crop([image, conv], [0, 0]),
        layer.switch_order(conv, reshape_axis=2),
        layer.scale_sub_region(conv, layer.data("region", data_type.dense_vector(6)), 0.25),
    ]


def message_of(output: LayerOutput | list[LayerOutput]) -> tuple[NetworkMessage, Any]:
    """Return a network's message, and the message after it was written and read."""
    message = paddle.topology.Topology(output).proto()
    return message, Messages.ModelConfig.FromString(message.SerializeToString())


@pytest.mark.parametrize("make", [images, sequences, terms, groups, volumes, detectors, selections])
def test_a_network_read_from_its_message_computes_the_same(make: Callable[[], LayerOutput]) -> None:
    message, plain = message_of(make())
    assert message.network is not None
    found = network_in(plain.SerializeToString())
    types = dict(message.network.data_types)
    assert set(found.layers) == set(message.network.layers)
    for name, each in found.layers.items():
        before = message.network.layers[name]
        attrs = {**before.attrs, **{key: each.attrs[key] for key in ("ceil_mode",) if key in each.attrs}}
        assert each == replace(before, input_type=None, attrs=attrs), name
        assert each.type != "data" or name in types
    assert found.parameters == message.network.parameters
    assert found.outputs == message.network.outputs


def generation() -> LayerOutput:
    words = layer.embedding(layer.data("source", data_type.integer_value_sequence(20)), DIM)
    boot = layer.fc(layer.last_seq(words), DIM)

    def step(all_words: LayerOutput, word: LayerOutput) -> LayerOutput:
        before = layer.memory("state", DIM, boot_layer=boot)
        context = networks.simple_attention(all_words, all_words, before)
        state = layer.fc([context, word, before], DIM, name="state")
        return layer.fc(state, 20, act=act.Softmax(), name="next")

    inputs = [layer.GeneratedInput(20, "table", 5), layer.StaticInput(words, is_seq=True)]
    return layer.beam_search(
        lambda word, whole: step(whole, word), inputs, 0, 1, 3, 6, num_results_per_sample=2
    )


def test_a_generation_read_from_its_message_generates_the_same() -> None:
    message, plain = message_of(generation())
    kinds = [each.type for each in plain.layers]
    assert {"maxid", "eos_id", "gather_agent"} < set(kinds)
    assert "beam_search" not in kinds
    group = plain.sub_models[-1]
    assert group.generator.eos_layer_name in group.layer_names
    assert [each.boot_with_const_id for each in group.memories if each.HasField("boot_with_const_id")] == [0]
    before = plain.SerializeToString()
    found = network_in(before)
    assert message.network is not None
    assert found.parameters == message.network.parameters
    parameters = merge_model.parameters_of(found)
    rows = [([1, 2, 3],), ([4, 5],), ([19],)]
    pairs = []
    for network in (message.network, found):
        source = replace(
            network.layers["source"], input_type=data_type.integer_value_sequence(20)
        )  # the message has no types
        typed = replace(network, layers={**network.layers, "source": source})
        inference = paddle.inference.Inference(parameters, fileobj=io.BytesIO(typed.to_json()))
        pairs.append(inference.infer(rows, ["prob", "id"]))
    for ours, theirs in zip(*pairs, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_message_of_the_original_is_read_with_its_own_names_of_agents() -> None:
    model = Messages.ModelConfig(type="recurrent_nn", input_layer_names=["x"], output_layer_names=["end"])
    model.layers.add(name="x", type="data", size=4, active_type="")
    model.layers.add(name="group", type="recurrent_layer_group", active_type="")
    model.layers.add(name="x@group", type="scatter_agent", size=4, active_type="")
    model.layers.add(name="out+delay1@group", type="agent", size=3, active_type="")
    step = model.layers.add(name="out@group", type="fc", size=3, active_type="tanh")
    for at, name in enumerate(("x@group", "out+delay1@group")):
        step.inputs.add(input_layer_name=name, input_parameter_name=f"_out@group.w{at}")
    model.layers.add(name="out", type="gather_agent", size=3, active_type="")
    last = model.layers.add(name="end", type="seqlastins", size=3, active_type="linear")
    last.inputs.add(input_layer_name="out")
    for at, size in enumerate((12, 9)):
        model.parameters.add(name=f"_out@group.w{at}", size=size, dims=[size // 3, 3])
    group = model.sub_models.add(name="group", is_recurrent_layer_group=True)
    group.layer_names.extend(["x@group", "out+delay1@group", "out@group"])
    group.memories.add(layer_name="out@group", link_name="out+delay1@group")
    group.in_links.add(layer_name="x", link_name="x@group")
    group.out_links.add(layer_name="out@group", link_name="out")
    found = network_in(model.SerializeToString())
    assert found.outputs == ("end",)
    assert found.layers["out@group"].activation == "tanh"
    assert found.layers["end"].attrs["pooltype"] == "LAST"
    assert list(found.parameters) == ["_out@group.w0", "_out@group.w1"]


def wider() -> Any:
    return Messages.ModelConfig().parameters.add(name="_out.w0", size=15, dims=[5, 3])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda model: setattr(model.layers[1], "type", "mdlstmemory"), "'out' .*'mdlstmemory'"),
        (lambda model: setattr(model.layers[1], "active_type", "swish"), "'out' .*'swish'"),
        (lambda model: setattr(model.layers[1].inputs[0], "input_layer_name", "z"), "'out' .*'z'"),
        (lambda model: model.parameters[0].CopyFrom(wider()), "'_out.w0' .*12 .*15"),
        (lambda model: model.parameters.pop(), "'_out.w0' .*12 .*0"),
        (lambda model: model.layers[1].inputs.add(input_layer_name="x"), "'out'"),
    ],
)
def test_a_message_that_cannot_be_declared_is_refused_by_name(
    change: Callable[[Any], Any], says: str
) -> None:
    _, model = message_of(
        layer.fc(layer.data("x", data_type.dense_vector(4)), 3, bias_attr=False, name="out")
    )
    network_in(model.SerializeToString())
    change(model)
    with pytest.raises(PaddleError, match=says):
        network_in(model.SerializeToString())


def of_type(model: Any, kind: str, group: str = "") -> Any:
    return next(each for each in model.layers if each.type == kind and each.name.endswith(group))


@pytest.mark.parametrize(
    ("make", "change", "says"),
    [
        (images, lambda model: setattr(of_type(model, "pool").inputs[0].pool_conf, "stride", 0), "'pool'"),
        (images, lambda model: of_type(model, "exconv").ClearField("inputs"), "'exconv'"),
        (images, lambda model: of_type(model, "batch_norm").ClearField("inputs"), "'batch_norm'"),
        (terms, lambda model: of_type(model, "mixed").operator_confs[0].input_indices.append(0), "'mixed'"),
        (groups, lambda model: model.sub_models[1].layer_names.append(model.sub_models[1].name), "'outer'"),
        (groups, lambda model: model.sub_models[1].layer_names.append("nowhere"), "'nowhere'"),
        (groups, lambda model: model.sub_models[2].memories.add(layer_name="a", link_name="b"), "'b'"),
    ],
)
def test_a_message_with_damaged_numbers_and_names_is_refused_with_the_layer(
    make: Callable[[], LayerOutput], change: Callable[[Any], Any], says: str
) -> None:
    _, model = message_of(make())
    change(model)
    with pytest.raises(ModelFileError, match=says):
        network_in(model.SerializeToString())


def test_the_message_of_a_configuration_has_its_settings(workspace: Path) -> None:
    (workspace / "c.py").write_text(
        "from paddle.trainer_config_helpers import *\n"
        "settings(batch_size=7, learning_rate=.5, learning_method=RMSPropOptimizer(rho=.8), is_async=True,\n"
        "  learning_rate_schedule='discexp', learning_rate_decay_a=.25, learning_rate_decay_b=9.,\n"
        "  gradient_clipping_threshold=3., model_average=ModelAverage(.5, 100))\n"
        "define_py_data_sources2('train.list', None, 'provider', 'process', {'a': 1})\n"
        "outputs(fc_layer(data_layer('x', 3), 2, name='out'))\n"
    )
    config = parse_config("c.py")
    assert config.opt_config.batch_size == 7
    messages: Any = TrainerConfig_pb2
    read = messages.TrainerConfig.FromString(config.SerializeToString())
    assert read.opt_config == config.opt_config
    chosen = read.opt_config
    assert (chosen.algorithm, chosen.learning_method, chosen.ada_rou) == ("async_sgd", "rmsprop", 0.8)
    assert (chosen.learning_rate_schedule, chosen.learning_rate_decay_a) == ("discexp", 0.25)
    assert (chosen.average_window, chosen.max_average_window) == (0.5, 100)
    assert chosen.gradient_clipping_threshold == read.default_values.gradient_clipping_threshold == 3.0
    assert (read.data_config.type, read.data_config.load_data_object) == ("py2", "process")
    assert read.data_config.load_data_args == "(dVa\nI1\ns."
    assert not read.HasField("test_data_config")
    network = network_in(config.SerializeToString())
    assert network.outputs == ("out",)
    assert network.layers == config.network.layers


def test_a_step_of_a_configuration_can_have_a_cost_of_labels(workspace: Path) -> None:
    (workspace / "c.py").write_text(
        "from paddle.trainer_config_helpers import *\n"
        "def step(row, label):\n"
        "    return cross_entropy(fc_layer(row, 3, act=SoftmaxActivation()), label, name='cost')\n"
        "outputs(recurrent_group(step, [data_layer('x', 4), data_layer('y', 3)], name='group'))\n"
    )
    config = parse_config("c.py")
    assert config.network.costs() == ["cost"]
    assert network_in(config.SerializeToString()).layers["cost"] == config.network.layers["cost"]


def test_a_dumped_v2_network_infers_with_the_types_of_its_inputs(workspace: Path) -> None:
    out = layer.fc(layer.data("x", data_type.dense_vector(4)), 3)
    parameters = paddle.parameters.create(out)
    dump_v2_config(out, "net.bin", binary=True)
    rows = [(np.arange(4, dtype=np.float32),)]
    with open("net.bin", "rb") as file:
        loaded = paddle.inference.Inference(parameters, fileobj=file)
    np.testing.assert_array_equal(loaded.infer(rows), paddle.infer(out, parameters, rows))
    plain = paddle.topology.Topology(out).proto().SerializeToString()
    with pytest.raises(PaddleError, match="output_layer"):
        paddle.inference.Inference(parameters, fileobj=io.BytesIO(plain))


def test_damaged_messages_are_refused() -> None:
    plain = paddle.topology.Topology(images()).proto().SerializeToString()
    for cut in (1, 2, 5, len(plain) // 2, len(plain) - 1):
        with pytest.raises(ModelFileError):
            network_in(plain[:cut])


def test_parameters_of_simple_gru_have_the_names_of_the_original() -> None:
    rows = layer.data("rows", data_type.dense_vector_sequence(DIM))
    names = paddle.parameters.create(networks.simple_gru(rows, 4, name="gru")).names()
    assert names == ["_gru_transform.w0", "_gru@gru_recurrent_group.w0", "_gru@gru_recurrent_group.wbias"]
    again = networks.simple_gru(
        rows, 4, name="named", gru_param_attr=paddle.attr.Param(name="own"), gru_bias_attr=False
    )
    assert paddle.parameters.create(again).names() == ["_named_transform.w0", "own"]


def test_a_merged_model_whose_network_declares_more_than_any_memory_is_refused(tmp_path: Path) -> None:
    many = 2_000_000
    out = layer.fc(layer.data("x", data_type.dense_vector(many)), many, bias_attr=False)
    message = paddle.topology.Topology(out).proto().with_network()
    (tmp_path / "merged").write_bytes(struct.pack("<q", len(message)) + message + bytes(16))
    with pytest.raises(ModelFileError, match="merged"):
        merge_model.read(str(tmp_path / "merged"))
