# SPDX-License-Identifier: Apache-2.0
"""Reads and parses files in threads: thread p of n takes files p, p + n, ...

The samples of one thread keep the order of its files. Blocks of the threads alternate, so the same files and number of
threads always give the same order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from paddle.fluid.multislot.samples import Samples
from paddle.fluid.multislot.slots import Slot
from paddle.fluid.multislot.source import Pipe
from paddle.fluid.multislot.text import parse
from paddle.reader.channel import Channel, pump, running

_AHEAD = 4  # blocks of a thread

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """The files to read, and how to read them.

    Attributes:
        files: paths.
        slots: of a line.
        pipe: the pipe command.
        threads: number of reading threads, at most one per file.
    """

    files: tuple[str, ...]
    slots: tuple[Slot, ...]
    pipe: Pipe
    threads: int = 1


def load(source: Source) -> Iterator[Samples]:
    """Yield the samples of all files in blocks.

    Raises:
        OSError: a file cannot be read.
        PipeError: a pipe command failed.
        DataLineError: a line is malformed.
    """
    count = max(1, min(source.threads, len(source.files)))
    shares = [source.files[at::count] for at in range(count)]
    if count == 1:
        yield from _parsed(source, source.files)
        return
    channels: list[Channel[Samples]] = [Channel(_AHEAD) for _ in shares]
    jobs = [
        partial(pump, partial(_parsed, source, share), channel)
        for share, channel in zip(shares, channels, strict=True)
    ]
    with running(jobs, channels):
        alternating = [iter(channel) for channel in channels]
        while alternating:
            for each in list(alternating):
                block = next(each, None)
                if block is None:
                    alternating.remove(each)
                else:
                    yield block


def _parsed(source: Source, files: Sequence[str]) -> Iterator[Samples]:
    for path in files:
        warned = False
        for block in source.pipe.blocks(path):
            found = parse(block, source.slots)
            if found.longer_line is not None and not warned:
                warned = True
                logger.warning(
                    "%s, line %d: more values than its %d slots; the extra values are ignored, also in later "
                    "lines of the file",
                    block.source,
                    found.longer_line,
                    len(source.slots),
                )
            if found.samples.count:
                yield found.samples
