# SPDX-License-Identifier: Apache-2.0
"""read: the next batch of a reader that a thread fills."""

from __future__ import annotations

from typing import Any, Protocol

from paddle.ops.base.registry import operator


class BatchSource(Protocol):
    """What a reader's variable holds."""

    def read(self) -> list[Any]:
        """Return the values of the next batch, arrays or `LoDArray`s; wait for it.

        Raises:
            EndOfData: there is none.
        """


@operator("read", "Reader -> Out*+", has_effect=True)
def read(reader: BatchSource) -> list[Any]:
    """Return the values of the next batch."""
    return reader.read()
