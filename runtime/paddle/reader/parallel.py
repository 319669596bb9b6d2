# SPDX-License-Identifier: Apache-2.0
"""Reader decorators that prefetch on threads: buffered and xmap_readers.

Threads start when iteration starts and end with it, even if the consumer stops early. An error in the source or mapper
is raised in the consumer, after the samples that precede it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from paddle.errors import ConfigError
from paddle.reader.channel import Channel, marked, pump, require_readers, running
from paddle.reader.decorator import Reader, check_positive
from paddle.signatures import misfit

T = TypeVar("T")
U = TypeVar("U")


def buffered(reader: Reader[T], size: int) -> Reader[T]:
    """Return a reader that prefetches up to `size` samples (0: all samples) on one thread."""
    if size < 0:
        raise ConfigError(f"buffered: size must not be negative, got {size}")
    require_readers(reader)

    def read() -> Iterator[T]:
        ahead: Channel[T] = Channel(size or sys.maxsize)
        with running([partial(pump, reader, ahead)], [ahead]):
            yield from ahead

    return marked(read)


def xmap_readers(
    mapper: Callable[[T], U], reader: Reader[T], process_num: int, buffer_size: int, order: bool = False
) -> Reader[U]:
    """Return a reader of `mapper(sample)` for every sample, computed on `process_num` threads.

    Args:
        mapper: called from several threads concurrently.
        reader: the source, which is read on a further thread.
        process_num: the number of threads that run the mapper.
        buffer_size: the maximum number of prefetched samples, and of results.
        order: True yields results in the order of the source; False as soon as they are ready.
    """
    check_positive("xmap_readers", process_num=process_num, buffer_size=buffer_size)
    if problem := misfit(mapper, None):
        raise ConfigError(f"xmap_readers: the mapper must take one argument, the sample: {problem}")
    require_readers(reader)
    results = _map_in_order if order else _map_as_ready
    return marked(partial(results, mapper, reader, int(process_num), int(buffer_size)))


def _map_as_ready(mapper: Callable[[T], U], reader: Reader[T], workers: int, size: int) -> Iterator[U]:
    todo: Channel[T] = Channel(size)
    done: Channel[U] = Channel(size, producers=workers)
    jobs = [partial(pump, reader, todo)]
    jobs += [partial(pump, partial(_mapped, mapper, todo), done)] * workers
    with running(jobs, [todo, done]):
        yield from done


def _map_in_order(mapper: Callable[[T], U], reader: Reader[T], workers: int, size: int) -> Iterator[U]:
    """Yield results in the order of the source: each sample has a channel for its one result."""
    todo: Channel[tuple[T, Channel[U]]] = Channel(size)
    line: Channel[Channel[U]] = Channel(size)

    def lined_up() -> Iterator[Channel[U]]:
        for sample in reader():
            result: Channel[U] = Channel(1)
            todo.put((sample, result))
            yield result

    def work() -> None:
        for sample, result in todo:
            pump(partial(_mapped, mapper, (sample,)), result)

    with running([partial(pump, lined_up, line)] + [work] * workers, [todo, line]):
        for result in line:
            yield from result


def _mapped(mapper: Callable[[T], U], samples: Iterable[T]) -> Iterator[U]:
    """Apply a mapper like `map`, except that a StopIteration raised by the mapper is an error rather than the end."""
    for sample in samples:
        yield mapper(sample)
