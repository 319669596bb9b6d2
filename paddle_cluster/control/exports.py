# SPDX-License-Identifier: Apache-2.0
"""Exports the state of a running job: metrics for Prometheus at /metrics, and event files for TensorBoard.

Both exports are optional, and so are the libraries they need. An error is reported once and never fails the job.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddle_cluster.config.settings import MonitoringSettings
from paddle_cluster.control.curves import BatchCount
from paddle_cluster.control.views import NODES, PROCESSES, FactView, running_speed
from paddle_cluster.nodes.roster import ProcessState
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.queue_thread import QueueThread
from paddle_cluster.text.output_events import Event, Plotted, Progressed
from paddle_cluster.text.sizes import counted

CLOSE_S = 3.0
EVERY_S = 2.0
WAITING = 100_000  # events
WRITE_S = 5.0


class JobMetrics:
    """Serves metrics to Prometheus from `start` to `close` if METRICS_PORT is set. Each scrape gets the newest state.

    Labels are names from the plan, so the number of time series depends only on the job's nodes and processes.

    Args:
        status: returns the newest state of the job; called from threads of the library.
        report: receives the only message about a failure.
    """

    def __init__(
        self,
        settings: MonitoringSettings,
        status: Callable[[], Mapping[str, Any]],
        report: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._status = status
        self._report = report
        self._server: Any = None
        self._thread: Any = None

    def start(self) -> None:
        """Start listening on METRICS_PORT for scrapes."""
        place = f"{self._settings.metrics_address}:{self._settings.metrics_port}"
        if not self._settings.metrics_port:
            return
        try:
            from prometheus_client import CollectorRegistry, start_http_server  # only for users of metrics

            registry = CollectorRegistry()
            registry.register(self)
            self._server, self._thread = start_http_server(
                self._settings.metrics_port, self._settings.metrics_address, registry
            )
        except ImportError:
            self._report(
                "METRICS_PORT: no metrics, because the launcher's Python has no prometheus_client "
                "(pip install prometheus_client); the job continues"
            )
        except OSError as error:
            self._report(
                f"METRICS_PORT: no metrics, because the launcher cannot listen on {place} "
                f"({error.strerror}). Another job may use the port; `{PROGRAM} status` lists jobs. "
                "The job continues"
            )

    def close(self) -> None:
        """Stop listening for scrapes."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(CLOSE_S)

    def describe(self) -> list[Any]:
        """Return no metrics, as `Collector.describe`; the library calls this before the first scrape."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield all current metrics to the library, as `Collector.collect`; called for each scrape."""
        return families(self._status())


def families(status: Mapping[str, Any]) -> Iterator[Any]:
    """Convert the state of a job to metric families of prometheus_client."""
    from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

    yield InfoMetricFamily(
        "paddle_job",
        "The job.",
        {"job_id": str(status.get("job_id", "")), "phase": str(status.get("phase", ""))},
    )
    failures = GaugeMetricFamily("paddle_job_failures", "Failures from which the job has not recovered.")
    failures.add_metric([], len(status.get("failures", ())))
    yield failures
    processes, nodes = status.get("processes", ()), status.get("nodes", ())
    labels = [
        ({**one, "samples_per_s": running_speed(one)}, [one["name"], one["role"], one["node"]])
        for one in processes
    ]
    up = GaugeMetricFamily("paddle_process_up", "Whether a process is running.", labels=_PROCESS)
    for one, values in labels:
        up.add_metric(values, one["state"] == ProcessState.RUNNING.value)
    yield up
    yield from _each(PROCESSES, _PROCESS, labels)
    metrics = GaugeMetricFamily(
        "paddle_trainer_metric",
        "A value reported by the script under this name.",
        labels=(*_PROCESS, "metric"),
    )
    for one, values in labels:
        for title, value in (one.get("metrics") or {}).items():
            metrics.add_metric([*values, title], value)
    if metrics.samples:
        yield metrics
    yield from _each(NODES, ("node",), [(one, [one["name"]]) for one in nodes])


