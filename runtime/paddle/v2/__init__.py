# SPDX-License-Identifier: Apache-2.0
"""The v2 interface: ``import paddle.v2 as paddle``."""

from __future__ import annotations

import importlib

from paddle.v2 import (
    activation,
    attr,
    data_type,
    dataset,
    evaluator,
    event,
    inference,
    layer,
    minibatch,
    networks,
    op,
    optimizer,
    parameters,
    pooling,
    reader,
    regularization,
    topology,
    trainer,
)
from paddle.v2.errors import MissingNameError
from paddle.v2.inference import infer
from paddle.v2.minibatch import batch
from paddle.v2.settings import init

__all__ = [
    "activation",
    "attr",
    "batch",
    "data_type",
    "dataset",
    "evaluator",
    "event",
    "infer",
    "inference",
    "init",
    "layer",
    "minibatch",
    "networks",
    "op",
    "optimizer",
    "parameters",
    "pooling",
    "reader",
    "regularization",
    "topology",
    "trainer",
]


def __getattr__(name: str) -> object:
    # These two want cv2 and matplotlib, which a trainer should not load before it asks for them.
    if name in ("image", "plot"):
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            raise MissingNameError(f"paddle.v2.{name} is not available here: {error}") from error
    if name == "master":
        raise MissingNameError("paddle.v2.master, the client of the fault-tolerant stack, is not available")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
