# SPDX-License-Identifier: Apache-2.0
"""Configurations of image, volume and detection layers build, with the parameters that the original gives them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from paddle.trainer.config_parser import parse_config

_HEAD = "from paddle.trainer_config_helpers import *\nsettings(learning_rate=1e-4, batch_size=1000)\n"

_DETECTOR = """
loc = data_layer(name='loc', size=16, height=16, width=1)
conf = data_layer(name='conf', size=8, height=1, width=8)
priors = data_layer(name='priors', size=32, height=4, width=8)
"""

CASES: Mapping[str, tuple[str, Mapping[str, tuple[int, ...]]]] = {
    "boxes": (
        _DETECTOR + "outputs(detection_output_layer(loc, conf, priors, 21, name='found'))",
        {},
    ),
    "loss of boxes": (
        _DETECTOR
        + "label = data_layer(name='label', size=24, height=4, width=6)\n"
        + "outputs(multibox_loss_layer(loc, conf, priors, label, num_classes=21))",
        {},
    ),
    "convolutions in mixed": (
        """
img, own = data_layer(name='img', size=32 * 32), data_layer(name='own', size=3 * 3 * 64)
with mixed_layer() as straight:
    straight += conv_operator(img=img, filter=own, num_filters=64, num_channels=1, filter_size=3)
    straight += conv_projection(img, filter_size=3, num_filters=64, num_channels=1)
back = dict(num_filters=64, num_channels=1, filter_size=3, stride=2, padding=1, trans=True)
with mixed_layer() as transposed:
    transposed += conv_operator(img=img, filter=own, **back)
    transposed += conv_projection(img, **back)
outputs(mixed_layer(size=10, input=[full_matrix_projection(each) for each in (straight, transposed)]))
""",
        {"___mixed_0__.w1": (1, 576), "___mixed_1__.w1": (1, 576), "___mixed_2__.w1": (63 * 63 * 64, 10)},
    ),
    "volumes": (
        """
data = data_layer(name='data', size=12096 * 3, height=48, width=42, depth=6)
same = dict(input=data, num_filters=16, num_channels=3, groups=1, bias_attr=True, act=LinearActivation())
one = img_conv3d_layer(name='one', filter_size=3, stride=2, padding=0, layer_type='conv3d', **same)
more = dict(filter_size=[3, 3, 3], stride=[2, 2, 2], padding=[1, 1, 1])
two = img_conv3d_layer(name='two', trans=True, layer_type='deconv3d', **more, **same)
pool = img_pool3d_layer(input=data, pool_size=5, num_channels=3, pool_type=AvgPooling(), stride=3, padding=1)
outputs(one, two, pool, batch_norm_layer(data, num_channels=3, img3D=True))
""",
        {
            "_one.w0": (1, 1296),
            "_one.wbias": (16, 1),
            "_two.w0": (1, 1296),
            "___batch_norm_0__.w1": (1, 3),
        },
    ),
    "products": (
        """
a, b, short = [data_layer(name=name, size=size) for name, size in (('a', 100), ('b', 100), ('d', 31))]
mask = data_layer(name='mask', size=50)
outputs(
    conv_shift_layer(a=a, b=short),
    tensor_layer(a=a, b=b, size=1000),
    selective_fc_layer(input=a, select=mask, size=50, act=SigmoidActivation()),
    repeat_layer(input=a, num_repeats=10, act=TanhActivation(), as_row_vector=False),
)
""",
        {"___tensor_layer_0__.w0": (100, 100, 1000), "___selective_fc_layer_0__.w0": (50, 100)},
    ),
    "images": (
        """
image = data_layer(name='image', size=3 * 14 * 14, height=14, width=14)
rois = data_layer(name='rois', size=10)
conv = img_conv_layer(input=image, filter_size=3, num_channels=3, num_filters=16, padding=1, bias_attr=True)
wide = bilinear_interp_layer(input=conv, out_size_x=64, out_size_y=48)
print_layer(input=wide)
outputs(
    roi_pool_layer(input=conv, rois=rois, pooled_width=7, pooled_height=7, spatial_scale=1. / 16),
    spp_layer(input=conv, num_channels=16, pool_type=MaxPooling(), pyramid_height=3),
    cross_channel_norm_layer(input=wide),
    switch_order_layer(input=conv, reshape_axis=3),
    rotate_layer(input=image, height=14, width=14),
    img_conv_layer(input=wide, filter_size=5, num_filters=8, trans=True, stride=2, padding=(2, 1)),
    priorbox_layer(input=conv, image=image, min_size=[4], max_size=[8], aspect_ratio=[2.], variance=[.1] * 4),
)
""",
        {"___cross_channel_norm_0__.w0": (16, 1), "___conv_1__.w0": (1, 16 * 8 * 25)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_configuration_builds_with_the_originals_parameters(name: str, tmp_path: Path) -> None:
    text, shapes = CASES[name]
    path = tmp_path / "trainer_config.py"
    path.write_text(_HEAD + text)
    parameters = parse_config(str(path), "").network.parameters
    assert {each: parameters[each].shape for each in shapes} == shapes
