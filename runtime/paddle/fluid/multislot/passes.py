# SPDX-License-Identifier: Apache-2.0
"""Runs a program on the batches of one pass, and prints fetched values."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from paddle.backend import to_host
from paddle.fluid.errors import FluidError
from paddle.fluid.multislot.samples import Samples
from paddle.graph import Variable
from paddle.graph.block import Name
from paddle.ops.base.lod import plain
from paddle.reader.parallel import buffered

_AHEAD = 4  # batches prepared during a step

Step = Callable[[Mapping[str, Any], Sequence[Name]], Sequence[Any]]


class Printing(NamedTuple):
    """What to print to standard output for batch 0 and every `period`-th batch after it.

    Attributes:
        fetches: variables or names.
        labels: one label per fetch.
        period: batches.
        totals: whether batches, samples and seconds are printed at the end.
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
    """Return what to print, from the arguments of `train_from_dataset`.

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


def run_pass(step: Step, batches: Iterable[Samples], told: Printing) -> int:
    """Run a step for each batch; a thread prepares them. Return the number of samples."""
    begun, number, samples = time.monotonic(), 0, 0

    def ahead() -> Iterator[tuple[Samples, dict[str, Any]]]:
        for batch in batches:
            yield batch, batch.feed()

    with closing(iter(buffered(ahead, _AHEAD)())) as ready:  # type: ignore[type-var]
        for number, (batch, feed) in enumerate(ready, 1):
            prints = bool(told.fetches) and (number - 1) % told.period == 0
            values = step(feed, told.fetches if prints else ())
            samples += batch.count
            if prints:
                shown = ", ".join(
                    f"{label}: {text(value)}" for label, value in zip(told.labels, values, strict=True)
                )
                sys.stdout.write(f"batch {number - 1}: {shown}\n")
                sys.stdout.flush()
    if told.totals:
        took_s = time.monotonic() - begun
        sys.stdout.write(f"{number} batches, {samples} samples in {took_s:.3f} s\n")
        sys.stdout.flush()
    return samples


def text(value: Any) -> str:
    """Return a fetched value as it is printed."""
    held = value.value() if hasattr(value, "value") else value
    return np.array2string(np.asarray(to_host(plain(held))), threshold=20, separator=", ")
