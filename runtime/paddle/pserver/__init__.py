# SPDX-License-Identifier: Apache-2.0
"""The parameter server and its clients; `paddle.pserver.Client` serves programs of any framework.

Importing this package loads no module: each name is loaded at its first use.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddle.optim.spec import OptimizerSpec
    from paddle.pserver.client.batch import Batch
    from paddle.pserver.client.client import Client
    from paddle.pserver.client.declaration import GrowingTable, TensorOptions
    from paddle.pserver.client.pytorch_names import SGD, Adagrad, RowWiseAdagrad, SparseAdam
    from paddle.pserver.reader import Reader, TensorInfo
    from paddle.pserver.sparse.initial import Initial

_HOMES = MappingProxyType(
    {
        "Adagrad": "paddle.pserver.client.pytorch_names",
        "Batch": "paddle.pserver.client.batch",
        "Client": "paddle.pserver.client.client",
        "GrowingTable": "paddle.pserver.client.declaration",
        "Initial": "paddle.pserver.sparse.initial",
        "OptimizerSpec": "paddle.optim.spec",
        "Reader": "paddle.pserver.reader",
        "RowWiseAdagrad": "paddle.pserver.client.pytorch_names",
        "SGD": "paddle.pserver.client.pytorch_names",
        "SparseAdam": "paddle.pserver.client.pytorch_names",
        "TensorInfo": "paddle.pserver.reader",
        "TensorOptions": "paddle.pserver.client.declaration",
    }
)

__all__ = [
    "SGD",
    "Adagrad",
    "Batch",
    "Client",
    "GrowingTable",
    "Initial",
    "OptimizerSpec",
    "Reader",
    "RowWiseAdagrad",
    "SparseAdam",
    "TensorInfo",
    "TensorOptions",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
