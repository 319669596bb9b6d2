# SPDX-License-Identifier: Apache-2.0
"""`paddle dump_config` prints layers and recurrent groups in the original's messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paddle.utils import dump_config

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
    "deep": """img_size_y: 6 dilation: 1 dilation_y: 1 filter_size_z: 3 stride_z: 1 output_z: 2 img_size_z: 4
        padding_z: 0 }""",
    "blocks": """block_expand_conf { channels: 4 stride_x: 1 stride_y: 1 padding_x: 0 padding_y: 0 block_x: 2
        block_y: 1 img_size_x: 4 img_size_y: 2 }""",
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
