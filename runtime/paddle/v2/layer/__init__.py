# SPDX-License-Identifier: Apache-2.0
"""The layers that scripts declare (`paddle.layer`). Depends on `model`."""

from __future__ import annotations

from inspect import isfunction

from paddle.signatures import explained
from paddle.v2.layer.combine import *  # noqa: F403
from paddle.v2.layer.convolution import *  # noqa: F403
from paddle.v2.layer.cost import *  # noqa: F403
from paddle.v2.layer.data import data
from paddle.v2.layer.detection import *  # noqa: F403
from paddle.v2.layer.generation import *  # noqa: F403
from paddle.v2.layer.group import *  # noqa: F403
from paddle.v2.layer.image import *  # noqa: F403
from paddle.v2.layer.layer_type import *  # noqa: F403
from paddle.v2.layer.lstm_gru import *  # noqa: F403
from paddle.v2.layer.missing import RENAMED, explain
from paddle.v2.layer.mixed import concat, embedding, fc, mixed, selective_fc
from paddle.v2.layer.output import *  # noqa: F403
from paddle.v2.layer.pool import *  # noqa: F403
from paddle.v2.layer.projection import *  # noqa: F403
from paddle.v2.layer.rows import *  # noqa: F403
from paddle.v2.layer.sequence import *  # noqa: F403
from paddle.v2.layer.structured import *  # noqa: F403

__all__ = ["concat", "data", "embedding", "fc", "mixed", "selective_fc"]
__all__ += [
    name
    for name, found in globals().items()
    if getattr(found, "__module__", "").startswith(f"{__name__}.") and name not in (*__all__, "explain")
]
globals().update({name: explained(globals()[name]) for name in __all__ if isfunction(globals()[name])})


def __getattr__(name: str) -> object:
    if name in RENAMED:
        return globals()[RENAMED[name]]
    raise explain(name, __all__)
