# SPDX-License-Identifier: Apache-2.0
"""Generators of MultiSlot text: base classes for scripts that run as pipe commands.

Such a script reads lines in any format from standard input and writes lines of `count value value ...`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from paddle.errors import ConfigError

__all__ = ["MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]

_Sample = Sequence[tuple[str, Sequence[Any]]]


class DataGenerator:
    """Base class of generators: a script overrides `generate_sample` and calls `run_from_stdin`."""

    def __init__(self) -> None:
        self._proto_info: list[tuple[str, str]] | None = None
        self.batch_size_ = 32

    def set_batch(self, batch_size: int) -> None:
        """Set the number of samples that `generate_batch` receives per call."""
        self.batch_size_ = batch_size

    def generate_sample(self, line: str | None) -> Callable[[], Iterable[_Sample | None]]:
        """Return a function that yields a line's samples, each a list of (slot name, values).

        Override this method. Samples that are None are skipped.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define generate_sample(line), which returns a function that yields "
            "[(name, [value, ...]), ...]"
        )

    def generate_batch(self, samples: list[_Sample]) -> Callable[[], Iterable[_Sample]]:
        """Return a function that yields the samples of a batch. Can be overridden, for example to pad samples."""
        return lambda: samples

    def run_from_stdin(self) -> None:
        """Convert all lines of standard input to samples and write these to standard output."""
        self._run(sys.stdin)

    def run_from_memory(self) -> None:
        """Write the samples that `generate_sample(None)` yields to standard output."""
        self._run([None])

    def _run(self, lines: Iterable[str | None]) -> None:
        waiting: list[_Sample] = []
        for sample in self._samples(lines):
            waiting.append(sample)
            if len(waiting) == self.batch_size_:
                self._write(waiting)
                waiting = []
        if waiting:
            self._write(waiting)
        sys.stdout.flush()

    def _samples(self, lines: Iterable[str | None]) -> Iterator[_Sample]:
        for line in lines:
            for sample in self.generate_sample(line)():
                if sample is not None:
                    # zip(names, values) was a list in Python 2.
                    yield list(sample) if isinstance(sample, zip) else sample

    def _write(self, samples: list[_Sample]) -> None:
        sys.stdout.writelines(map(self._gen_str, self.generate_batch(samples)()))

    def _gen_str(self, line: _Sample) -> str:
        raise NotImplementedError(
            "derive the generator from MultiSlotDataGenerator or MultiSlotStringDataGenerator"
        )


class MultiSlotStringDataGenerator(DataGenerator):
    """A generator whose samples have strings as values, which it writes unchanged."""

    def _gen_str(self, line: _Sample) -> str:
        return _joined((str(len(values)), *values) for _, values in _checked(line))


class MultiSlotDataGenerator(DataGenerator):
    """A generator of samples with numbers as values, which it formats as MultiSlot text."""

    def _gen_str(self, line: _Sample) -> str:
        fields = _checked(line)
        names = [name for name, _ in fields]
        if self._proto_info is None:
            self._proto_info = [(name, "uint64") for name in names]
        known = [name for name, _ in self._proto_info]
        if names != known:
            raise ConfigError(
                f"all samples must have the same slots as the first sample, {known}; got {names}"
            )
        for at, (name, values) in enumerate(fields):
            if not isinstance(values, (list, tuple, np.ndarray)) or not len(values):
                raise ConfigError(
                    f"slot {name!r}: expected a list of at least one number, got {values!r:.60}"
                )
            for value in values:
                if isinstance(value, (float, np.floating)):
                    self._proto_info[at] = (name, "float")
                elif not isinstance(value, (int, np.integer)):
                    raise ConfigError(f"slot {name!r}: expected integers or floats, got {value!r:.60}")
        return _joined((str(len(values)), *map(_number, values)) for _, values in fields)


def _checked(line: _Sample) -> _Sample:
    if not isinstance(line, (list, tuple)):
        raise ConfigError(
            "a sample must be a list of (name, values), such as [('words', [19, 26]), ('label', "
            f"[1])], got {line!r:.60}"
        )
    for field in line:
        if not isinstance(field, (list, tuple)) or len(field) != 2 or not isinstance(field[0], str):
            raise ConfigError(f"a sample must be a list of (name, values), got the field {field!r:.60}")
    return line


def _number(value: Any) -> str:
    return str(int(value)) if isinstance(value, (bool, np.bool_)) else str(value)


def _joined(fields: Iterable[Iterable[str]]) -> str:
    return " ".join(token for field in fields for token in field) + "\n"
