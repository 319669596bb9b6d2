# SPDX-License-Identifier: Apache-2.0
"""The v2 interface: ``import paddle.v2 as paddle``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from paddle import second_names
from paddle.reader.minibatch import batch
from paddle.v2 import (
    activation,
    attr,
    data_type,
    evaluator,
    event,
    image,
    inference,
    layer,
    networks,
    op,
    optimizer,
    parameters,
    plot,
    pooling,
    regularization,
    topology,
    trainer,
)
from paddle.v2.inference import infer
from paddle.v2.settings import init

__all__ = [
    "activation", "attr", "batch", "data_type", "dataset", "evaluator", "event", "image", "infer", "inference",
    "init", "layer", "minibatch", "networks", "op", "optimizer", "parameters", "plot", "pooling", "reader",
    "regularization", "topology", "trainer",
]  # fmt: skip


_ELSEWHERE = {
    "dataset": "paddle.dataset",
    "fluid": "paddle.fluid",
    "minibatch": "paddle.reader.minibatch",
    "reader": "paddle.reader",
}
second_names.install({f"{__name__}.{name}": module for name, module in _ELSEWHERE.items()})


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:  # loaded when a script asks for it: few need fluid, or what downloads and unpacks
        return import_module(f"{__name__}.{name}")
    if name == "master":
        return import_module(f"{__name__}.master")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
