# SPDX-License-Identifier: Apache-2.0
"""The v2 API of PaddlePaddle: declares networks of layers and trains them. Use it as ``import paddle.v2 as paddle``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddle import later, second_names
from paddle.reader.minibatch import batch
from paddle.v2 import (
    activation,
    attr,
    data_type,
    evaluator,
    event,
    layer,
    optimizer,
    parameters,
    pooling,
    regularization,
    topology,
    trainer,
)
from paddle.v2.settings import init

if TYPE_CHECKING:
    from paddle.dataset import image
    from paddle.v2 import inference, networks, op, plot
    from paddle.v2.inference import infer

__all__ = [
    "activation", "attr", "batch", "data_type", "dataset", "evaluator", "event", "image", "infer", "inference",
    "init", "layer", "minibatch", "networks", "op", "optimizer", "parameters", "plot", "pooling", "reader",
    "regularization", "topology", "trainer",
]  # fmt: skip


_ELSEWHERE = {
    "data_feeder": "paddle.v2.training.feeder",
    "dataset": "paddle.dataset",
    "fluid": "paddle.fluid",
    "image": "paddle.dataset.image",
    "minibatch": "paddle.reader.minibatch",
    "reader": "paddle.reader",
}
second_names.install({f"{__name__}.{name}": module for name, module in _ELSEWHERE.items()})
__getattr__, __dir__ = later.attributes(  # few scripts need all of these
    __name__,
    {
        ".inference": "infer",
        **{f".{name}": "" for name in (*_ELSEWHERE, "master", "networks", "op", "plot")},
    },
)
