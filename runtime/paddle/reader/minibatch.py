# SPDX-License-Identifier: Apache-2.0
"""`batch`, which groups a reader's samples into minibatches, as trainers read them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

from paddle.reader.channel import marked
from paddle.reader.decorator import Reader, T, check_positive
from paddle.signatures import explained

_log = logging.getLogger(__name__)


@explained
def batch(reader: Reader[T], batch_size: int, drop_last: bool = False) -> Reader[list[T]]:
    """Return a reader of lists of `batch_size` samples; the last list may be shorter, unless `drop_last` drops it.

    A float batch_size, such as the result of `/` in Python 3, is truncated. A pass without batches logs a warning.

    Raises:
        ConfigError: immediately, if batch_size is below 1.
    """
    size = int(batch_size)
    check_positive("batch", batch_size=size)

    def read() -> Iterator[list[T]]:
        samples, given = iter(reader()), 0
        while group := list(itertools.islice(samples, size)):
            if drop_last and len(group) < size:
                break
            given += 1
            yield group
        if not given:
            count = (
                f"only {len(group)} samples, fewer than a batch of {size}, which drop_last discards"
                if group
                else "no samples"
            )
            _log.warning("the reader returned %s: there is nothing to train on", count)

    return marked(read, [reader])
