# SPDX-License-Identifier: Apache-2.0
"""The original's tools for configuration files and their parameters: print, draw and merge."""

from paddle import later, second_names

__all__ = ["Ploter"]

second_names.install({f"{__name__}.plot": "paddle.v2.plot"})
second_names.refuse(
    __name__,
    {
        "image_multiproc": "paddle.reader.xmap_readers with functions of paddle.utils.image_util",
        "plotcurve": "paddle.v2.plot.Ploter in an event handler",
        "predefined_net": "the networks of paddle.trainer_config_helpers, such as vgg_16_network",
        "preprocess_img": "functions of paddle.utils.image_util in a data provider",
        "preprocess_util": "functions of paddle.utils.image_util in a data provider",
        "show_pb": "the data provider itself, and print its samples",
        "torch2paddle": "Parameters.set(name, array) with numpy arrays of the weights, then Parameters.to_tar",
    },
)
__getattr__, __dir__ = later.attributes(__name__, {"paddle.v2.plot": "Ploter"})
