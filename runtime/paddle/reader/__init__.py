# SPDX-License-Identifier: Apache-2.0
"""Readers: callables without arguments, each call of which returns an iterator over one pass of samples.

`creator` makes readers from arrays and files; the functions here make new readers from readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddle import later
from paddle.reader import creator, decorator
from paddle.reader.decorator import (
    ComposeNotAligned,
    Fake,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    shuffle,
)
from paddle.reader.minibatch import batch
from paddle.reader.parallel import buffered, xmap_readers

if TYPE_CHECKING:
    from paddle.reader.processes import PipeReader, multiprocess_reader, pipe_reader

__all__ = [
    "ComposeNotAligned", "Fake", "PipeReader", "batch", "buffered", "cache", "chain", "compose", "creator", "decorator",
    "firstn", "map_readers", "multiprocess_reader", "pipe_reader", "shuffle", "xmap_readers",
]  # fmt: skip

# imports subprocess
__getattr__, __dir__ = later.attributes(
    __name__, {".processes": "PipeReader multiprocess_reader pipe_reader"}
)
