# SPDX-License-Identifier: Apache-2.0
"""`paddle.v2.reader`: the readers of `paddle.reader` under the name that v2 scripts know."""

from __future__ import annotations

import sys

from paddle.reader import (
    ComposeNotAligned,
    PipeReader,
    buffered,
    cache,
    chain,
    compose,
    creator,
    decorator,
    firstn,
    map_readers,
    pipe_reader,
    shuffle,
    xmap_readers,
)

__all__ = [
    "ComposeNotAligned",
    "PipeReader",
    "buffered",
    "cache",
    "chain",
    "compose",
    "creator",
    "decorator",
    "firstn",
    "map_readers",
    "pipe_reader",
    "shuffle",
    "xmap_readers",
]

# `import paddle.v2.reader.creator` asks sys.modules; without these entries it would want a package here.
sys.modules[f"{__name__}.creator"] = creator
sys.modules[f"{__name__}.decorator"] = decorator
