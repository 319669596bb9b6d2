# SPDX-License-Identifier: Apache-2.0
"""PaddlePaddle for cluster training: `import paddle.v2 as paddle`, or `import paddle.fluid as fluid`.

Importing this package alone is cheap: no numpy, no zmq, no cupy. Its parts are loaded when they are first used.
"""

from __future__ import annotations

import importlib

from paddle import second_names
from paddle.version import __version__

__all__ = ["__version__"]

_PARTS = ("dataset", "distributed", "fluid", "reader", "v2")
_NEWER = ("amp", "io", "jit", "metric", "nn", "optimizer", "static", "tensor", "vision", "distributed.fleet")

second_names.refuse(
    __name__,
    dict.fromkeys(
        _NEWER, "paddle.fluid or paddle.v2; the interfaces of PaddlePaddle 2.0 and newer do not exist here"
    ),
)


def __getattr__(name: str) -> object:
    # Fluid's scripts write `import paddle` and then paddle.batch, paddle.dataset.mnist.
    if name in _PARTS:
        return importlib.import_module(f"paddle.{name}")
    if name == "batch":
        return importlib.import_module("paddle.reader.minibatch").batch
    raise AttributeError(
        f"module 'paddle' has no attribute {name!r}; it has batch, {', '.join(_PARTS)}, but no PaddlePaddle 2.0 API"
    )
