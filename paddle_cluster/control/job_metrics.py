# SPDX-License-Identifier: Apache-2.0
"""/metrics: what is known of a running job for Prometheus, served by its own client library where that is installed.

Every scrape shows the newest picture of the job. Labels are the plan's own names: as many time series as the job has
nodes and processes, however long it runs. Nothing here can fail the job: what is wrong is told once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from paddle_cluster.config.settings import MonitoringSettings
from paddle_cluster.nodes.process_record import ProcessState
from paddle_cluster.system.installation import PROGRAM

CLOSE_S = 3.0


class Figure(NamedTuple):
    """One metric: where status.json has it, and what it is called.

    Attributes:
        field: of a process or a node.
        scale: to the base unit.
    """

    name: str
    field: str
    help: str
    is_counter: bool = False
    scale: float = 1.0


OF_PROCESSES: Sequence[Figure] = (
    Figure(
        "paddle_process_cpu_cores", "cpu_percent", "Processors in use, with all that it started.", scale=0.01
    ),
    Figure(
        "paddle_process_resident_memory_bytes", "memory_bytes", "Resident memory, with all that it started."
    ),
    Figure("paddle_process_start_time_seconds", "started_at", "When it was started, since 1970."),
    Figure("paddle_trainer_pass", "pass_id", "The pass that a trainer is in."),
    Figure("paddle_trainer_batch", "batch_id", "The batch of its pass that a trainer is at."),
    Figure("paddle_trainer_cost", "cost", "The cost of a trainer's last batch."),
    Figure("paddle_trainer_samples_per_second", "samples_per_s", "A trainer's speed."),
    Figure("paddle_trainer_gradients", "pushed", "Gradients that came in asynchronous training.", True),
    Figure("paddle_trainer_discarded_gradients", "discarded", "Gradients that came too late.", True),
    Figure("paddle_trainer_lag_pushes", "lag", "Pushes of anybody since a trainer's own last one."),
    Figure("paddle_pserver_updates", "version", "Batches, or gradients, that a server has applied.", True),
    Figure("paddle_pserver_requests", "requests", "Requests that came to a server.", True),
    Figure("paddle_pserver_waiting_trainers", "waiting", "Trainers that wait for others at a server."),
    Figure("paddle_pserver_wait_seconds", "waited_s", "For how long nothing was applied meanwhile."),
)
OF_NODES: Sequence[Figure] = (
    Figure("paddle_node_heard_time_seconds", "heard_at", "When a node was last heard, since 1970."),
    Figure("paddle_node_cpu_ratio", "cpu_percent", "Processors of a node in use, of all.", scale=0.01),
    Figure("paddle_node_memory_used_bytes", "memory_bytes", "Memory of a node that cannot be had."),
    Figure("paddle_node_memory_bytes", "memory_total_bytes", "Memory of a node."),
    Figure("paddle_node_receive_bytes_per_second", "received_bytes_per_s", "What a node's network receives."),
    Figure("paddle_node_transmit_bytes_per_second", "sent_bytes_per_s", "What a node's network sends."),
    Figure("paddle_node_gpus", "gpus", "GPUs of a node."),
    Figure("paddle_node_gpu_ratio", "gpu_percent", "The mean use of a node's GPUs.", scale=0.01),
    Figure("paddle_node_gpu_memory_used_bytes", "gpu_memory_bytes", "Memory in use of a node's GPUs."),
    Figure("paddle_node_gpu_memory_bytes", "gpu_memory_total_bytes", "Memory of a node's GPUs."),
)


class JobMetrics:
    """Answers Prometheus from `start` to `close`, if the settings say so.

    Args:
        status: gives the newest state of the job; called from threads of the library.
        tell: for the one remark that it cannot be.
    """

    def __init__(
        self,
        settings: MonitoringSettings,
        status: Callable[[], Mapping[str, Any]],
        tell: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._status = status
        self._tell = tell
        self._server: Any = None
        self._thread: Any = None

    def start(self) -> None:
        """Listen."""
        place = f"{self._settings.metrics_address}:{self._settings.metrics_port}"
        if not self._settings.metrics_port:
            return
        try:
            from prometheus_client import CollectorRegistry, start_http_server  # who asked for it has it

            registry = CollectorRegistry()
            registry.register(self)
            self._server, self._thread = start_http_server(
                self._settings.metrics_port, self._settings.metrics_address, registry
            )
        except ImportError:
            self._tell(
                "METRICS_PORT: no metrics, the Python of the launcher has no prometheus_client: "
                "pip install prometheus_client; the job continues"
            )
        except OSError as error:
            self._tell(
                f"METRICS_PORT: no metrics, {place} cannot be listened on ({error.strerror}): another job may have it, "
                f"`{PROGRAM} status` shows them; the job continues"
            )

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(CLOSE_S)

    def describe(self) -> list[Any]:
        """Nothing to the library, which asks before the first scrape."""
        return []

    def collect(self) -> Iterator[Any]:
        """All metrics now, for the library."""
        return families(self._status())


def families(status: Mapping[str, Any]) -> Iterator[Any]:
    """The metrics of a job's state, as the library takes them."""
    from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

    yield InfoMetricFamily(
        "paddle_job",
        "The job.",
        {"job_id": str(status.get("job_id", "")), "phase": str(status.get("phase", ""))},
    )
    failures = GaugeMetricFamily("paddle_job_failures", "Failures that the job has not got over.")
    failures.add_metric([], len(status.get("failures", ())))
    yield failures
    processes, nodes = status.get("processes", ()), status.get("nodes", ())
    labels = [(one, [one["name"], one["role"], one["node"]]) for one in processes]
    up = GaugeMetricFamily("paddle_process_up", "Whether a process runs.", labels=_PROCESS)
    for one, values in labels:
        up.add_metric(values, one["state"] == ProcessState.RUNNING.value)
    yield up
    yield from _each(OF_PROCESSES, _PROCESS, labels)
    yield from _each(OF_NODES, ("node",), [(one, [one["name"]]) for one in nodes])


_PROCESS = ("process", "role", "node")


def _each(
    figures: Sequence[Figure], names: Sequence[str], rows: Sequence[tuple[Mapping[str, Any], list[str]]]
) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for figure in figures:
        make = CounterMetricFamily if figure.is_counter else GaugeMetricFamily
        family = make(figure.name, figure.help, labels=names)
        for row, labels in rows:
            if row.get(figure.field) is not None:
                family.add_metric(labels, row[figure.field] * figure.scale)
        if family.samples:
            yield family
