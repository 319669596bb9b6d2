# SPDX-License-Identifier: Apache-2.0
"""`paddle dump_config` prints layers and recurrent groups in the original's messages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import paddle.v2 as paddle
from paddle.proto import ModelConfig_pb2
from paddle.trainer.config_parser import parse_config
from paddle.utils import dump_config
from paddle.v2 import activation, data_type, layer, pooling

HEAD = """
from paddle.trainer_config_helpers import *
settings(batch_size=1, learning_rate=1)
"""
IMAGES = """
image = data_layer('image', 3 * 8 * 6, height=6, width=8)
conv = img_conv_layer(image, (3, 2), 4, num_channels=3, padding=(1, 0), stride=(1, 2), name='conv')
norm = img_cmrnorm_layer(conv, 5, name='norm')
pool = img_pool_layer(norm, 2, stride=2, pool_type=AvgPooling(), name='pool')
volume = data_layer('volume', 2 * 4 * 6 * 5, depth=4, height=6, width=5)
deep = img_conv3d_layer(volume, (1, 2, 3), 2, num_channels=2, name='deep')
blocks = block_expand_layer(pool, num_channels=4, block_x=2, block_y=1, stride_x=1, stride_y=1, name='blocks')
padded = pad_layer(pool, pad_c=[1, 2], pad_h=[0, 1], pad_w=[3, 0], name='padded')
larger = bilinear_interp_layer(pool, 9, 7, name='larger')
both = mixed_layer(input=[conv_operator(image, fc_layer(image, 24, name='filters'), 2, 2, 3)], name='both')
cut = mixed_layer(12, input=[identity_projection(image, offset=5, size=12)], name='cut')
row = row_conv_layer(blocks, 3, name='row')
outputs(pooling_layer(row, name='rows'), padded, larger, both, deep, cut)
"""
LINES = {
    "conv": """conv_conf { filter_size: 3 channels: 3 stride: 1 padding: 1 groups: 1 filter_channels: 3
        output_x: 8 img_size: 8 caffe_mode: true filter_size_y: 2 padding_y: 0 stride_y: 2 output_y: 3
        img_size_y: 6 dilation: 1 dilation_y: 1 }""",
    "norm": """norm_conf { norm_type: "cmrnorm-projection" channels: 4 size: 5 scale: 0.00256 pow: 0.75 output_x: 8
        img_size: 8 blocked: false output_y: 3 img_size_y: 3 }""",
    "pool": """pool_conf { pool_type: "avg-projection" channels: 4 size_x: 2 stride: 2 output_x: 4 img_size: 8
        padding: 0 size_y: 2 stride_y: 2 output_y: 2 img_size_y: 3 padding_y: 0 }""",
    "deep": """img_size_y: 6 dilation: 1 dilation_y: 1 filter_size_z: 3 padding_z: 0 stride_z: 1 output_z: 2
        img_size_z: 4 }""",
    "blocks": """block_expand_conf { channels: 4 stride_x: 1 stride_y: 1 padding_x: 0 padding_y: 0 block_x: 2
        block_y: 1 output_x: 0 output_y: 0 img_size_x: 4 img_size_y: 2 }""",
    "padded": """pad_conf { image_conf { channels: 4 img_size: 4 img_size_y: 2 } pad_c: 1 pad_c: 2 pad_h: 0 pad_h: 1
        pad_w: 3 pad_w: 0 }""",
    "larger": "{ image_conf { channels: 4 img_size: 4 img_size_y: 2 } out_size_x: 9 out_size_y: 7 }",
    "both": """operator_confs { type: "conv" input_indices: 0 input_indices: 1 input_sizes: 144 input_sizes: 24
        output_size: 70 conv_conf { filter_size: 2 channels: 3""",
    "cut": """proj_conf { type: "slice" name: "" input_size: 144 output_size: 12 slices { start: 5 end: 17 } }""",
    "row": "row_conv_conf { context_length: 3 }",
}
GROUP = """
words = embedding_layer(data_layer('words', 9), 4, name='embedded')
first = fc_layer(data_layer('first', 3), 5, name='boot')
whole = fc_layer(first, 6, name='whole')
def step(word, same):
    before = memory('state', 5, boot_layer=first)
    return fc_layer([word, same, before], 5, name='state')
outputs(recurrent_group(step, [words, StaticInput(whole)], reverse=True, name='group'))
"""


def printed(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return the messages of a configuration in one line each, by their names."""
    (folder / "c.py").write_text(HEAD + text)
    assert dump_config.main(["c.py"]) == 0
    blocks = re.findall(r"^(?:layers|sub_models) \{\n(.*?)^\}$", capsys.readouterr().out, re.M | re.S)
    lines = (" ".join(block.split()) for block in blocks)
    return {re.match(r'name: "(.*?)"', line)[1]: line for line in lines}  # type: ignore[index]


def test_settings_of_layers_are_in_the_messages_of_their_inputs(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = printed(workspace, IMAGES, capsys)
    for name, text in LINES.items():
        assert " ".join(text.split()) in found[name]


def test_recurrent_groups_are_sub_models(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(workspace, GROUP, capsys)
    assert 'input_layer_names: "words"' in found["root"]
    assert found["group"].endswith(
        'is_recurrent_layer_group: true reversed: true memories { layer_name: "state@group" '
        'link_name: "state+delay1@group" boot_layer_name: "boot" } '
        'memories { layer_name: "__group_input_1__@group" link_name: "__group_input_1__@group" '
        'boot_layer_name: "whole" } '
        'in_links { layer_name: "embedded" link_name: "__group_input_0__@group" } '
        'out_links { layer_name: "state@group" link_name: "state" }'
    )
    assert 'type: "gather_agent"' in found["state"]


def test_a_network_is_a_message_of_the_original_with_its_settings(workspace: Path) -> None:
    (workspace / "c.py").write_text(HEAD + IMAGES)
    found: Any = parse_config("c.py").model_config
    layers = {each.name: each for each in found.layers}
    conv = layers["conv"].inputs[0]
    assert (conv.input_layer_name, conv.input_parameter_name) == ("image", "_conv.w0")
    assert (conv.conv_conf.filter_size, conv.conv_conf.filter_size_y, conv.conv_conf.stride_y) == (3, 2, 2)
    assert conv.HasField("conv_conf")
    assert not conv.HasField("pool_conf")
    assert layers["norm"].inputs[0].norm_conf.scale == pytest.approx(0.00256)
    assert not layers["norm"].HasField("softmax_selfnorm_alpha")
    assert list(layers["padded"].inputs[0].pad_conf.pad_c) == [1, 2]
    assert list(found.parameters[0].dims) == []
    assert found.parameters[0].size == 4 * 3 * 3 * 2
    messages: Any = ModelConfig_pb2
    read = messages.ModelConfig.FromString(found.SerializeToString())
    assert read == found
    assert str(read) == str(found)
    copy = messages.ModelConfig()
    copy.CopyFrom(found)
    copy.layers[0].size = 7
    assert copy != found
    assert found.layers[0].size == 3 * 8 * 6


def test_settings_of_layers_have_the_fields_of_the_original() -> None:
    x = layer.data("x", data_type.dense_vector_sequence(8))
    label = layer.data("label", data_type.integer_value(9))
    cell = layer.lstmemory(x, reverse=True, gate_act=activation.Relu(), name="cell")
    last = layer.pooling(cell, pooling.Max(), stride=2, name="pool")
    costs = [layer.nce(layer.pooling(last), label, num_neg_samples=3, name="nce")]
    costs.append(layer.hsigmoid(layer.first_seq(cell), label, num_classes=9, name="tree"))
    topology = paddle.topology.Topology(costs)
    found = topology.get_layer_proto("cell")
    assert (found.reversed, found.active_gate_type, found.bias_parameter_name) == (
        True,
        "relu",
        "_cell.wbias",
    )
    assert topology.get_layer_proto("pool").seq_pool_stride == 2
    assert topology.get_layer_proto("nce").num_neg_samples == 3
    assert [each.input_layer_name for each in topology.get_layer_proto("tree").inputs][1] == "label"
    assert topology.get_layer_proto("absent") is None
    assert topology.proto().IsInitialized()
    parameters = paddle.parameters.create(costs)
    message = topology.proto()
    message.parameters[0].learning_rate = 0.5
    parameters.update_param_conf(message)
    assert parameters.config(parameters.names()[0]).learning_rate == 0.5
