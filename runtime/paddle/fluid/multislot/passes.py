# SPDX-License-Identifier: Apache-2.0
"""Passes over files of samples: threads read the files, run a program on each batch, and print fetched values.

Thread p of n reads files p, p + n, ... in order, and blocks from the threads alternate. The order of samples therefore
depends only on the files and the number of threads.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from paddle.backend import to_host
from paddle.fluid.errors import FluidError
from paddle.fluid.multislot.samples import Samples, Slot
from paddle.fluid.multislot.source import Pipe
from paddle.fluid.multislot.text import parse
from paddle.graph import Variable
from paddle.graph.block import Name
from paddle.ops.base.lod import plain
from paddle.reader.channel import Channel, pump, running
from paddle.reader.parallel import buffered
from paddle.threads import ServiceThread, left_to_finish
from paddle_node.contract.classes import NamedTuple, dataclass

_BLOCKS_AHEAD = 4  # blocks of a thread

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """The files of a data set, and the settings for reading them.

    Attributes:
        files: paths of the files.
        slots: slots of each line.
        pipe: the pipe command.
        threads: number of reading threads, at most one per file.
    """

    files: tuple[str, ...]
    slots: tuple[Slot, ...]
    pipe: Pipe
    threads: int = 1


def load(source: Source) -> Iterator[Samples]:
    """Yield the samples of all files, in blocks.

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
    channels: list[Channel[Samples]] = [Channel(_BLOCKS_AHEAD) for _ in shares]
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
                    "%s, line %d: expected the values of %d slots, found more. Extra values are ignored in this and "
                    "all later lines of the file",
                    block.source,
                    found.longer_line,
                    len(source.slots),
                )
            if found.samples.count:
                yield found.samples


_AHEAD = 4  # batches prepared during a step

Step = Callable[[Mapping[str, Any], Sequence[Name]], Sequence[Any]]


class Printing(NamedTuple):
    """Settings for the values printed to standard output, for batch 0 and every `period`-th batch after it.

    Attributes:
        fetches: variables or names.
        labels: one label per fetch.
        period: number of batches from one printed line to the next.
        totals: whether to print the numbers of batches, samples and seconds at the end.
    """

    fetches: Sequence[Name]
    labels: Sequence[str]
    period: int
    totals: bool = False


def printing(
    fetch_list: Sequence[Name] | Name | None,
    fetch_info: Sequence[str] | str | None,
    period: int,
    totals: bool,
) -> Printing:
    """Check the printing arguments of `train_from_dataset`, and return them as a `Printing`.

    Raises:
        FluidError: fetch_info and fetch_list differ in length, or the period is below 1.
    """
    if fetch_list is None or isinstance(fetch_list, (str, Variable)):
        fetches = [] if fetch_list is None else [fetch_list]
    else:
        fetches = list(fetch_list)
    names = [each if isinstance(each, str) else each.name for each in fetches]
    labels = [fetch_info] if isinstance(fetch_info, str) else list(fetch_info or names)
    if len(labels) != len(fetches):
        raise FluidError(f"fetch_info: expected one string per fetch ({len(fetches)}), got {len(labels)}")
    if period < 1:
        raise FluidError(f"print_period: expected at least 1, got {period}")
    return Printing(fetches, labels, period, totals)


def run_pass(steps: Sequence[Step], batches: Iterable[Samples], printed: Printing) -> int:
    """Run a step on each batch, which a separate thread prepares; return the number of samples.

    Args:
        steps: a single step runs the batches in sequence; several steps have a thread each, and each idle thread takes
            the next batch.
        batches: batches of the pass.
        printed: the values to print.
    """
    begun, number, samples = time.monotonic(), 0, 0
    taking, preparing, stopped = threading.Lock(), threading.Lock(), threading.Event()

    def ahead() -> Iterator[tuple[Samples, dict[str, Any]]]:
        for batch in batches:
            yield batch, batch.feed()

    def work(step: Step) -> None:
        nonlocal number, samples
        known: set[bool] = set()
        try:
            while not stopped.is_set():
                with taking:
                    item = next(ready, None)
                    if item is None:
                        return
                    at, (batch, feed) = number, item
                    number, samples = number + 1, samples + batch.count
                prints = bool(printed.fetches) and at % printed.period == 0
                # Programs are compiled in the first step of each kind, by one thread at a time.
                with contextlib.nullcontext() if prints in known else preparing:
                    values = step(feed, printed.fetches if prints else ())
                known.add(prints)
                if prints:
                    shown = ", ".join(
                        f"{label}: {text(value)}" for label, value in zip(printed.labels, values, strict=True)
                    )
                    sys.stdout.write(f"batch {at}: {shown}\n")
                    sys.stdout.flush()
        except BaseException:
            stopped.set()
            raise

    with closing(iter(buffered(ahead, _AHEAD * len(steps))())) as ready:  # type: ignore[type-var]
        others = [
            ServiceThread(partial(work, step), name="hogwild", failed=left_to_finish) for step in steps[1:]
        ]
        try:
            work(steps[0])
        finally:
            for each in others:
                each.join()
        for each in others:
            each.finish()
    if printed.totals:
        took_s = time.monotonic() - begun
        sys.stdout.write(f"{number} batches, {samples} samples in {took_s:.3f} s\n")
        sys.stdout.flush()
    return samples


def text(value: Any) -> str:
    """Format a fetched value as text for printing."""
    held = value.value() if hasattr(value, "value") else value
    return np.array2string(np.asarray(to_host(plain(held))), threshold=20, separator=", ")
