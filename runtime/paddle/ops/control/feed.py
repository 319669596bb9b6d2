# SPDX-License-Identifier: Apache-2.0
"""feed and fetch: say in program files what is fed and fetched, and in which order; read: a reader's next batch."""

from __future__ import annotations

from typing import Any, Protocol

from paddle.ops.base.registry import operator


@operator("feed", "X -> Out", attrs={"col": 0}, has_effect=True)
def feed(x: Any) -> Any:
    """Return X."""
    return x


@operator("fetch", "X -> Out", attrs={"col": 0}, has_effect=True)
def fetch(x: Any) -> Any:
    """Return X."""
    return x


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
