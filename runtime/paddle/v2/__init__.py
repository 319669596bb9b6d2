# SPDX-License-Identifier: Apache-2.0
"""The v2 interface: ``import paddle.v2 as paddle``."""

from __future__ import annotations

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
