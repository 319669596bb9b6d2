# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of one pserver process, at /metrics on port PADDLE_PSERVER_METRICS_PORT of 127.0.0.1.

prometheus_client serves them, together with its process metrics (memory, CPU time, open files). If the library is
missing or the port is in use, a warning is logged and the server continues without metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from paddle_node.contract.facts import Queue

_log = logging.getLogger(__name__)
_JOIN_S = 3.0
_COUNTERS = {
    "rows_made": "Rows created in growing tables.",
    "rows_dropped": "Rows evicted because they were too old or below the lowest score.",
    "rows_asked": "Distinct ids in batches.",
    "rows_found": "Distinct ids in batches whose row was in memory.",
}


class ServerMetrics:
    """Serves a pserver's metrics from its creation until `close`, if a port is set. `queue` must be thread-safe."""

    def __init__(self, port: int | None, queue: Callable[[], Queue]) -> None:
        self._queue = queue
        self._server: Any = None
        if not port:
            return
        try:
            from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

            registry = CollectorRegistry()
            ProcessCollector(registry=registry)
            registry.register(self)
            self._server, self._thread = start_http_server(port, "127.0.0.1", registry)
        except ImportError:
            _log.warning("no metrics: this Python has no prometheus_client; pip install prometheus_client")
        except (OSError, OverflowError) as error:
            _log.warning("no metrics: cannot listen on 127.0.0.1:%d: %s", port, error)

    def collect(self) -> Iterator[Any]:
        """Yield the current metrics to prometheus_client, for each scrape."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        queue = self._queue()
        yield CounterMetricFamily("paddle_pserver_updates", "Batches, or gradients, applied.", queue.version)
        yield CounterMetricFamily("paddle_pserver_requests", "Requests received.", queue.requests)
        yield GaugeMetricFamily(
            "paddle_pserver_waiting_trainers", "Trainers waiting for others.", queue.waiting
        )
        yield GaugeMetricFamily(
            "paddle_pserver_wait_seconds", "Time without an update, while trainers wait.", queue.waited_s
        )
        yield GaugeMetricFamily("paddle_pserver_rows", "Rows of growing tables.", queue.rows)
        yield GaugeMetricFamily("paddle_pserver_rows_bytes", "Memory of growing tables.", queue.rows_bytes)
        yield GaugeMetricFamily(
            "paddle_pserver_rows_disk_bytes", "Files of growing tables.", queue.rows_disk_bytes
        )
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"paddle_pserver_{name}", text, getattr(queue, name))
        lags = GaugeMetricFamily(
            "paddle_trainer_lag_pushes",
            "Pushes of all trainers since a trainer's own last push.",
            labels=("trainer",),
        )
        for trainer, lag in queue.lags:
            lags.add_metric([str(trainer)], lag)
        yield lags

    def close(self) -> None:
        """Stop serving metrics, and close the port."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(_JOIN_S)
