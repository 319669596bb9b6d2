# SPDX-License-Identifier: Apache-2.0
"""What Prometheus gets of a pserver."""

from __future__ import annotations

from urllib.request import urlopen

import pytest

from tests.ports import free_range
from tests.runtime.pserver.pserver_process import START_S, PserverProcess

prometheus = pytest.importorskip("prometheus_client.parser")


def test_a_pserver_that_is_asked_to_answers_prometheus() -> None:
    port = free_range(1)
    with PserverProcess("--port=0", PADDLE_PSERVER_METRICS_PORT=str(port)) as server:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=START_S) as answer:
            families = prometheus.text_string_to_metric_families(answer.read().decode())
            found = {sample.name: sample.value for family in families for sample in family.samples}
        assert found["paddle_pserver_updates_total"] == 0
        assert found["paddle_pserver_waiting_trainers"] == 0
        assert found["process_resident_memory_bytes"] > 1 << 20
        code, _ = server.end()
    assert code == 0
