# SPDX-License-Identifier: Apache-2.0
"""profiler: measures the run times of operators, for a printed table and a trace file for chrome://tracing."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from paddle.fluid.errors import FluidError, answering
from paddle.graph.profile import PROFILE, Event
from paddle_node.contract.classes import NamedTuple

__all__ = ["cuda_profiler", "profiler", "reset_profiler", "start_profiler", "stop_profiler"]

_STATES = ("CPU", "GPU", "All")
_log = logging.getLogger(__name__)


class _Row(NamedTuple):
    """Statistics of the run times of one operator type in one thread, in ms."""

    event: str
    calls: int
    total: float
    least: float
    most: float

    @property
    def average(self) -> float:
        return self.total / self.calls


_Order = tuple[str, Callable[[_Row], float]]
_ORDERS: Mapping[str, _Order] = {
    "calls": ("number of calls", lambda row: row.calls),
    "total": ("total time", lambda row: row.total),
    "max": ("maximum time", lambda row: row.most),
    "min": ("minimum time", lambda row: row.least),
    "ave": ("average time", lambda row: row.average),
}


def start_profiler(state: str) -> None:
    """Start recording the run times of operators, unless this has already started.

    Args:
        state: "CPU": record the time until a kernel has started; "GPU" and "All": until it has finished.

    Raises:
        FluidError: the state is unknown.
    """
    if state not in _STATES:
        raise FluidError(f"profiler: expected state to be one of {', '.join(_STATES)}, got {state!r}")
    if not PROFILE.on:
        PROFILE.start(waits=state != "CPU")


def stop_profiler(sorted_key: str | None = None, profile_path: str = "/tmp/profile") -> None:  # noqa: S108 - the original's
    """Stop recording, print the table and write the trace file; does nothing if recording has not started.

    Args:
        sorted_key: "calls", "total", "max", "min" or "ave", in descending order; None means the order of first runs.
        profile_path: path of the trace, JSON in Chrome's format; an existing file is overwritten.

    Raises:
        FluidError: the key is unknown.
        OSError: the file cannot be written.
    """
    order = _order(sorted_key)
    if not PROFILE.on:
        return
    PROFILE.stop()
    events, took_ms = PROFILE.events, (time.perf_counter_ns() - PROFILE.since_ns) / 1e6
    sys.stdout.write(_table(_rows(events), order, took_ms))
    sys.stdout.flush()
    _write_trace(Path(profile_path), events)


def reset_profiler() -> None:
    """Discard the run times recorded so far."""
    PROFILE.reset()


@contextmanager
def profiler(
    state: str,
    sorted_key: str | None = None,
    profile_path: str = "/tmp/profile",  # noqa: S108 - the original's
) -> Iterator[None]:
    """Profile the block of a `with` statement; see `start_profiler` and `stop_profiler`.

    Raises:
        FluidError: state or sorted_key is unknown.
        OSError: the file cannot be written.
    """
    _order(sorted_key)
    start_profiler(state)
    try:
        yield
    finally:
        stop_profiler(sorted_key, profile_path)


@contextmanager
def cuda_profiler(
    output_file: str, output_mode: str | None = None, config: Sequence[str] | None = None
) -> Iterator[None]:
    """Log a warning that nvprof recordings are not supported, and do nothing else.

    Raises:
        FluidError: output_mode is neither "kvp" nor "csv".
    """
    if output_mode not in (None, "kvp", "csv"):
        raise FluidError(f"cuda_profiler: expected output_mode to be kvp or csv, got {output_mode!r}")
    _log.warning(
        "cuda_profiler is not supported, so %s is not written: run the script under NVIDIA's nsys, or "
        "use fluid.profiler.profiler('GPU')",
        output_file,
    )
    yield


def _order(sorted_key: str | None) -> _Order | None:
    if sorted_key is not None and sorted_key not in _ORDERS:
        raise FluidError(
            f"profiler: expected sorted_key to be None or one of {', '.join(_ORDERS)}, got {sorted_key!r}"
        )
    return None if sorted_key is None else _ORDERS[sorted_key]


def _rows(events: Sequence[Event]) -> list[_Row]:
    threads: dict[int, int] = {}
    taken: defaultdict[str, list[float]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.start_ns):
        number = threads.setdefault(event.thread, len(threads))
        taken[f"thread{number}::{event.op_type}"].append(event.took_ns / 1e6)
    return [_Row(name, len(each), sum(each), min(each), max(each)) for name, each in taken.items()]


def _table(rows: Sequence[_Row], order: _Order | None, took_ms: float) -> str:
    order_text = "in execution order"
    if order is not None:
        order_text = f"{order[0]} in descending order"
        rows = sorted(rows, key=order[1], reverse=True)
    width = max([len(row.event) for row in rows], default=0) + 2
    lines = [
        "",
        "------------------------->     Profiling Report     <-------------------------",
        "",
        "Time unit: ms",
        f"Sorted by {order_text}; Ratio: share of the {took_ms:.3f} ms recorded",
        "",
        f"{'Event':<{width}}"
        + "".join(f"{name:<12}" for name in ("Calls", "Total", "Min.", "Max.", "Ave.", "Ratio.")),
    ]
    for row in rows:
        numbers = [
            f"{each:.6g}" for each in (row.total, row.least, row.most, row.average, row.total / took_ms)
        ]
        lines.append(
            (f"{row.event:<{width}}{row.calls:<12}" + "".join(f"{each:<12}" for each in numbers)).rstrip()
        )
    return "\n".join(lines) + "\n\n"


def _write_trace(path: Path, events: Sequence[Event]) -> None:
    pid = os.getpid()
    trace = [
        {
            "ph": "X",
            "cat": "Op",
            "name": event.op_type,
            "pid": pid,
            "tid": event.thread,
            "ts": event.start_ns / 1e3,
            "dur": event.took_ns / 1e3,
            "args": {"output": event.output},
        }
        for event in events
    ]
    unfinished = path.with_name(f"{path.name}.{pid}.tmp")
    unfinished.write_text(json.dumps({"traceEvents": trace, "displayTimeUnit": "ms"}), encoding="utf-8")
    unfinished.replace(path)


__getattr__ = answering(__name__)
