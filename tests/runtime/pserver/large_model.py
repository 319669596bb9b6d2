# SPDX-License-Identifier: Apache-2.0
"""A model whose parameters take several chunks, some of them together."""

from __future__ import annotations

from paddle.pserver.wire.chunks import CHUNK
from tests.runtime.pserver.in_process_job import Model

LARGE = Model({"a": (2 * CHUNK + 7,), "b": (31,), "c": (CHUNK,), "d": (5, 3)})