_PROCESS = ("process", "role", "node")


def _each(
    facts: Sequence[FactView], names: Sequence[str], rows: Sequence[tuple[Mapping[str, Any], list[str]]]
) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for fact in facts:
        if not fact.metric:
            continue
        make = CounterMetricFamily if fact.is_counter else GaugeMetricFamily
        family = make(f"paddle_{fact.metric}", fact.help, labels=names)
        scale = 0.01 if fact.form == "percent" else 1.0
        for row, labels in rows:
            if row.get(fact.field) is not None:
                family.add_metric(labels, row[fact.field] * scale)
        if family.samples:
            yield family


class TensorBoardLog:
    """Writes a job's curves to log/tensorboard/<job>/<process>/, in a dedicated thread.

    The console passes steps and points on to `take`. If the disk is too slow, some of them are dropped and counted.

    Args:
        directory: the directory for the job's event files; created with the first file.
        report: receives the only message about a failure to write.
    """

    def __init__(self, directory: Path, report: Callable[[str], None]) -> None:
        self._directory = directory
        self._report = report
        self._has_warned = False
        self._queue: QueueThread[tuple[float, Progressed | Plotted]] = QueueThread(
            self._drain, name="tensorboard", most=WAITING, first_s=EVERY_S, is_patient=True
        )
        self._left_out = 0
        self._batches: dict[str, BatchCount] = {}
        self._writers: dict[str, Any] = {}

    def start(self) -> None:
        """Start writing the events that `take` receives, if possible."""
        try:
            import tensorboardX.event_file_writer  # noqa: F401 - who asked for it has it
        except ImportError:
            self._report(
                "TENSORBOARD: no event files, because the launcher's Python has no tensorboardX (pip "
                "install tensorboardX); the job continues"
            )
            return
        self._queue.start()

    def take(self, event: Event) -> None:
        """Add an event without blocking; used as a tap for `Console.watch`."""
        if self._queue.is_alive and isinstance(event, Progressed | Plotted):
            self._left_out += not self._queue.put((time.time(), event), 1)

    def close(self) -> None:
        """Write pending data; wait for the disk for WRITE_S seconds at most."""
        self._queue.close(WRITE_S)
        if self._left_out:
            self._report(
                f"{self._directory}: {counted(self._left_out, 'point')} arrived too fast and were skipped"
            )

    def _drain(self, waiting: Sequence[tuple[float, Progressed | Plotted]], is_last: bool) -> float:
        try:
            self._write(waiting)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                self._report(f"{self._directory}: cannot write curves ({error.strerror}); the job continues")
        for writer in self._writers.values() if is_last else ():
            writer.close()
        return EVERY_S

    def _write(self, waiting: Sequence[tuple[float, Progressed | Plotted]]) -> None:
        from tensorboardX.proto.event_pb2 import Event as Record
        from tensorboardX.proto.summary_pb2 import Summary

        written: Counter[str] = Counter()
        for at, event in waiting:
            for title, step, value in self._points(event):
                summary = Summary(value=[Summary.Value(tag=title, simple_value=value)])
                self._writer(event.process).write_event(Record(wall_time=at, step=step, summary=summary))
                written[event.process] += 1
        for process in written:
            self._writers[process].flush()

    def _points(self, event: Progressed | Plotted) -> Iterator[tuple[str, int, float]]:
        if isinstance(event, Plotted):
            yield event.curve, int(event.step), event.value
            return
        facts = event.facts
        batches = self._batches.setdefault(event.process, BatchCount()).add(facts)
        for row in PROCESSES:
            value = getattr(facts, row.field, None) if row.curve else None
            if value is not None:
                yield row.curve, batches, value

    def _writer(self, process: str) -> Any:
        from tensorboardX.event_file_writer import EventsWriter

        if process not in self._writers:
            place = self._directory / process
            place.mkdir(parents=True, exist_ok=True)
            self._writers[process] = EventsWriter(os.path.join(place, "events"))
        return self._writers[process]
