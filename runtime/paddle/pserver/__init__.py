# SPDX-License-Identifier: Apache-2.0
"""The parameter server and its clients; `paddle.pserver.Client` serves programs of any framework.

Importing this package loads no module: each name is loaded at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddle import later

if TYPE_CHECKING:
    from paddle.optim.spec import OptimizerSpec
    from paddle.pserver.client.batch import Batch
    from paddle.pserver.client.client import Client
    from paddle.pserver.client.declaration import GrowingTable, TensorOptions
    from paddle.pserver.client.pytorch_names import SGD, Adagrad, RowWiseAdagrad, SparseAdam
    from paddle.pserver.reader import Reader, TensorInfo
    from paddle.pserver.sparse.initial import Initial

__all__ = [
    "SGD", "Adagrad", "Batch", "Client", "GrowingTable", "Initial", "OptimizerSpec", "Reader", "RowWiseAdagrad",
    "SparseAdam", "TensorInfo", "TensorOptions",
]  # fmt: skip

__getattr__, __dir__ = later.attributes(
    __name__,
    {
        "paddle.pserver.client.batch": "Batch",
        "paddle.pserver.client.client": "Client",
        "paddle.pserver.client.declaration": "GrowingTable TensorOptions",
        "paddle.pserver.client.pytorch_names": "SGD Adagrad RowWiseAdagrad SparseAdam",
        "paddle.pserver.reader": "Reader TensorInfo",
        "paddle.pserver.sparse.initial": "Initial",
        "paddle.optim.spec": "OptimizerSpec",
    },
)
