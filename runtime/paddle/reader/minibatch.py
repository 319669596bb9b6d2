# SPDX-License-Identifier: Apache-2.0
"""Batches out of samples: what a trainer reads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from paddle.reader.ahead import marked
from paddle.reader.decorator import Reader, T, check_positive


def batch(reader: Reader[T], batch_size: int, drop_last: bool = False) -> Reader[list[T]]:
    """Groups samples into lists of `batch_size`; the last list holds what is left, unless `drop_last`.

    Raises:
        ConfigError: at once, when batch_size is below 1.
    """
    check_positive("batch", batch_size=batch_size)

    def read() -> Iterator[list[T]]:
        samples = iter(reader())
        while group := list(itertools.islice(samples, batch_size)):
            if drop_last and len(group) < batch_size:
                return
            yield group

    return marked(read, [reader])
