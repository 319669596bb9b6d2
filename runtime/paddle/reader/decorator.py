# SPDX-License-Identifier: Apache-2.0
"""Reader decorators without threads: map_readers, shuffle, chain, compose, firstn, cache and Fake.

Nothing is read until the new reader is called and iterated over. Every call reads the sources again, except with
`cache`.
"""

from __future__ import annotations

import itertools
import logging
import numbers
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

from paddle.errors import ConfigError, PaddleError
from paddle.reader.channel import marked, require_readers
from paddle.signatures import explained

T = TypeVar("T")
U = TypeVar("U")

Reader: TypeAlias = Callable[[], Iterable[T]]

_log = logging.getLogger(__name__)
_ENDED = object()


class ComposeNotAligned(PaddleError, ValueError):
    """Raised when the readers given to `compose` have different numbers of samples."""


def map_readers(func: Callable[..., U], *readers: Reader[Any]) -> Reader[U]:
    """Return a reader of `func(a, b, ...)` for corresponding samples of several readers, as long as the shortest."""
    require_readers(*readers)

    def read() -> Iterator[U]:
        return (func(*samples) for samples in zip(*(reader() for reader in readers), strict=False))

    return read


@explained
def shuffle(reader: Reader[T], buf_size: int) -> Reader[T]:
    """Return a reader that shuffles samples in a buffer of `buf_size` samples, buffer after buffer.

    The order comes from Python's `random`; seed it to make the order repeatable. A buffer of 0 or 1 samples keeps the
    order.
    """
    require_readers(reader)

    def read() -> Iterator[T]:
        samples = iter(reader())
        while buffer := list(itertools.islice(samples, max(int(buf_size), 1))):
            random.shuffle(buffer)
            yield from buffer

    return marked(read, [] if buf_size > 1 else [reader])


def chain(*readers: Reader[T]) -> Reader[T]:
    """Return a reader of the first reader's samples, then the second's, and so on.

    Readers whose first samples have different forms log a warning.
    """

    caller = sys._getframe(1)
    place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    forms: set[object] = set()

    def read() -> Iterator[T]:
        for reader in readers:
            samples = iter(reader())
            for first in itertools.islice(samples, 1):
                before = len(forms)
                forms.add(_form(first))
                if before == 1 < len(forms):
                    _log.warning(
                        "chain at %s: readers have samples of different forms, which follow each other; to combine "
                        "them into one, as in (x, y), use compose",
                        place,
                    )
                yield first
            yield from samples

    return marked(read, readers)


def compose(*readers: Reader[Any], check_alignment: bool = True) -> Reader[tuple[Any, ...]]:
    """Return a reader that combines the samples of several readers: 1 and (2, 3) become (1, 2, 3).

    Args:
        readers: the readers; a sample that is a tuple contributes its elements, any other sample itself.
        check_alignment: whether to raise an error if one reader ends before the others; False stops with the shortest.

    Raises:
        ComposeNotAligned: while reading, at the first sample that some reader does not have.
    """

    def read() -> Iterator[tuple[Any, ...]]:
        for index, row in enumerate(
            itertools.zip_longest(*(reader() for reader in readers), fillvalue=_ENDED)
        ):
            ended = [place for place, sample in enumerate(row) if sample is _ENDED]
            if ended and check_alignment:
                raise ComposeNotAligned(
                    f"compose: readers {ended} of {len(readers)} (counted from 0) ended after {index} "
                    "samples, but the others have more; give readers of equal length, or "
                    "check_alignment=False"
                )
            if ended:
                return
            yield tuple(itertools.chain.from_iterable(map(_as_tuple, row)))

    return marked(read, readers)


@explained
def firstn(reader: Reader[T], n: int) -> Reader[T]:
    """Return a reader of the first `n` samples, which reads no more from the source."""

    def read() -> Iterator[T]:
        return itertools.islice(iter(reader()), int(n))

    return marked(read, [reader])


def cache(reader: Reader[T]) -> Reader[T]:
    """Return a reader that reads the source in its first pass, and serves all passes from memory in the same order."""
    require_readers(reader)
    kept: list[T] | None = None

    def read() -> Iterator[T]:
        nonlocal kept
        if kept is None:
            kept = list(reader())
        yield from kept

    return marked(read)


def check_positive(function: str, **sizes: int) -> None:
    """Check that the named sizes are at least 1; raise ConfigError for the first that is not."""
    for name, size in sizes.items():
        if size < 1:
            raise ConfigError(f"{function}: {name} must be at least 1, got {size}")


def _form(sample: Any) -> object:
    """Return the number of fields of a sample, or whether it is a single number."""
    return len(sample) if isinstance(sample, tuple) else isinstance(sample, (numbers.Number, str, bytes))


def _as_tuple(sample: Any) -> tuple[Any, ...]:
    return sample if isinstance(sample, tuple) else (sample,)


class Fake:
    """A decorator for speed tests without files: `fake(reader, max_num)` yields the first sample `max_num` times."""

    def __init__(self) -> None:
        self.data: Any = None
        self.yield_num = 0

    def __call__(self, reader: Reader[T], max_num: int) -> Reader[T]:
        """Return the reader that repeats the first sample.

        Args:
            reader: its first sample is read once, for all passes.
            max_num: samples of a pass.
        """

        def read() -> Iterator[T]:
            if self.data is None:
                self.data = next(iter(reader()))
            for self.yield_num in range(1, max_num + 1):
                yield self.data
            self.yield_num = 0

        return read
